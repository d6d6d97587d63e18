"""Imported logs on the terminal: what was read of each, and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qfr.analysis.diagnostics.channels import Verdict
from qfr.analysis.diagnostics.novelty import Novelty
from qfr.analysis.imported import Comparison, Gap
from qfr.analysis.results import Contrast
from qfr.foreign import ForeignRun, Requestor, SourceKind
from qfr.foreign.measures import (
    BudgetRule,
    Convention,
    budget_curve,
    channel_rates,
    lengths,
    pass_hat_k,
    recovery,
    success,
)
from qfr.foreign.trials import counted
from qfr.report.tables.formats import p_value, percent, signed
from qfr.stats.intervals import Estimate

#: Budgets from here down are all listed; of larger ones only the run's own.
_LISTED_FROM = 10
_WITHIN = 3
#: Excluded simulations that are named for each reason; the run's configuration holds all of them.
_MOST_PLACES = 30


def print_log(run: ForeignRun, names: str, most_k: int, out: Console) -> None:
    """Print everything that was read of one log.

    Parameters
    ----------
    names : str
        Model and preset that it is imported as.
    most_k : int
        Largest exponent of pass^k.
    """
    info = run.info
    program = info.agent if info.kind is SourceKind.neutral else info.kind
    out.print(plain(f"{info.source}: {program}, {info.domain or 'domain unknown'}, {names}", "bold"))
    for line in _head(run):
        out.print(Padding(plain(line), (0, 0, 0, 2)))
    for table in (_powers(run, most_k), _channels(run), *([] if run.blind else [_budgets(run)])):
        out.print(Padding(table, (1, 0, 0, 2)))
    if run.blind:
        out.print(Padding(plain(f"success under an error budget: {run.blind}"), (1, 0, 0, 2)))
    out.print()
    for line in _process(run):
        out.print(Padding(plain(line), (0, 0, 0, 2)))
    for warning in run.warnings:
        out.print(Padding(Text("⚠ ", "yellow").append_text(plain(warning)), (0, 0, 0, 2)))


def plain(text: str, style: str = "") -> Text:
    """Text of a file without markup or control characters."""
    return Text("".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text), style)


def grid(caption: str, *columns: str, text: tuple[str, ...] = ()) -> Table:
    """An empty table; columns named in `text` hold words, the others figures."""
    table = Table(
        title=caption,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        table.add_column(column, justify="left" if column in text else "right")
    return table


def row(table: Table, *values: str) -> None:
    """Add a row of plain texts."""
    table.add_row(*(plain(value) for value in values))


def _head(run: ForeignRun) -> Iterable[str]:
    info, share = run.info, success(run)
    planned = share.scored + share.excluded
    release = "" if info.kind is SourceKind.neutral else f", release {info.release} ({info.release_reason})"
    yield f"SHA-256 {info.sha256[:16]}{release}"
    told = [
        f"{name} {value}"
        for name, value in (
            ("agent", info.agent),
            ("user simulator", info.user_model),
            ("agent writes", "its calls as text" if info.text_agent else ""),
            ("step budget", info.max_steps),
            ("error budget", info.max_errors),
            ("seed", info.seed),
        )
        if value not in (None, "")
    ]
    if told:
        yield ", ".join(told)
    plan = f"{counted(len(run.tasks), 'task')} × {counted(info.trials, 'trial')}"
    guess = "" if info.plan_stated else " (as many as it holds; the log states no plan)"
    yield f"{share.scored} of {planned} simulations scored; planned: {plan}{guess}"
    for each in run.excluded_by_reason():
        places = [f"{gone.task}/{gone.trial}" for gone in run.excluded if gone.reason == each.reason]
        more = "" if len(places) <= _MOST_PLACES else f" … and {len(places) - _MOST_PLACES} more"
        yield f"in no rate: {each.count} {each.reason} (task/trial {', '.join(places[:_MOST_PLACES])}{more})"
    yield (
        f"success {percent(share.share)} of the scored ({share.successes} of {share.scored}); between "
        f"{percent(share.low)} and {percent(share.high)} with the excluded ones as failures and as successes"
    )


def _powers(run: ForeignRun, most_k: int) -> Table:
    table = grid(
        "pass^k, mean over tasks: all of k trials succeed",
        "k", "excluded removed", "tasks", "excluded failed", "tasks", "note",
        text=("note",),
    )  # fmt: skip
    for k in range(1, min(run.info.trials, most_k) + 1):
        removed, failed = (pass_hat_k(run, k, convention) for convention in Convention)
        note = removed.reason or ""
        if removed.value is not None and removed.fewest_trials < run.info.trials:
            note = f"a task rests on {removed.fewest_trials} of {run.info.trials} trials"
        if removed.dropped_tasks:
            note = "; ".join(filter(None, (note, f"{removed.dropped_tasks} tasks dropped out")))
        row(
            table, str(k), percent(removed.value), str(removed.n_tasks), percent(failed.value),
            str(failed.n_tasks), note,
        )  # fmt: skip
    return table


def _channels(run: ForeignRun) -> Table:
    table = grid(
        "Failing calls of the agent", "channel", "failed", "calls", "per call", "simulations with any",
        "share", "note", text=("channel", "note"),
    )  # fmt: skip
    for rate in channel_rates(run):
        row(
            table, rate.channel, _count(rate.events), str(rate.calls), percent(rate.rate, 2),
            "–" if rate.episodes_with is None else f"{rate.episodes_with} of {rate.episodes}",
            percent(rate.share), rate.note or "",
        )  # fmt: skip
    return table


def _count(events: int | None) -> str:
    return "–" if events is None else str(events)


def _budgets(run: ForeignRun) -> Table:
    table = grid(
        "Success under an error budget K, recounted: at the K-th failing call it stops (as tau2-bench codes "
        "it), or K are allowed (as papers word it)",
        "K", "both sides, stop at K", "both, allow K", "agent alone, stop at K", "agent, allow K",
    )  # fmt: skip
    curves = [
        {point.budget: point.success.share for point in budget_curve(run, rule, whose)}
        for whose in (None, Requestor.agent)
        for rule in (BudgetRule.stop_at, BudgetRule.allow)
    ]
    budgets = sorted({budget for curve in curves for budget in curve}, reverse=True)
    for budget in budgets:
        if budget <= _LISTED_FROM or budget == budgets[0]:
            row(table, str(budget), *(_share(curve, budget) for curve in curves))
    return table


def _share(curve: dict[int, float | None], budget: int) -> str:
    # Without a stated budget the rules begin at other budgets; above its own a curve is flat.
    return percent(curve[budget] if budget in curve else curve[max(curve)])


def _process(run: ForeignRun) -> Iterable[str]:
    after, long = recovery(run, _WITHIN), lengths(run)
    if after.errors:
        yield (
            f"after a failing call: a good one among the agent's next {_WITHIN} in {percent(after.share)} "
            f"({after.recovered} of {after.errors}; {after.last} were the last call)"
        )
    if long.agent_calls is not None:
        told = "calls not observable," if run.blind else f"{long.agent_calls:.1f} calls and"
        if run.info.kind is SourceKind.neutral:
            # Such lines hold calls alone.
            if not run.blind:
                yield f"per simulation: {long.agent_calls:.1f} calls of the agent"
            return
        tokens = "" if long.tokens is None else f", {long.tokens:,.0f} tokens written by the agent"
        yield (
            f"per simulation: {told} {long.agent_messages or 0:.1f} messages of the agent, "
            f"{long.user_calls or 0:.1f} calls of the user{tokens}"
        )


#: Signatures of failing calls that are listed.
_MOST_SIGNATURES = 6


def print_comparison(found: Comparison, out: Console) -> None:
    """Print how the second log differs from the first, the reference."""
    a, b = found.first.label, found.second.label
    out.print(plain(f"{a} (reference, A) against {b} (B)", "bold"))
    out.print(
        Padding(plain(f"A: {found.first.run.info.source}, B: {found.second.run.info.source}"), (0, 0, 0, 2))
    )
    for line in _success(found.contrast):
        out.print(Padding(plain(line), (0, 0, 0, 2)))
    for told in found.differences:
        out.print(Padding(plain(f"⚠ differs besides: {told}", "yellow"), (0, 0, 0, 2)))
    if found.blind:
        out.print(Padding(plain(f"failing calls are not compared: {found.blind}"), (0, 0, 0, 2)))
        return
    out.print(Padding(_amplified(found), (1, 0, 0, 2)))
    out.print()
    for one in found.novelty:
        for line in _novel(one):
            out.print(Padding(plain(line), (0, 0, 0, 2)))
    out.print(Padding(_signatures(found.novelty[0]), (1, 0, 0, 2)))
    for gap in found.gaps:
        out.print(Padding(_gap(gap), (1, 0, 0, 2)))
    out.print()
    for line in _compared_process(found):
        out.print(Padding(plain(line), (0, 0, 0, 2)))


def _success(c: Contrast) -> Iterable[str]:
    head = f"success per task, A − B: {signed(c.points)} points"
    if c.points is None:
        yield f"{head}: {c.reason}"
        return
    if c.low is not None and c.high is not None:
        head += (
            f" [{signed(c.low)}, {signed(c.high)}] ({100 * c.confidence:g} %, tasks resampled, {c.method})"
        )
    yield f"{head}, {percent(c.rate_a)} against {percent(c.rate_b)}, n = {c.n_tasks} tasks"
    if not c.reliable and c.reason:
        yield f"the interval is not to be relied on: {c.reason}"
    yield (
        f"tasks that favour A {c.favour_a}, B {c.favour_b}, ties {c.ties}; sign p {p_value(c.sign_p)}, "
        f"sign-flip p {p_value(c.signflip_p)}, smallest possible {p_value(c.smallest_p)}"
    )
    if c.equivalent is not None and c.equivalence_low_points is not None:
        word = "equivalent" if c.equivalent else "equivalence not shown"
        ends = f"[{signed(c.equivalence_low_points)}, {signed(c.equivalence_high_points)}]"
        yield f"{word} within ±{c.margin_points:g} points: 90 % interval {ends}"
    if c.detectable_points is not None:
        yield f"a true difference of about {c.detectable_points:.0f} points would be found four times in five"
    if c.undelivered_low_points is not None:
        yield (
            f"with every excluded simulation against A or against B: {signed(c.undelivered_low_points)} to "
            f"{signed(c.undelivered_high_points)} points"
        )


def _amplified(found: Comparison) -> Table:
    scored = " and ".join(str(len(side.run.episodes)) for side in (found.first, found.second))
    unsure = any(not e.reliable for one in found.amplifications for e in (one.count_ratio, one.rate_ratio))
    table = grid(
        f"Amplification B / A, over the {found.episodes} simulations that both score (of {scored}). "
        "Count ratio: events, whatever the number of calls. Rate ratio: events per call of the agent."
        + (" ~: the interval is not reliable." if unsure else ""),
        "event", "A", "B", "per call A", "per call B", "count ratio", "rate ratio", "difference, points",
        text=("event",),
    )  # fmt: skip
    unseen = {event for side in (found.first, found.second) for event in side.run.unseen}
    for one in found.amplifications:
        if one.verdict is Verdict.not_possible or one.event in unseen:
            continue
        told = "" if one.verdict is Verdict.ratio else str(one.verdict)
        rates = (
            count / calls if calls else None
            for count, calls in (
                (one.reference_count, one.reference_calls),
                (one.other_count, one.other_calls),
            )
        )
        row(
            table, one.event, str(one.reference_count), str(one.other_count),
            *(percent(rate, 2) for rate in rates), told or _times(one.count_ratio),
            told or _times(one.rate_ratio),
            signed(None if one.rate_difference is None else 100 * one.rate_difference, 2),
        )  # fmt: skip
    return table


def _times(e: Estimate) -> str:
    if e.value is None:
        return "–"
    ends = "" if e.low is None and e.high is None else f" [{_end(e.low)}, {_end(e.high)}]"
    return f"×{e.value:.2f}{ends}" + ("" if e.reliable else "~")


def _end(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _novel(one: Novelty) -> Iterable[str]:
    what = "failing calls" if one.channel is None else f"failing calls of the channel {one.channel}"
    if not one.other_events:
        yield f"novelty, {what}: B has none"
        return
    share = one.novel_share
    ends = "" if share.low is None else f" [{percent(share.low)}, {percent(share.high)}]"
    expected = (
        f"A itself is expected to show {percent(one.expected_share)} on new tasks"
        if one.expected_share is not None
        else str(one.reason)
    )
    yield (
        f"novelty, {what}: {one.novel_occurrences} of {one.other_occurrences} signatures of B (once per "
        f"episode) are not among A's, {percent(share.value)}{ends}; {expected}"
    )
    pairs = [
        f"{'–' if found.value is None else f'{found.value:.2f}'} over {words} ({found.n})"
        for found, words in (
            (one.correlation, "all signatures"),
            (one.correlation_shared, "those that both have"),
        )
    ]
    yield f"  rank correlation of their counts: {', '.join(pairs)}"


def _signatures(one: Novelty) -> Table:
    table = grid("Failing calls by signature, the most frequent", "signature", "A", "B", text=("signature",))
    for count in one.counts[:_MOST_SIGNATURES]:
        row(table, count.signature.text[:80], str(count.reference), str(count.other))
    if len(one.counts) > _MOST_SIGNATURES:
        row(table, f"… and {len(one.counts) - _MOST_SIGNATURES} more", "", "")
    return table


def _gap(gap: Gap) -> Table:
    table = grid(
        f"S(K), at most K failing calls ({gap.whose}), mean over shared tasks; the band holds for all K",
        "K", "A", "B", "A − B, points", "95 % band",
    )  # fmt: skip
    points = gap.curve.points
    for point in points:
        e = point.gap
        if point.budget > 10 and point is not points[0]:
            continue
        value = None if e.value is None else 100 * e.value
        band = "" if e.low is None or e.high is None else f"[{signed(100 * e.low)}, {signed(100 * e.high)}]"
        row(table, str(point.budget), percent(point.first), percent(point.second), signed(value), band)
    return table


def _compared_process(found: Comparison) -> Iterable[str]:
    first, second = found.recovery
    for at, within in enumerate(first.within):
        other = second.within[at]
        yield (
            f"after a failing call a good one within {within.turns}: A {percent(within.share.value)} of "
            f"{first.errors}, B {percent(other.share.value)} of {second.errors}"
        )
    turns = found.lengths[0]
    if turns.reference is not None and turns.other is not None:
        yield (
            f"calls of the agent per simulation, over the {turns.episodes} that both score: "
            f"A {turns.reference:.1f}, B {turns.other:.1f}"
        )

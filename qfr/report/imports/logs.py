"""Imported logs on the terminal: what was read of each, and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qfr.foreign import ForeignRun, Requestor, SourceKind
from qfr.foreign.measures import BudgetRule, Convention, budget_curve, pass_hat_k, success
from qfr.foreign.rates import channel_rates, lengths, recovery
from qfr.foreign.trials import counted
from qfr.report.tables.formats import percent

#: Budgets from here down are all listed; of larger ones only the run's own.
_LISTED_FROM = 10
_WITHIN = 3
#: Excluded simulations that are named for each reason; the run's configuration holds all of them.
_MOST_PLACES = 30


def print_log(run: ForeignRun, names: str, most_k: int, out: Console) -> None:
    """Print everything that was read of one log.

    Parameters
    ----------
    run : ForeignRun
    names : str
        Model and preset that it is imported as.
    most_k : int
        Largest exponent of pass^k.
    out : Console
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

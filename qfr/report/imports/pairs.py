"""Two imported logs against each other on the terminal: success, channels, novelty, budgets, recovery."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from qfr.analysis.diagnostics.channels import Verdict
from qfr.analysis.diagnostics.novelty import Novelty
from qfr.analysis.imported import Comparison, Gap
from qfr.analysis.results import Contrast
from qfr.report.imports.logs import grid, plain, row
from qfr.report.tables.formats import p_value, percent, signed
from qfr.stats.intervals import Estimate

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
    for line in _process(found):
        out.print(Padding(plain(line), (0, 0, 0, 2)))


def _success(c: Contrast) -> Iterable[str]:
    head = f"success per task, A − B: {signed(c.points)} points"
    if c.points is None:
        yield f"{head}: {c.reason}"
        return
    if c.low is not None and c.high is not None:
        head += f" [{signed(c.low)}, {signed(c.high)}] ({100 * c.level:g} %, tasks resampled, {c.method})"
    yield f"{head}, {percent(c.rate_a)} against {percent(c.rate_b)}, n = {c.n_tasks} tasks"
    if not c.reliable and c.reason:
        yield f"the interval is not to be relied on: {c.reason}"
    yield (
        f"tasks that favour A {c.favour_a}, B {c.favour_b}, ties {c.ties}; sign p {p_value(c.sign_p)}, "
        f"sign-flip p {p_value(c.signflip_p)}, smallest possible {p_value(c.smallest_p)}"
    )
    if c.equivalent is not None and c.equivalence_low is not None and c.equivalence_high is not None:
        word = "equivalent" if c.equivalent else "equivalence not shown"
        ends = f"[{signed(c.equivalence_low)}, {signed(c.equivalence_high)}]"
        yield f"{word} within ±{c.margin:g} points: 90 % interval {ends}"
    if c.detectable is not None:
        yield f"a true difference of about {c.detectable:.0f} points would be found four times in five"
    if c.bounds is not None:
        yield (
            f"with every excluded simulation against A or against B: {signed(c.bounds.low)} to "
            f"{signed(c.bounds.high)} points"
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
        f"episode) are not among A's, "
        f"{percent(share.value)}{ends}; {expected}"
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


def _process(found: Comparison) -> Iterable[str]:
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

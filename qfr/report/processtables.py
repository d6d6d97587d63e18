"""Tables of the process diagnostics."""

from __future__ import annotations

from collections.abc import Iterable

from qfr.analysis.diagnostics.channels import Verdict
from qfr.analysis.diagnostics.divergence import Phase
from qfr.report.budgettables import length_table, rules_table
from qfr.report.diagnosed import Agent, Compared, Diagnosed
from qfr.report.layout import cell_name, signed
from qfr.report.transcripts import Parting
from qfr.report.views import Entry, Table
from qfr.stats.association import Area
from qfr.stats.intervals import Estimate


def process_tables(found: Diagnosed) -> tuple[Table, ...]:
    """Return every table of the diagnostics that has rows."""
    tables = (
        rules_table(found.agents),
        _rates(found.agents),
        _amplified(found.compared),
        _novelty(found.compared),
        _recovery(found.agents),
        _margins(found.agents),
        _foretold(found.compared),
        length_table(found.agents),
    )
    return tuple(table for table in tables if table.rows)


def parting_table(partings: Iterable[Parting]) -> Table:
    """Where the episodes of two presets part."""
    rows = []
    for one in partings:
        phases = dict(one.by_phase)
        share = f"{one.at_narrowest} of {one.with_token}" if one.with_token else "–"
        rows.append(
            (
                Entry(f"{one.model} {one.prompt} {one.fault}"),
                Entry(f"{one.first} / {one.second}"),
                Entry(f"{one.parted} of {one.paired}"),
                *(Entry(str(phases.get(phase, 0))) for phase in Phase),
                Entry(share),
            )
        )
    head = (
        "Cell",
        "Presets",
        "Episodes that part",
        *(f"{phase}" for phase in Phase),
        "At the narrowest token",
    )
    return Table(
        "First divergence: how many of the episodes that both presets played part at all, and when, seen "
        "from the "
        "injected fault. Last column: parted at the token of the turn with the smallest margin of the "
        "first preset.",
        head,
        tuple(rows),
        headers=2,
    )


def _rates(members: Iterable[Agent]) -> Table:
    rows = [
        (
            Entry(cell_name(one.key)),
            Entry(r.event.replace("_", " ")),
            Entry(f"{r.count} of {r.calls}"),
            _share(r.per_call),
            Entry(f"{r.episodes_with} of {r.episodes}"),
            _share(r.per_episode),
        )
        for one in members
        for r in one.rates
        if r.count
    ]
    return Table(
        "Error channels and behaviours that happened: occurrences of calls, and episodes with at least "
        "one, with "
        "95 % task-bootstrap intervals.",
        ("Cell", "Event", "Calls", "Per call", "Episodes", "Per episode"),
        tuple(rows),
        headers=2,
        title="Rates per call and per episode",
    )


def _amplified(members: Iterable[Compared]) -> Table:
    rows = [
        (
            Entry(cell_name(one.key)),
            Entry(f"against {one.reference}"),
            Entry(a.event.replace("_", " ")),
            Entry(
                f"{a.reference_count} → {a.other_count}", f"of {a.reference_calls} → {a.other_calls} calls"
            ),
            _ratio(a.count_ratio, a.verdict),
            _ratio(a.rate_ratio, a.verdict),
            _shift(a.task_difference),
        )
        for one in members
        for a in one.amplified
        if a.verdict not in (Verdict.neither, Verdict.not_possible)
    ]
    return Table(
        "Amplification against the highest preset over the episodes that both played: ratio of counts, "
        "ratio of "
        "rates per call, and the mean over tasks of the difference in rates (points). 95 % task-bootstrap "
        "intervals. Events that neither preset shows are left out.",
        ("Cell", "Reference", "Event", "Counts", "Count ratio", "Rate ratio", "Difference per task"),
        tuple(rows),
        headers=3,
        title="Amplification against the highest preset",
    )


def _novelty(members: Iterable[Compared]) -> Table:
    rows = []
    for one in members:
        n = one.novelty
        expected = "–" if n.expected_share is None else f"{100 * n.expected_share:.1f} %"
        both = n.correlation_shared.value
        rows.append(
            (
                Entry(cell_name(one.key)),
                Entry(f"against {one.reference}"),
                Entry(f"{n.reference_events} → {n.other_events}"),
                Entry(f"{n.reference_signatures} → {n.other_signatures}", f"{n.shared_signatures} shared"),
                Entry(_number(n.correlation.value), f"shared ones {_number(both)}"),
                _share(n.novel_share, f"{n.novel_occurrences} of {n.other_occurrences}, once per episode"),
                Entry(expected, n.reason or f"{n.singletons} in one task only"),
            )
        )
    kept = tuple(row for row, one in zip(rows, members, strict=True) if one.novelty.other_events)
    return Table(
        "Does the lower preset fail in new ways? Failed calls by signature (channel, tool, argument names): "
        "rank correlation of their counts, share of signatures (once per episode) that the reference never "
        "shows, and the share that the reference itself would show on new tasks (after Good and Turing).",
        ("Cell", "Reference", "Failed calls", "Signatures", "Rank correlation", "Novel", "Expected"),
        kept,
        headers=2,
        title="New ways to fail, or the same ways more often",
    )


def _recovery(members: Iterable[Agent]) -> Table:
    rows = []
    head: tuple[str, ...] = ()
    for one in members:
        for r in one.recovery:
            if r.errors:
                head = tuple(f"within {w.turns} turn{'s' if w.turns > 1 else ''}" for w in r.within)
                follow = ", ".join(f"{f.count} {f.kind}" for f in r.following if f.count)
                rows.append(
                    (
                        Entry(cell_name(one.key)),
                        Entry(r.source.replace("_", " ")),
                        Entry(str(r.errors), f"{r.recovered} ever recovered"),
                        *(_share(w.share) for w in r.within),
                        Entry(_number(r.turns.value), f"tokens {_number(r.tokens_out.value, 0)}"),
                        Entry(follow),
                    )
                )
    return Table(
        "What follows an error. Turns and generated tokens: mean until the next valid call, of recovered "
        "errors.",
        ("Cell", "After", "Errors", *head, "Turns", "The next turn is"),
        tuple(rows),
        headers=2,
        title="What follows an error, and what it costs",
    )


def _margins(members: Iterable[Agent]) -> Table:
    rows = [
        (
            Entry(cell_name(one.key)),
            Entry(str(one.margins.right.n), _quantiles(one.margins.right.quantiles)),
            Entry(str(one.margins.wrong.n), _quantiles(one.margins.wrong.quantiles)),
            _area(one.margins.area),
        )
        for one in members
        if one.margins.right.n + one.margins.wrong.n
    ]
    return Table(
        "Smallest margin per turn in logits: number of turns, median and 5 % to 95 %. Area: the chance "
        "that a wrong "
        "turn has the smaller margin than a right one (0.5 = no relation).",
        ("Cell", "Right turns", "Wrong turns", "Area under the curve"),
        tuple(rows),
        title="Margins of right and wrong turns",
    )


def _foretold(members: Iterable[Compared]) -> Table:
    rows = [
        (
            Entry(cell_name(one.key)),
            Entry(f"from {one.reference}"),
            _area(one.foretold.by_task),
            _area(one.foretold.by_episode),
            Entry(str(one.foretold.uncertified), f"{one.foretold.incomparable} incomparable"),
        )
        for one in members
        if one.foretold.by_task.positives or one.foretold.by_episode.positives
    ]
    return Table(
        "Do the highest preset's narrow margins foretell what the lower one loses? Area under the ROC curve, "
        "positive = lost; 95 % task-bootstrap interval.",
        ("Cell", "Margins", "By task", "By episode", "Lost with the clean pass"),
        tuple(rows),
        headers=2,
        title="Do narrow margins foretell losses?",
    )


def _ratio(found: Estimate, verdict: Verdict) -> Entry:
    if verdict is Verdict.new_channel:
        return Entry("new channel")
    if found.value is None:
        return Entry("–", found.reason or "", True)
    low = "–" if found.low is None else f"{found.low:.2f}"
    high = "∞" if found.high is None else f"{found.high:.2f}"
    return Entry(f"×{found.value:.2f}", f"[{low}, {high}]", not found.reliable)


def _shift(found: Estimate) -> Entry:
    if found.value is None:
        return Entry("–", found.reason or "", True)
    ends = (
        ""
        if found.low is None or found.high is None
        else f"[{signed(100 * found.low)}, {signed(100 * found.high)}]".replace("+", "")
    )
    return Entry(signed(100 * found.value), ends, not found.reliable)


def _share(found: Estimate, small: str = "") -> Entry:
    if found.value is None:
        return Entry("–", found.reason or "", True)
    ends = (
        ""
        if found.low is None or found.high is None
        else f"[{100 * found.low:.0f}, {100 * found.high:.0f}] %"
    )
    return Entry(
        f"{100 * found.value:.1f} %", "\n".join(part for part in (ends, small) if part), not found.reliable
    )


def _area(found: Area) -> Entry:
    one = found.estimate
    n = f"{found.positives} against {found.negatives}"
    if one.value is None:
        return Entry("–", f"{n}: {one.reason or ''}", True)
    ends = "" if one.low is None or one.high is None else f"[{one.low:.2f}, {one.high:.2f}]"
    return Entry(f"{one.value:.2f}", "\n".join(part for part in (ends, n) if part), not one.reliable)


def _quantiles(values: tuple[float, ...]) -> str:
    return f"median {values[2]:.2f} ({values[0]:.2f} to {values[4]:.2f})" if values else ""


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"

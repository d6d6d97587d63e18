"""Tables of success under an error budget (every way of counting, real reruns) and of lengths of episodes."""

from __future__ import annotations

from collections.abc import Iterable

from qfr.report.diagnosed import Agent, Repeated
from qfr.report.layout import cell_name, signed
from qfr.report.views import Entry, Table
from qfr.stats.intervals import Estimate

#: Tasks that one row names.
_MOST_TASKS = 6


def rules_table(agents: Iterable[Agent]) -> Table:
    """S(K) under every counting rule."""
    given = tuple(agents)
    budgets = sorted({p.budget for one in given for p in one.curve.points}, reverse=True)
    rows = []
    for one in given:
        for ruled in one.curves:
            found = {point.budget: point.success for point in ruled.curve.points}
            values = (_percent(found.get(budget)) for budget in budgets)
            rows.append((Entry(cell_name(one.key)), Entry(ruled.rule), *map(Entry, values)))
    return Table(
        "S(K) in % of all tasks by counting rule. Allow K: an episode with at most K failed calls goes on "
        "(as papers word it, and qfr's own budget). Stop at K: the K-th failed call ends it (as tau2-bench "
        "codes it). Injected: the failures that the fault caused count too. Both sides: those of an imported "
        "log's user simulator count too, as in its own budget.",
        ("Cell", "Counting rule", *(f"K = {budget}" for budget in budgets)),
        tuple(rows),
        headers=2,
        title="Success under an error budget, by counting rule",
    )


def rerun_table(repeated: Iterable[Repeated]) -> Table:
    """Recounts beside real reruns."""
    rows = []
    for one in repeated:
        found = one.found
        named = ", ".join(found.differing[:_MOST_TASKS])
        more = len(found.differing) - _MOST_TASKS
        named += f" and {more} more" if more > 0 else ""
        rows.append(
            (
                Entry(cell_name(one.key)),
                Entry(f"K = {found.budget}", f"recounted from {one.wide}"),
                _share(found.recount),
                _share(found.rerun),
                _points(found.difference),
                Entry(str(len(found.differing)), named),
            )
        )
    return Table(
        "Full-pipeline success under a tight error budget: recounted from the log of the wider one, and "
        "really run. Recount minus rerun in points, paired over tasks; 95 % task-bootstrap intervals. "
        "Counting rule: allow K, injected failures not counted. With greedy decoding and a prompt that does "
        "not name the budget both agree task by task; a task that differs was played otherwise.",
        ("Cell", "Budget", "Recount", "Rerun", "Recount − rerun", "Tasks that differ"),
        tuple(rows),
        headers=2,
        title="A real rerun under the tight budget beside its recount",
    )


def length_table(agents: Iterable[Agent]) -> Table:
    """Turns and tokens per episode, by outcome."""
    rows = []
    for one in agents:
        for outcome in dict.fromkeys(length.outcome for length in one.lengths):
            of = {length.measure: length for length in one.lengths if length.outcome == outcome}
            n = max(length.episodes for length in of.values())
            if not n:
                continue
            values = []
            for measure in ("turns", "tokens_in", "tokens_out"):
                digits = 1 if measure == "turns" else 0
                quantiles = of[measure].quantiles
                ends = f"{quantiles[0]:.0f} to {quantiles[-1]:.0f}" if quantiles else ""
                values.append(Entry(_number(of[measure].mean, digits), ends))
            rows.append((Entry(cell_name(one.key)), Entry(outcome), Entry(str(n)), *values))
    return Table(
        "Length of episodes, clean pass and fault episodes together: mean per episode, and below it 5 % to "
        "95 % of the episodes. Tokens read: of segments that the model was sent.",
        ("Cell", "Episodes", "n", "Turns", "Tokens read", "Tokens written"),
        tuple(rows),
        headers=2,
        title="How long episodes are",
    )


def _percent(found: Estimate | None) -> str:
    return "–" if found is None or found.value is None else f"{100 * found.value:.1f}"


def _share(found: Estimate) -> Entry:
    if found.value is None:
        return Entry("–", found.reason or "", True)
    ends = (
        "" if found.low is None or found.high is None else f"[{100 * found.low:.1f}, {100 * found.high:.1f}]"
    )
    return Entry(f"{100 * found.value:.1f} %", f"{ends}\nn {found.n}", not found.reliable)


def _points(found: Estimate) -> Entry:
    if found.value is None:
        return Entry("–", found.reason or "", True)
    low, high = (signed(None if end is None else 100 * end) for end in (found.low, found.high))
    degenerate = "\ndegenerate" if found.degenerate else ""
    return Entry(signed(100 * found.value), f"[{low}, {high}]{degenerate}", not found.reliable)


def _number(found: Estimate, digits: int) -> str:
    return "–" if found.value is None else f"{found.value:,.{digits}f}"

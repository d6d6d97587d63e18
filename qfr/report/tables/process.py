"""Tables of the process diagnostics, of loops and of waste, each a view of rows of the one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qfr.analysis.levels import NOT_STATED
from qfr.analysis.results import Kind, Result
from qfr.analysis.rows import waste_rows
from qfr.analysis.trials import FOREIGN
from qfr.report.content.build import Report
from qfr.report.tables.formats import NONE, number
from qfr.report.tables.specs import (
    CELL,
    Column,
    Entry,
    Line,
    Table,
    across,
    area,
    change,
    count,
    estimate,
    named,
    of,
    pick,
    points,
    rate,
    ratio,
    share,
    table,
)  # fmt: skip

#: Tasks that one row names.
_MOST_TASKS = 6
_NARROWEST = " Last column: parted at the token of the turn with the smallest margin of the first preset."
_POOLED = ", clean pass and fault episodes together"
_EVENT = named("Event", lambda one: one.item.replace("_", " "))
_REFERENCE = named("Reference", lambda one: f"against {one.a}")


def process_tables(results: Sequence[Result]) -> tuple[Table, ...]:
    """Return every table of the diagnostics that has rows."""
    makers = (
        rules_table, _rates, _amplified, _novelty, _recovery, _margins, _foretold, length_table,
    )  # fmt: skip
    return tuple(one for one in (make(results) for make in makers) if one.rows)


def of_kind(results: Iterable[Result], kind: Kind) -> tuple[Result, ...]:
    """Return the rows of one kind."""
    return tuple(one for one in results if one.kind == kind)


def rules_table(results: Sequence[Result]) -> Table:
    """S(K) under every counting rule."""
    rows = of_kind(results, Kind.budget)
    budgets = sorted({int(one.item.removeprefix("K=")) for one in rows}, reverse=True)
    values = (of(f"K = {k}", lambda one: estimate(one, _bare_percent, ""), item=f"K={k}") for k in budgets)
    return table(
        rows,
        lambda one: (one.cells, one.target),
        (CELL, named("Counting rule", lambda one: one.target or ""), *values),
        "S(K) in % of all tasks by counting rule. Allow K: an episode with at most K failed calls goes on "
        "(as papers word it, and qfr's own budget). Stop at K: the K-th failed call ends it (as tau2-bench "
        "codes it)."
        + _where(rows, "injected", " Injected: the failures that the fault caused count too.")
        + _where(
            rows,
            "both sides",
            " Both sides: those of an imported log's user simulator count too, as in its own budget.",
        ),
        title="Success under an error budget, by counting rule",
    )


def _where(rows: Iterable[Result], rule: str, text: str) -> str:
    """A sentence about a counting rule, where one of the rows is counted so."""
    return text if any(rule in (one.target or "") for one in rows) else ""


def rerun_table(results: Sequence[Result]) -> Table:
    """Recounts beside real reruns."""

    def differing(line: Line) -> Entry:
        one = pick(line, target="recount minus rerun") or line[0]
        more = len(one.dropped_a) - _MOST_TASKS
        names = ", ".join(one.dropped_a[:_MOST_TASKS]) + (f" and {more} more" if more > 0 else "")
        return Entry(str(len(one.dropped_a)), names, id=one.id)

    return table(
        of_kind(results, Kind.rerun),
        lambda one: (one.cells, one.item),
        (
            CELL,
            named(
                "Budget",
                lambda one: one.item.split(" from ")[0].replace("=", " = "),
                lambda one: f"recounted from {one.item.split(' from ')[1]}",
            ),
            of("Recount", lambda one: rate(one, f"n {one.n_tasks}"), target="recount"),
            of("Rerun", lambda one: rate(one, f"n {one.n_tasks}"), target="rerun"),
            of("Recount − rerun", points, target="recount minus rerun"),
            Column("Tasks that differ", differing),
        ),
        "Full-pipeline success under a tight error budget: recounted from the log of the wider one, and "
        "really run. Recount minus rerun in points, paired over tasks; 95 % task-bootstrap intervals. "
        "Counting rule: allow K, injected failures not counted. With greedy decoding and a prompt that does "
        "not name the budget both agree task by task; a task that differs was played otherwise.",
        title="A real rerun under the tight budget beside its recount",
    )


def parting_table(results: Sequence[Result]) -> Table:
    """Where the episodes of two presets part."""
    rows = of_kind(results, Kind.divergence)
    ends = {"episodes that part": "Episodes that part", "at the narrowest token": "At the narrowest token"}
    plain = all(one.fault == "none" for one in rows)
    # Without a fault there is no phase around it, and a log without tokens has no narrowest one.
    heads = [
        item
        for item in across(rows, lambda one: one.item)
        if not plain or any(one.count_a for one in rows if one.item == item and one.item != "clean")
    ]
    return table(
        rows,
        lambda one: one.cells,
        (
            named("Cell", _setting),
            named("Presets", lambda one: f"{one.a} / {one.b}"),
            *(of(ends.get(item, item), share if item in ends else count, item=item) for item in heads),
        ),
        "First divergence: how many of the episodes that both presets played part at all"
        + ("." if plain else ", and when, seen from the injected fault.")
        + (_NARROWEST if "at the narrowest token" in heads else ""),
    )


def _setting(one: Result) -> str:
    """Model, prompt and fault, where they say something."""
    names = (one.model, one.prompt, one.fault)
    return " ".join(name for name in names if name and name not in (NOT_STATED, "none"))


def length_table(results: Sequence[Result]) -> Table:
    """Turns and tokens per episode, by outcome."""

    def entry(item: str, digits: int) -> Column:
        def show(line: Line) -> Entry:
            one = pick(line, item=item)
            spread = pick(line, item=f"{item}, 5 % to 95 % of episodes")
            if one is None:
                return Entry("–")
            ends = "" if spread is None else f"{spread.low:.0f} to {spread.high:.0f}"
            ids = one.id if spread is None else f"{one.id} {spread.id}"
            return Entry(number(one.value, digits), ends, id=ids)

        heads = {"turns": "Turns", "tokens_in": "Tokens read", "tokens_out": "Tokens written"}
        return Column(heads[item], show)

    played = {(one.cells, one.target) for one in of_kind(results, Kind.length) if one.of_a}
    logs = all(one.executor == FOREIGN for one in of_kind(results, Kind.length))
    return table(
        [one for one in of_kind(results, Kind.length) if (one.cells, one.target) in played],
        lambda one: (one.cells, one.target),
        (
            CELL,
            named("Episodes", lambda one: one.target or ""),
            of("n", lambda one: Entry(str(one.of_a), id=one.id), item="turns"),
            *(entry(item, digits) for item, digits in (("turns", 1), ("tokens_in", 0), ("tokens_out", 0))),
        ),
        f"Length of episodes{'' if logs else _POOLED}: mean per "
        "episode, and below it 5 % to 95 % of the episodes. "
        "Tokens read: of segments that the model was sent.",
        title="How long episodes are",
    )


def _rates(results: Sequence[Result]) -> Table:
    rows = of_kind(results, Kind.channel)
    # An imported log says what limits a number; what it cannot show stands in one line.
    told = {(one.cells, one.item) for one in rows if one.count_a or one.remarks or one.count_a is None}
    limited = any(one.remarks or one.count_a is None for one in rows)

    def limits(line: Line) -> Entry:
        if line[0].count_a is not None:
            return Entry("; ".join(line[0].remarks), doubtful=True)
        reasons: dict[str, dict[str, None]] = {}
        for one in line:
            reason = (one.reason or "").removeprefix("not observable: ")
            reasons.setdefault(reason, {})[one.item.replace("_", " ")] = None
        text = "; ".join(f"{', '.join(items)}: {reason}" for reason, items in reasons.items())
        return Entry(text, doubtful=True, id=" ".join(one.id for one in line))

    def event(line: Line) -> Entry:
        hidden = line[0].count_a is None
        return Entry("not observable" if hidden else line[0].item.replace("_", " "))

    return table(
        [one for one in rows if (one.cells, one.item) in told],
        lambda one: (one.cells, None if one.count_a is None else one.item),
        (
            CELL,
            Column("Event", event),
            of("Calls", share, target="per call"),
            of("Per call", _bare_rate, target="per call"),
            of("Episodes", share, target="per episode"),
            of("Per episode", _bare_rate, target="per episode"),
            *([Column("What limits it", limits)] if limited else []),
        ),
        "Error channels and behaviours that happened: occurrences of calls, and episodes with at least "
        "one, with 95 % task-bootstrap intervals.",
        title="Rates per call and per episode",
    )


def _amplified(results: Sequence[Result]) -> Table:
    rows = of_kind(results, Kind.amplification)
    return table(
        [one for one in rows if one.verdict not in ("neither", "not possible")],
        lambda one: (one.cells, one.item),
        (
            CELL,
            _REFERENCE,
            _EVENT,
            of(
                "Counts",
                lambda one: change(one, f"of {one.of_a} → {one.of_b} calls"),
                target="count ratio",
            ),
            of("Count ratio", ratio, target="count ratio"),
            of("Rate ratio", ratio, target="rate ratio"),
            of("Difference per task", points, target="difference per task, B minus A"),
        ),
        "Amplification against the highest preset over the episodes that both played: ratio of counts, "
        "ratio of rates per call, and the mean over tasks of the difference in rates (points). 95 % "
        "task-bootstrap intervals. Events that neither preset shows are left out.",
        title="Amplification against the highest preset",
        headers=3,
    )


def _novelty(results: Sequence[Result]) -> Table:
    rows = of_kind(results, Kind.novelty)
    failing = {one.cells for one in rows if one.item == "failed calls" and one.count_b}

    def signatures(line: Line) -> Entry:
        both, shared = pick(line, item="signatures"), pick(line, item="shared signatures")
        if both is None or shared is None:
            return Entry("–")
        return Entry(
            f"{both.count_a} → {both.count_b}", f"{shared.count_a} shared", id=f"{both.id} {shared.id}"
        )

    def correlation(line: Line) -> Entry:
        every = pick(line, item="rank correlation")
        shared = pick(line, item="rank correlation of shared ones")
        if every is None or shared is None:
            return Entry("–")
        ids = f"{every.id} {shared.id}"
        return Entry(number(every.value), f"shared ones {number(shared.value)}", id=ids)

    return table(
        [one for one in rows if one.cells in failing],
        lambda one: one.cells,
        (
            CELL,
            _REFERENCE,
            of("Failed calls", change, item="failed calls"),
            Column("Signatures", signatures),
            Column("Rank correlation", correlation),
            of(
                "Novel",
                lambda one: rate(one, f"{one.count_b} of {one.of_b}, once per episode"),
                item="novel, once per episode",
            ),
            of(
                "Expected",
                lambda one: rate(one, one.reason or f"{one.count_a} in one task only"),
                item="expected on new tasks",
            ),
        ),
        "Does the lower preset fail in new ways? Failed calls by signature (channel, tool, argument names): "
        "rank correlation of their counts, share of signatures (once per episode) that the reference never "
        "shows, and the share that the reference itself would show on new tasks (after Good and Turing).",
        title="New ways to fail, or the same ways more often",
    )


def _recovery(results: Sequence[Result]) -> Table:
    rows = [one for one in of_kind(results, Kind.recovery) if one.of_a]
    within = [target for target in across(rows, lambda one: one.target or "") if target.startswith("within")]

    def errors(one: Result) -> Entry:
        return Entry(str(one.of_a), f"{one.count_a} ever recovered", id=one.id)

    def cost(line: Line) -> Entry:
        turns, tokens = pick(line, target="turns"), pick(line, target="tokens")
        if turns is None or tokens is None:
            return Entry("–")
        ids = f"{turns.id} {tokens.id}"
        return Entry(number(turns.value), f"tokens {number(tokens.value, 0)}", id=ids)

    def following(line: Line) -> Entry:
        found = [one for one in line if (one.target or "").startswith("next ")]
        told = (f"{one.count_a} {(one.target or '').removeprefix('next ')}" for one in found)
        return Entry(", ".join(told), id=" ".join(one.id for one in found))

    return table(
        rows,
        lambda one: (one.cells, one.item),
        (
            CELL,
            named("After", lambda one: one.item.replace("_", " ")),
            of("Errors", errors, target="turns"),
            *(of(f"{name} turn{'' if name == 'within 1' else 's'}", rate, target=name) for name in within),
            Column("Turns", cost),
            Column("The next turn is", following),
        ),
        "What follows an error. Turns and generated tokens: mean until the next valid call, of recovered "
        "errors.",
        title="What follows an error, and what it costs",
    )


def _margins(results: Sequence[Result]) -> Table:
    def spread(one: Result) -> Entry:
        return Entry(str(one.count_a), f"median {one.value:.2f} ({one.low:.2f} to {one.high:.2f})", id=one.id)

    rows = of_kind(results, Kind.margin)
    having = {one.cells for one in rows if one.unit == "logits"}
    return table(
        [one for one in rows if one.cells in having],
        lambda one: one.cells,
        (
            CELL,
            of("Right turns", spread, item="right turns", missing="0"),
            of("Wrong turns", spread, item="wrong turns", missing="0"),
            of("Area under the curve", area, item="wrong below right"),
        ),
        "Smallest margin per turn in logits: number of turns, median and 5 % to 95 %. Area: the chance "
        "that a wrong turn has the smaller margin than a right one (0.5 = no relation).",
        title="Margins of right and wrong turns",
        headers=1,
    )


def _foretold(results: Sequence[Result]) -> Table:
    rows = of_kind(results, Kind.foretold)
    losing = {one.cells for one in rows if one.unit == "area" and one.count_a}
    return table(
        [one for one in rows if one.cells in losing],
        lambda one: one.cells,
        (
            CELL,
            named("Margins", lambda one: f"from {one.a}"),
            of("By task", area, item="by task"),
            of("By episode", area, item="by episode"),
            of(
                "Lost with the clean pass",
                lambda one: Entry(str(one.count_a), f"{one.count_b} incomparable", id=one.id),
                item="with the clean pass",
            ),
        ),
        "Do the highest preset's narrow margins foretell what the lower one loses? Area under the ROC curve, "
        "positive = lost; 95 % task-bootstrap interval.",
        title="Do narrow margins foretell losses?",
    )


def _bare_rate(one: Result) -> Entry:
    """A rate; why a log shows none stands in the column of limits."""
    return Entry(NONE, id=one.id) if one.count_a is None else rate(one)


def _bare_percent(value: float) -> str:
    return f"{100 * value:.1f}"


_ENDINGS = {"out_of_steps": "turns", "out_of_errors": "errors", "out_of_context": "context"}


def waste_table(report: Report) -> Table | None:
    """Loops, forced ends and costs under the headline policy; None without a cell."""
    found = [one for one in report.wastes if one.policy == report.options.policy]
    if not found:
        return None
    uncounted = any(one.stuck is None for one in found)
    hint = " –: not counted in that run; qfr rescore counts it." if uncounted else ""
    rows = (row for one in found for row in waste_rows(one))
    return table(
        rows,
        lambda one: one.cells,
        (
            CELL,
            of("Stuck", _stuck, item="stuck"),
            Column("Forced end", _forced),
            Column("Tokens per solved", lambda line: _per_solved(line, "tokens", 0)),
            Column("Turns per solved", lambda line: _per_solved(line, "turns", 1)),
        ),
        f"Stuck: one call got one answer {report.options.stuck_after} times in a row. Forced end: turns, "
        "failed calls or the context were used up. Both count episodes. Tokens and turns per solved episode: "
        f"all that was generated over the successes, {report.options.policy} scoring; × = the ratio to the "
        "highest preset on the tasks that both played, 95 % task-bootstrap interval." + hint,
        title="Loops and waste",
        headers=1,
    )


def _stuck(one: Result) -> Entry:
    return Entry(NONE if one.count_a is None else f"{one.count_a}/{one.of_a}", id=one.id)


def _forced(line: Line) -> Entry:
    whole = pick(line, item="forced end")
    parts = [one for one in line if one.item in _ENDINGS and one.count_a]
    if whole is None:
        return Entry(NONE)
    small = ", ".join(f"{_ENDINGS[one.item]} {one.count_a}" for one in parts)
    return Entry(f"{whole.count_a}/{whole.of_a}", small, id=" ".join(one.id for one in (whole, *parts)))


def _per_solved(line: Line, measure: str, digits: int) -> Entry:
    spent = pick(line, item=f"{measure} per solved")
    ratio = pick(line, item=f"{measure} per solved, ratio")
    if spent is None:
        return Entry(NONE)
    shown = number(spent.value, digits)
    if ratio is None:
        why = "not counted" if spent.count_a else "no success"
        return Entry(shown, "" if spent.value is not None else why, id=spent.id)
    ids = f"{spent.id} {ratio.id}"
    if ratio.value is None:
        return Entry(shown, ratio.reason or "", True, id=ids)
    ends = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    small = "; ".join(part for part in (f"×{ratio.value:.2f}{ends}, n {ratio.n_tasks}", ratio.reason) if part)
    return Entry(shown, small, ratio.low is None, id=ids)

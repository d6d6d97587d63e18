"""Cells, their episodes and their provenance as tables of plain strings, without markup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from qfr.analysis.cells import CellSummary
from qfr.analysis.levels import NOT_STATED, Axis, order_key
from qfr.analysis.pairing import variant_names
from qfr.analysis.results import Kind, Result
from qfr.analysis.rows import LOST, rate_rows
from qfr.analysis.targets import Target
from qfr.analysis.trials import FOREIGN, planned
from qfr.facts import CellFacts
from qfr.faults import COUNTED
from qfr.records import Policy
from qfr.report.content.build import Report
from qfr.report.content.outcomes import ENDINGS
from qfr.report.layout import shortened, title_of
from qfr.report.tables.formats import NONE, percent
from qfr.report.tables.specs import CELL, Entry, Table, count, named, of, pick, rate, table
from qfr.scope import group

_OWN = (
    "Task-mean recovery on each cell's own clean set [successes/fault episodes] and the Wilson 95 % "
    "interval of the episodes; below: certified tasks and full-pipeline success."
)
_FULL = (
    "Full-pipeline success: mean over all tasks, a task that failed its clean pass counts 0; 95 % "
    "task-bootstrap interval; n = tasks."
)


def recovery_tables(report: Report, policy: str) -> tuple[tuple[str, Table], ...]:
    """Recovery on each cell's own clean set (Hu 2026, table 1), one table per model and setting."""
    return _by_setting(report, policy, _recovery_cell, _OWN)


def _by_setting(
    report: Report, policy: str, entry: Callable[[CellSummary | None], Entry], caption: str
) -> tuple[tuple[str, Table], ...]:
    wanted = [
        one
        for one in report.summaries
        if one.policy == policy and one.family is None and one.key.fault != "none"
    ]
    settings = group(wanted, ("quant", "prompt"), of=lambda one: one.scope)
    titles = [title_of(one.members[0].key, one.label) for one in settings]
    several = len({title.partition(" · ")[2] for title in titles}) > 1
    names = shortened(titles)
    return tuple(
        (names[title] if several else one.members[0].key.model, _grid(one.members, entry, caption))
        for one, title in zip(settings, titles, strict=True)
    )


def _grid(
    members: Sequence[CellSummary], entry: Callable[[CellSummary | None], Entry], caption: str
) -> Table:
    """A row per preset and a column per prompt, two files or texts of one name told apart."""
    quants, prompts = variant_names(members, "quant"), variant_names(members, "prompt")
    cells = {(quant, prompt): one for quant, prompt, one in zip(quants, prompts, members, strict=True)}
    bare = {quant: one.key.quant for quant, one in zip(quants, members, strict=True)}
    rows = sorted(bare, key=lambda name: (order_key(Axis.quant, bare[name]), name))
    columns = sorted(set(prompts), key=lambda name: (order_key(Axis.prompt, name), name))
    return Table(
        caption,
        ("Preset", *columns),
        tuple((Entry(row), *(entry(cells.get((row, column))) for column in columns)) for row in rows),
    )


def full_tables(report: Report, policy: str) -> tuple[tuple[str, Table], ...]:
    """Full-pipeline success of every cell, one table per model and setting."""
    return _by_setting(report, policy, _full_cell, _FULL)


def process_table(results: Iterable[Result], faulted: bool) -> Table:
    """Endings, channels and fault states of clean passes or of fault cells; columns of zeros are left out."""
    rows = [
        one
        for one in results
        if one.kind == Kind.counted and one.item not in (*COUNTED, LOST) and (one.fault != "none") is faulted
    ]
    heads = dict.fromkeys((one.item, one.policy) for one in rows)
    kept = [head for head in heads if any(one.count_a for one in rows if (one.item, one.policy) == head)]
    left_out = [_head(*head) for head in heads if head not in kept]
    if all(one.executor == FOREIGN for one in rows):
        # Both policies say the same of an imported log, and its errors have tables of their own.
        kept = [head for head in kept if head[1] != str(Policy.strict)]
        columns = (of(_head(item, None), count, item=item, policy=policy) for item, policy in kept)
        caption = "How the simulations ended. Counts."
        return table(rows, lambda one: one.cells, (CELL, *columns), caption, headers=1)
    caption = "How episodes ended and how calls failed (the injected fault is not the agent's error). Counts."
    if left_out:
        caption += f" Zero everywhere: {', '.join(left_out)}."
    columns = (of(_head(item, policy), count, item=item, policy=policy) for item, policy in kept)
    return table(rows, lambda one: one.cells, (CELL, *columns), caption, headers=1)


def _head(item: str, policy: str | None) -> str:
    return ", ".join(part for part in (ENDINGS.get(item, item).replace("_", " "), policy) if part)


def counted_table(results: Iterable[Result]) -> Table | None:
    """What the kinds of fault are counted by besides success; None where they are counted by nothing."""
    rows = [one for one in results if one.kind == Kind.counted and one.item in COUNTED]
    if not rows:
        return None
    names = [name for name in COUNTED if any(one.item == name for one in rows)]
    return table(
        rows,
        lambda one: (one.cells, one.policy),
        (
            CELL,
            named("Policy", lambda one: one.policy or ""),
            of("Episodes", lambda one: Entry(str(one.of_a), id=one.id)),
            *(of(COUNTED[name], count, item=name) for name in names),
        ),
        "What each kind of fault is counted by, besides success. Under a fault without end only a report "
        "after enough calls of the tool counts.",
    )


def dropped_table(report: Report) -> Table:
    """Certified tasks that do not enter a matched contrast, and why."""
    rows = []
    for c in report.contrasts:
        if c.policy != report.options.policy.value or c.family is not None or c.target != Target.matched:
            continue
        if not c.dropped_a and not c.dropped_b:
            continue
        where = " ".join(name for name in (c.model, c.quant, c.prompt, c.fault) if name)
        lost = (*c.undelivered_a, *c.undelivered_b)
        rows.append(
            (
                Entry(where),
                Entry(f"{c.a} − {c.b}"),
                Entry(f"{len(c.dropped_a)} of {c.certified_a}", " ".join(c.dropped_a), id=c.id),
                Entry(f"{len(c.dropped_b)} of {c.certified_b}", " ".join(c.dropped_b), id=c.id),
                Entry(str(len(lost)), " ".join(lost), id=c.id),
            )
        )
    head = ("Cell", "A − B", "Only A has it", "Only B has it", "No fault delivered")
    return Table(
        "Certified tasks that do not enter the matched contrast, because the other side did not certify "
        "them or because no fault of theirs fired. They count in the full pipeline.",
        head,
        tuple(rows),
        headers=2,
    )


def provenance_tables(facts: tuple[CellFacts, ...]) -> tuple[Table, ...]:
    """Model files, builds and prompts that the cells ran with."""
    files = dict.fromkeys(
        (
            f.model + (" (reference agent)" if f.reference_agent else ""),
            f.quant,
            f.model_sha256[:16],
            f"{f.model_bytes / 1e6:,.1f}",
            f.model_source + (f" {f.model_revision[:12]}" if f.model_revision else ""),
            f.imatrix or "none",
            f.tensor_types,
            f.template_sha256[:12],
        )
        for f in facts
    )
    head = ("Model", "Preset", "SHA-256", "MB", "Source", "Importance matrix", "Tensor types", "Template")
    builds = dict.fromkeys(
        (
            f.engine,
            f"{f.llama_commit[:12]} ({f.llama_commit_source})",
            f.library_version,
            f.library_sha256[:12],
            f.device,
            f"{f.n_threads}/{f.n_threads_batch}",
            f"{f.n_batch}",
            _forks(f),
            f.git_commit[:12] + (" with changes" if f.git_dirty else ""),
            f.qfr_version,
            f.host,
        )
        for f in facts
    )
    build_head = (
        "Engine", "llama.cpp commit", "llama-cpp-python", "Library SHA-256", "Device", "Threads", "Batch",
        "Forks", "Code", "qfr", "Host",
    )  # fmt: skip
    inputs = dict.fromkeys(
        (
            f.prompt,
            f.prompt_sha256[:16],
            f.suite,
            f.suite_sha256[:16],
            f.executor,
            f"{f.step_budget}",
            f"{f.error_budget}",
        )
        for f in facts
    )
    input_head = ("Prompt", "SHA-256", "Suite", "SHA-256", "Executor", "Step budget", "Error budget")
    return (
        _plain("Model files.", head, files),
        _plain("Builds and code.", build_head, builds),
        _plain("Prompts, suites and budgets.", input_head, inputs),
    )


def _forks(facts: CellFacts) -> str:
    """How forks were reached, by what trial, and how many episodes shared a batch."""
    told = facts.exactness or ("rewound" if facts.rewind else "evaluated afresh")
    return told + (f"; {facts.streams} streams" if facts.streams > 1 else "")


def cell_ids(facts: tuple[CellFacts, ...]) -> Table:
    """Ids of every cell."""
    rows = dict.fromkeys((_named(f), f.design_id, f.cell_id, f.clean_id, f.sweep) for f in facts)
    return _plain("Ids of every cell.", ("Cell", "Design", "Ran as", "Clean pass", "Sweep"), rows)


def _named(facts: CellFacts) -> str:
    """A cell's name; of an imported log its file's too, since it has neither prompt nor fault."""
    if facts.executor != FOREIGN:
        return facts.name
    names = (name for name in (facts.model, facts.quant, facts.suite) if name != NOT_STATED)
    return f"{' '.join(names)} ({planned(facts).source})"


def _plain(caption: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table(caption, head, tuple(tuple(Entry(text) for text in row) for row in rows))


def _recovery_cell(s: CellSummary | None) -> Entry:
    if s is None:
        return Entry("not run", "", True)
    rows = tuple(rate_rows(s))
    own, full = (pick(rows, target=target, item="") for target in (Target.own, Target.full))
    wilson = pick(rows, item="episodes")
    if own is None or full is None or wilson is None:
        return Entry(NONE)
    ids = " ".join(one.id for one in (own, wilson, full))
    brief = f"{s.n_certified} of {s.n_tasks} clean"
    tail = f"{s.n_certified} of {s.n_tasks} certified\nfull {percent(full.value)}"
    if own.value is None:
        return Entry(NONE, tail, True, brief, ids)
    ends = f"Wilson {percent(wilson.low)} to {percent(wilson.high)}\n"
    return Entry(f"{percent(own.value)} [{own.count_a}/{own.of_a}]", ends + tail, s.few, brief, ids)


def _full_cell(s: CellSummary | None) -> Entry:
    if s is None:
        return Entry("not run", "", True)
    full = pick(rate_rows(s), target=Target.full, item="")
    return Entry(NONE) if full is None else rate(full, f"n {s.n_tasks}")

"""Cells, their episodes and their provenance as tables of plain strings, without markup."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qfr.analysis.cells import CellSummary
from qfr.analysis.levels import Axis, order_key
from qfr.analysis.process import Process
from qfr.analysis.targets import CellKey, Target
from qfr.facts import CellFacts
from qfr.faults import COUNTED
from qfr.report.build import Report
from qfr.report.layout import cell_name, shortened
from qfr.report.outcomes import ENDINGS
from qfr.report.views import Entry, Table

_OWN = (
    "Task-mean recovery on each cell's own clean set [successes/fault episodes] and the Wilson 95 % "
    "interval of "
    "the episodes; below: certified tasks and full-pipeline success."
)
_FULL = (
    "Full-pipeline success: mean over all tasks, a task that failed its clean pass counts 0; 95 % "
    "task-bootstrap "
    "interval; n = tasks."
)


def recovery_tables(report: Report, policy: str) -> tuple[tuple[str, Table], ...]:
    """Recovery on each cell's own clean set (Hu 2026, table 1), one table per model and setting."""
    return _by_setting(report, policy, _recovery_cell, _OWN)


def _by_setting(
    report: Report, policy: str, entry: Callable[[CellSummary | None], Entry], caption: str
) -> tuple[tuple[str, Table], ...]:
    found: dict[str, list[CellSummary]] = {}
    for summary in report.summaries:
        if summary.policy == policy and summary.family is None and summary.key.fault != "none":
            found.setdefault(setting(summary.key), []).append(summary)
    several = len({_without_model(s.key) for members in found.values() for s in members}) > 1
    tables = []
    names = shortened(found)
    for title, members in found.items():
        prompts = sorted({s.key.prompt for s in members}, key=lambda p: order_key(Axis.prompt, p))
        quants = sorted({s.key.quant for s in members}, key=lambda q: order_key(Axis.quant, q))
        rows = tuple(
            (Entry(label), *(entry(found) for found in line))
            for quant in quants
            for label, line in _lines(quant, prompts, members)
        )
        name = names[title] if several else members[0].key.model
        tables.append((name, Table(caption, ("Preset", *prompts), rows)))
    return tuple(tables)


def _lines(
    quant: str, prompts: list[str], members: list[CellSummary]
) -> Iterable[tuple[str, list[CellSummary | None]]]:
    """The row of a preset; where cells share all names (two files of one preset), one row after another."""
    columns = [[s for s in members if (s.key.quant, s.key.prompt) == (quant, prompt)] for prompt in prompts]
    for at in range(max(map(len, columns))):
        yield (
            quant if at == 0 else f"{quant} ({at + 1})",
            [column[at] if at < len(column) else None for column in columns],
        )


def full_tables(report: Report, policy: str) -> tuple[tuple[str, Table], ...]:
    """Full-pipeline success of every cell, one table per model and setting."""
    return _by_setting(report, policy, _full_cell, _FULL)


def setting(key: CellKey) -> str:
    """Name a cell's model and everything but preset and prompt."""
    return " · ".join(part for part in (key.model, *_without_model(key)) if part)


def _without_model(key: CellKey) -> tuple[str, ...]:
    gate = "" if key.gate == "certified" else f"gate {key.gate}"
    trial = f"trial {key.trial}" if key.trial else ""
    return (key.fault, key.executor, key.suite, gate, trial, key.context)


def process_table(processes: Iterable[Process], faulted: bool) -> Table:
    """Endings, channels and fault states of clean passes or of fault cells; columns of zeros are left out."""
    members = [one for one in processes if (one.key.fault != "none") is faulted]
    columns: dict[str, list[int]] = {}
    for one in members:
        by_policy = {a.policy: a for a in one.answers}
        row = {"Episodes": one.episodes}
        row |= {ENDINGS.get(c.name, c.name): c.count for c in one.endings}
        row |= {c.name: c.count for c in one.faults}
        row |= {
            "right, tolerant": by_policy["tolerant"].successes,
            "right, strict": by_policy["strict"].successes,
        }
        row |= {"right by expression": by_policy["tolerant"].expressions}
        row |= {"turns": one.turns, "turns not strict": one.turns_not_strict, "failed calls": one.errors}
        row |= {f"{c.name.replace('_', ' ')} errors": c.count for c in one.channels}
        for name, count in row.items():
            columns.setdefault(name, []).append(count)
    kept = {name: counts for name, counts in columns.items() if any(counts)}
    left_out = [name for name in columns if name not in kept]
    caption = "How episodes ended and how calls failed (the injected fault is not the agent's error). Counts."
    if left_out:
        caption += f" Zero everywhere: {', '.join(left_out)}."
    rows = tuple(
        (Entry(cell_name(one.key)), *(Entry(str(counts[at])) for counts in kept.values()))
        for at, one in enumerate(members)
    )
    return Table(caption, ("Cell", *kept), rows)


def counted_table(processes: Iterable[Process]) -> Table | None:
    """What the kinds of fault are counted by besides success; None where they are counted by nothing."""
    rows = [
        (one, a, {count.name: count.count for count in a.counted}) for one in processes for a in one.answers
    ]
    names = [name for name in COUNTED if any(name in counts for *_, counts in rows)]
    if not names:
        return None
    return Table(
        "What each kind of fault is counted by, besides success. Under a fault without end only a report "
        "after enough calls of the tool counts.",
        ("Cell", "Policy", "Episodes", *(COUNTED[name] for name in names)),
        tuple(
            (
                Entry(cell_name(one.key)),
                Entry(answers.policy),
                Entry(str(one.episodes)),
                *(Entry(str(counts.get(name, "–"))) for name in names),
            )
            for one, answers, counts in rows
            if counts
        ),
        2,
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
                Entry(f"{len(c.dropped_a)} of {c.certified_a}", " ".join(c.dropped_a)),
                Entry(f"{len(c.dropped_b)} of {c.certified_b}", " ".join(c.dropped_b)),
                Entry(str(len(lost)), " ".join(lost)),
            )
        )
    head = ("Cell", "A − B", "Only A has it", "Only B has it", "No fault delivered")
    return Table(
        "Certified tasks that do not enter the matched contrast, because the other side did not certify "
        "them or "
        "because no fault of theirs fired. They count in the full pipeline.",
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
    rows = dict.fromkeys((f.name, f.design_id, f.cell_id, f.clean_id, f.sweep) for f in facts)
    return _plain("Ids of every cell.", ("Cell", "Design", "Ran as", "Clean pass", "Sweep"), rows)


def _plain(caption: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table(caption, head, tuple(tuple(Entry(text) for text in row) for row in rows))


def _recovery_cell(s: CellSummary | None) -> Entry:
    if s is None:
        return Entry("not run", "", True)
    brief = f"{s.n_certified} of {s.n_tasks} clean"
    tail = f"{s.n_certified} of {s.n_tasks} certified\nfull {_percent(s.full.value)}"
    if s.own.value is None:
        return Entry("–", tail, True, brief)
    wilson = f"Wilson {_percent(s.episode_rate.low)} to {_percent(s.episode_rate.high)}\n"
    return Entry(f"{_percent(s.own.value)} [{s.successes}/{s.episodes}]", wilson + tail, s.few, brief)


def _full_cell(s: CellSummary | None) -> Entry:
    if s is None:
        return Entry("not run", "", True)
    ends = "" if s.full.low is None else f"[{_percent(s.full.low)}, {_percent(s.full.high)}]\n"
    return Entry(_percent(s.full.value), f"{ends}n {s.n_tasks}", not s.full.reliable)


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.1f} %"

"""The answer to "which preset do I deploy?": presets by prompt, with the gate's verdict in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qfr.analysis.contrast.decomposition import POINTS
from qfr.analysis.contrast.ranking import Ranked
from qfr.analysis.contrast.ranking import Ranking as Ranks
from qfr.analysis.results import Kind, Result
from qfr.analysis.rows import rank_rows
from qfr.faults import FAULTS
from qfr.records import FaultKind
from qfr.report.content.build import Report
from qfr.report.layout import shortened
from qfr.report.tables.formats import NONE, listed, megabytes, number, percent, percents
from qfr.report.tables.specs import Entry, Table, pick

#: Under which conditions the statements of a page hold (docs/decisions.md).
ONE_LOOK = (
    "Each verdict holds for a prompt, target, policy and suite size that were chosen beforehand, and for one "
    "look at the results."
)


@dataclass(frozen=True)
class Ranking:
    """One model under one setting."""

    title: str
    agent: bool
    advice: str
    # What may be deployed, in one or two sentences.
    rows: str
    # Ids of the rows of results that the sentences state, parted by spaces.
    more: tuple[str, ...]
    # What else a reader should take home: the prompt's own effect, missing cells.
    levels: Table
    # Full-pipeline success of every preset under every prompt; no rows where there is one prompt.
    table: Table


def rankings(report: Report) -> tuple[Ranking, ...]:
    """Rank the presets of every model and setting under the headline policy."""
    mine = [one for one in report.ranks if one.policy == report.options.policy.value]
    agents = set(report.reference_agents)
    titles = [_title(one) for one in mine]
    names = shortened(titles)
    return tuple(
        Ranking(
            title=names[title],
            agent=one.key.model in agents,
            advice=advice(one),
            rows=" ".join(found.id for found in rank_rows(one)),
            more=(*_tried(one), *_effect(one), *_missing(one)),
            levels=_levels(one),
            table=_table(report, one),
        )
        for one, title in zip(mine, titles, strict=True)
    )


def advice(ranks: Ranks) -> str:
    """Say which preset is shown, under every prompt or prompt by prompt."""
    reference, margin = ranks.reference, f"{ranks.margin:g} points"
    others = [one for one in ranks.presets if one.name != reference]
    if reference is None:
        return "No verdict: the presets' names say no precision, so none is the reference."
    if not others:
        return f"Only {reference} was run, so there is nothing to choose between."
    best = ranks.everywhere
    several = len(ranks.prompts) > 1
    where = f" under every prompt ({', '.join(ranks.prompts)})" if several else f" under {ranks.prompts[0]}"
    if best is not None:
        size = f" ({megabytes(best.bytes)} MB)" if best.bytes else ""
        labels = dict.fromkeys(there.label for there in best.prompts)
        return (
            f"Use {best.name}{size}: shown to be not worse than {reference} by more than {margin}{where} "
            f"({', '.join(labels)})."
        )
    by_prompt = [(prompt, ranks.smallest(prompt)) for prompt in ranks.prompts]
    shown = [f"{prompt}: {one.name}" for prompt, one in by_prompt if one is not None]
    none = [prompt for prompt, one in by_prompt if one is None]
    worse = ranks.worse_everywhere
    if not shown:
        where = where.replace("under every prompt", "under any prompt")
        text = f"No preset is shown to be as good as {reference} within {margin}{where}"
        if worse:
            text += f"; {listed(worse)} {'is' if len(worse) == 1 else 'are'} worse by more than that"
        open_ones = len(worse) < len(others)
        return f"{text}. {_needed(ranks)}".rstrip() if open_ones else f"{text}."
    text = f"No preset is shown to be not worse than {reference} by more than {margin} under every prompt. "
    text += f"By prompt: {'; '.join(shown)}"
    return text + (f"; none under {listed(none)}." if none else ".")


def _needed(ranks: Ranks) -> str:
    """What would settle it: the tasks that the verdicts ask for."""
    wanted = [
        plan.n
        for one in ranks.presets
        for there in one.prompts
        if there.step is not None and there.step.decision is not None
        for _, plan in there.step.decision.plans[:1]
        if plan.n is not None
    ]
    if not wanted:
        return ""
    low, high = min(wanted), max(wanted)
    count = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"About {count} tasks would show it where there is no true difference."


def _tried(ranks: Ranks) -> Iterable[str]:
    """What was injected into what, in words."""
    tasks = {one.tasks // len(ranks.shared) for one in ranks.presets if ranks.shared}
    fault = FAULTS.get(FaultKind(ranks.key.fault))
    if len(tasks) == 1 and fault is not None:
        yield f"Tried on {tasks.pop()} tasks ({ranks.key.suite}); {ranks.key.fault}: {fault.sentence}."


def _effect(ranks: Ranks) -> Iterable[str]:
    found = ranks.effect
    if found is None:
        return
    best, worst = found.best, found.worst
    gap = POINTS * (best.rate - worst.rate)
    if gap == 0:
        yield f"The prompt makes no difference: every preset reaches the same under {listed(ranks.prompts)}."
        return
    yield (
        f"The prompt alone moves {found.preset} by {gap:.1f} points: {percent(worst.rate)} under "
        f"{worst.prompt}, {percent(best.rate)} under {best.prompt}."
    )


def _missing(ranks: Ranks) -> Iterable[str]:
    if ranks.missing:
        shared = (
            f"ranked on {', '.join(ranks.shared)} alone" if ranks.shared else "no prompt is shared by all"
        )
        names = ", ".join(ranks.missing[:8]) + (" …" if len(ranks.missing) > 8 else "")
        yield f"Not finished: {names}; averages are {shared}."


def _table(report: Report, ranks: Ranks) -> Table:
    several = len(ranks.prompts) > 1
    rows = tuple(rank_rows(ranks))
    costs = [one for one in report.results if one.kind == Kind.cost]
    lines = []
    for place, one in enumerate(ranks.presets, 1):
        mine = [found for found in rows if found.a == one.name]
        spent = [found for found in costs if found.cells == one.cells and found.a == one.name]
        average = mine[0]
        ends = percents(average.bayes_low, average.bayes_high)
        row = [
            Entry(f"{place}. {one.name}" if ranks.shared else one.name),
            Entry(percent(average.value), ends, id=average.id),
            Entry(_verdicts(ranks, one), id=" ".join(found.id for found in mine[1:])),
            *(_cost(spent, item) for item in ("file", "peak memory")),
            _speed(spent),
            Entry(f"{average.certified_a} of {average.n_tasks_a}", id=average.id),
        ]
        lines.append(tuple(row))
    averaged = f", averaged over {', '.join(ranks.shared)}" if several and ranks.shared else ""
    caption = (
        f"Presets by full-pipeline success ({ranks.policy} scoring{averaged}), 95 % Bayesian bootstrap "
        f"interval over tasks. Verdicts are against {ranks.reference}, by prompt, margin {ranks.margin:g} "
        "points; nothing rests on the average."
    )
    head = ["Preset", "Full pipeline", "Verdict", "File, MB", "Peak memory, MB", "Tokens/s", "Certified"]
    return Table(caption, tuple(head), tuple(lines))


def _levels(ranks: Ranks) -> Table:
    """The levels behind every difference: floors and ceilings show here."""
    caption = f"Full-pipeline success by prompt ({ranks.policy} scoring)."
    if len(ranks.prompts) < 2:
        return Table(caption, (), ())
    rows = list(rank_rows(ranks))
    lines = []
    for one in ranks.presets:
        found = {row.prompt: row for row in rows if row.a == one.name and row.prompt}
        lines.append((Entry(one.name), *(_level(found.get(prompt)) for prompt in ranks.prompts)))
    return Table(caption, ("Full pipeline", *ranks.prompts), tuple(lines))


def _level(row: Result | None) -> Entry:
    return Entry(NONE) if row is None else Entry(percent(row.value), id=row.id, share=row.value)


def _cost(spent: Iterable[Result], item: str) -> Entry:
    found = pick(spent, item=item)
    return Entry(NONE) if found is None else Entry(megabytes(found.value) or NONE, id=found.id)


def _speed(spent: Iterable[Result]) -> Entry:
    found = pick(spent, item="decoding speed")
    if found is None:
        return Entry(NONE)
    low, high = number(found.low, 0), number(found.high, 0)
    return Entry(number(found.value, 0), f"{low} to {high}" if low != high else "", id=found.id)


def _verdicts(ranks: Ranks, one: Ranked) -> str:
    """Each verdict with the prompts that it holds under."""
    if one.name == ranks.reference:
        return "the yardstick"
    prompts: dict[str, list[str]] = {}
    for there in one.prompts:
        prompts.setdefault(there.label, []).append(there.prompt)
    if len(prompts) == 1 and len(ranks.prompts) == len(one.prompts):
        return next(iter(prompts))
    return "; ".join(f"{', '.join(names)}: {label}" for label, names in prompts.items())


def _title(ranks: Ranks) -> str:
    key = ranks.key
    gate = "" if key.gate == "certified" else f"gate {key.gate}"
    context = ranks.label or key.context
    parts = (key.model, key.fault, key.executor, key.suite, gate if "gate" not in context else "", context)
    return " · ".join(part for part in parts if part)

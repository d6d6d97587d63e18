"""Warnings: what a reader must know before believing a figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from qfr.analysis.cells import FEWEST_CERTIFIED
from qfr.analysis.contrast.groups import not_run
from qfr.analysis.trials import FOREIGN
from qfr.registration.status import Standing
from qfr.report.content.build import Report
from qfr.report.layout import PANELS, TITLES, cell_name
from qfr.report.tables.imported import limits

#: Names listed in one warning; the tables and files hold all of them.
_MOST_NAMES = 12


@dataclass(frozen=True)
class Notice:
    """One warning."""

    title: str
    text: str
    items: tuple[str, ...] = ()


def notices(report: Report) -> tuple[Notice, ...]:
    """Return all warnings, the gravest first."""
    found = (
        *_gaps(report),
        *_certified(report),
        *_undelivered(report),
        *_limits(report),
        *_intervals(report),
        *_asked(report),
        *_apart(report),
    )
    return (*_agents(report), *found, *_provenance(report))


def _agents(report: Report) -> Iterator[Notice]:
    if report.reference_agents:
        yield Notice(
            "Reference agents",
            "These are small models made to be sensitive to quantization. "
            "Nothing here is evidence about any other model.",
            report.reference_agents,
        )


def _gaps(report: Report) -> Iterator[Notice]:
    gaps = report.gaps
    if gaps.alarms:
        yield Notice(
            "Not deterministic", "Finished runs of one cell disagree; the newest is shown.", gaps.alarms
        )
    yield from _registered(report)
    if gaps.failed:
        yield Notice("Failed or unfinished cells", "They are left out, never counted as zero.", gaps.failed)
    if gaps.missing:
        yield Notice("Missing cells", "Planned, without a finished run.", clipped(gaps.missing))
    if report.joined.orphans:
        yield Notice(
            "Clean pass missing", "Fault cells without their clean pass are left out.", report.joined.orphans
        )
    if report.joined.doubled:
        yield Notice("Cells found twice", "The first of each is shown.", report.joined.doubled)
    if gaps.notes:
        yield Notice("Notes", "", gaps.notes)


def _registered(report: Report) -> Iterator[Notice]:
    lost = report.material.registrations.lost
    if lost:
        yield Notice(
            "Registrations that cannot be read",
            "Cells ran under them; what was planned cannot be told, so their contrasts count as exploratory.",
            lost,
        )
    for one in report.followed:
        n = one.counts
        if one.missing:
            yield Notice(
                "Missing planned cells", f"Frozen in {one.frozen.id}, not run.", clipped(one.missing)
            )
        if n[Standing.deviated] or n[Standing.exploratory]:
            yield Notice(
                "Not as planned",
                f"{one.frozen.id}: {n[Standing.planned]} estimates as planned, {n[Standing.deviated]} "
                f"deviated, {n[Standing.exploratory]} exploratory; the section on what was planned says why.",
            )


def _certified(report: Report) -> Iterator[Notice]:
    few: dict[str, list[str]] = defaultdict(list)
    for summary in report.summaries:
        if summary.few and summary.key.executor != FOREIGN:
            told = f"{summary.policy} {summary.n_certified} of {summary.n_tasks}"
            few[summary.key.name].append(told)
    if few:
        yield Notice(
            f"Fewer than {FEWEST_CERTIFIED} certified tasks",
            "Recovery on so few tasks says little; such cells are shown, not filtered.",
            clipped(tuple(f"{name}: {', '.join(told)}" for name, told in few.items())),
        )


def _undelivered(report: Report) -> Iterator[Notice]:
    yield from _excluded(report)
    lost = [s for s in report.summaries if s.family is None and s.undelivered and s.key.executor != FOREIGN]
    if lost:
        items = []
        for s in lost:
            text = f"{s.key.name} ({s.policy}): {s.undelivered} of {s.scheduled} faults never fired"
            if s.undelivered_tasks:
                text += f", on {len(s.undelivered_tasks)} tasks none did"
            if s.full_bounds is not None:
                low, high = s.full_bounds.low, s.full_bounds.high
                text += f"; full pipeline between {low:.1f} % and {high:.1f} % whatever they had done"
            items.append(text)
        yield Notice(
            "Faults that never fired",
            "The episode ended or went another way before the scheduled call. They leave the denominator; "
            "the bounds count all of them as failures, and as successes.",
            clipped(tuple(items)),
        )


def _excluded(report: Report) -> Iterator[Notice]:
    """Simulations of imported logs that are in no rate; both policies say the same of them."""
    policy = report.options.policy.value
    lost = [
        s
        for s in report.summaries
        if s.key.executor == FOREIGN and s.family is None and s.undelivered and s.policy == policy
    ]
    if lost:
        items = []
        for s in lost:
            text = f"{cell_name(s.key)}: {s.undelivered} of {s.scheduled}"
            if s.own_bounds is not None:
                text += f"; success between {s.own_bounds.low:.1f} % and {s.own_bounds.high:.1f} %"
            items.append(text)
        yield Notice(
            "Simulations that are in no rate",
            "Imported logs do not score or do not hold them; the bounds count all of them as failures, and "
            "as successes.",
            clipped(tuple(items)),
        )


def _limits(report: Report) -> Iterator[Notice]:
    if items := limits(report):
        yield Notice("What limits the numbers of imported logs", "", items)


def _intervals(report: Report) -> Iterator[Notice]:
    whole = [c for c in report.contrasts if c.family is None and c.target in PANELS]
    flat = [c for c in whole if c.degenerate]
    doubtful = [c for c in whole if c.points is not None and c.low is not None and not c.reliable]
    if doubtful:
        kinds: dict[str, int] = defaultdict(int)
        for contrast in doubtful:
            kinds[
                f"{TITLES[next(t for t in PANELS if t == contrast.target)].lower()}, {contrast.policy}"
            ] += 1
        yield Notice(
            "Intervals that are too short",
            f"{len(doubtful)} of {len(whole)} intervals rest on few tasks or on tasks that nearly all share "
            "one value; their real coverage is below 95 %. They are drawn with open marks. "
            + (
                f"{len(flat)} of them are degenerate: the resampled value does not vary at all."
                if flat
                else ""
            ),
            tuple(f"{kind}: {count}" for kind, count in kinds.items()),
        )


def _asked(report: Report) -> Iterator[Notice]:
    """What was declared or asked for and is not there."""
    unmatched = tuple(text for family in report.families for text in family.unmatched)
    if unmatched:
        yield Notice(
            "Declared contrasts that are not here",
            "These selectors of the declared family take in no contrast: misspelt, or their cells were not "
            "run. The adjusted values hold for the others alone.",
            unmatched,
        )
    lost = not_run(report.joined.tables, report.options.groups)
    if lost:
        text = "A preset of theirs was not run, or is several files."
        yield Notice("Groups that are not contrasted", text, lost)


def _apart(report: Report) -> Iterator[Notice]:
    if report.apart:
        items = tuple(dict.fromkeys(f"{one.a} / {one.b}: {one.reason}" for one in report.apart))
        yield Notice(
            "Kept apart", "Cells that are neither pooled nor contrasted, and what differs.", clipped(items)
        )
    remarks = tuple(dict.fromkeys(f"{c.a} − {c.b}: {text}" for c in report.contrasts for text in c.remarks))
    if remarks:
        yield Notice("Different treatments", "", remarks)


def _provenance(report: Report) -> Iterator[Notice]:
    again = tuple(
        dict.fromkeys(f"{f.model} {f.quant}" for f in report.facts if f.model_source == "requantized")
    )
    if again:
        yield Notice(
            "Requantized files",
            "Made from a file that was itself quantized; the loss is larger than that of the preset.",
            again,
        )
    afresh = [f for f in report.facts if not f.rewind and f.exactness]
    if afresh:
        yield Notice(
            "Evaluated afresh",
            "Every episode of these cells was evaluated from its start: their forks are not bit-equal.",
            clipped(tuple(dict.fromkeys(f"{f.model} {f.quant}: {f.exactness}" for f in afresh))),
        )
    dirty = tuple(dict.fromkeys(f.git_commit[:12] for f in report.facts if f.git_dirty))
    if dirty:
        yield Notice("Uncommitted code", "Cells ran from a working tree with changes.", dirty)
    spelled = [p for p in report.processes if p.control_texts]
    if spelled:
        yield Notice(
            "Control tokens spelled out",
            "Texts that spell a control token of the model were sent and kept as plain text.",
            clipped(tuple(f"{p.key.name}: {p.control_texts} episodes" for p in spelled)),
        )


def clipped(items: tuple[str, ...], most: int = _MOST_NAMES) -> tuple[str, ...]:
    """Return at most so many items, the last one saying how many were left out."""
    if len(items) <= most:
        return items
    return (*items[:most], f"… and {len(items) - most} more")

"""Tables of what was planned, of plain strings, without markup."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from qfr.analysis.results import Contrast
from qfr.registration.record import PlannedContrast
from qfr.registration.status import Standing, Stood
from qfr.report.content.registration_status import Followed
from qfr.report.tables.specs import Entry, Table

#: Reasons of one row that the page shows; the files hold all.
_MOST_REASONS = 4


def standing_table(one: Followed, contrasts: Sequence[Contrast]) -> Table:
    """Every contrast over all tasks: planned, deviated or exploratory, and why; then the absent ones."""
    rows: dict[tuple[str, str, Stood], dict[str, None]] = defaultdict(dict)
    for contrast, stood in zip(contrasts, one.stood, strict=True):
        if contrast.family is None:
            rows[_where(contrast), f"{contrast.a} − {contrast.b}", stood][
                f"{contrast.target} {contrast.policy}"
            ] = None
    every = dict.fromkeys(target for targets in rows.values() for target in targets)
    shown = [
        (
            Entry(where),
            Entry(pair),
            Entry(str(stood.standing), "", stood.standing is not Standing.planned),
            Entry("all" if len(targets) == len(every) else ", ".join(targets)),
            Entry(_reasons(stood.reasons)),
        )
        for (where, pair, stood), targets in rows.items()
    ]
    shown += [
        (
            Entry(_where(planned)),
            Entry(f"{planned.a} − {planned.b}"),
            Entry("planned, missing", "", True),
            Entry("all"),
            Entry(_missing_side(planned, one)),
        )
        for planned in one.absent
    ]
    return Table(
        "Planned: both cells as frozen, run under the registration, and contrasted as its analysis plan "
        "says. Deviated: planned, then run or analysed otherwise for a declared reason. Exploratory: "
        "everything else.",
        ("Setting", "A − B", "Standing", "Targets", "Why"),
        tuple(shown),
        headers=2,
    )


def _where(one: Contrast | PlannedContrast) -> str:
    names = (one.model, one.quant, one.prompt, one.fault, one.executor, one.suite)
    rest = ("" if one.gate == "certified" else f"gate {one.gate}", f"trial {one.trial}" if one.trial else "")
    return " ".join(name for name in (*names, *rest) if name)


def _missing_side(planned: PlannedContrast, one: Followed) -> str:
    parts = []
    for words, names in (("missing", one.missing), ("ran otherwise", one.otherwise)):
        if sides := [name for name in names if _enters(planned, name)]:
            parts.append(f"{words}: {', '.join(sides)}")
    return "; ".join(parts) or "its cells are not among this report's"


def _enters(planned: PlannedContrast, name: str) -> bool:
    """Whether a cell of that name, such as ``llama q8_0 P0 et``, is a side of a planned contrast."""
    for side in (planned.a, planned.b):
        axes = {"model": planned.model, "quant": planned.quant, "prompt": planned.prompt}
        axes |= {"fault": planned.fault}
        if planned.vary in axes:
            axes[planned.vary] = side
        quant = (axes["quant"] or "").lower()
        names = {f"{axes['model']} {quant} {axes['prompt']} {fault}" for fault in (axes["fault"], "none")}
        if name in names:
            return True
    return False


def _reasons(reasons: Iterable[str]) -> str:
    given = tuple(reasons)
    more = f"; … and {len(given) - _MOST_REASONS} more" if len(given) > _MOST_REASONS else ""
    return "; ".join(given[:_MOST_REASONS]) + more

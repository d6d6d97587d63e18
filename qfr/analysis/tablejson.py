"""What `qfr contrast` does with a table file: its contrasts, and the JSON of `qfr contrast --json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qfr.analysis.cells import CellSummary
from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.contrast.equal_memory import VARY, equal_memory
from qfr.analysis.contrast.family import families
from qfr.analysis.contrast.interactions import Interaction, interactions
from qfr.analysis.contrast.named_groups import Grouped, NamedGroup, grouped, not_run
from qfr.analysis.levels import Axis
from qfr.analysis.results import COLUMNS, VERSION, Contrast, Plain, Result
from qfr.analysis.rows import contrast_row, group_row, interaction_row
from qfr.analysis.tablefile import ResultTable
from qfr.analysis.targets import Target
from qfr.errors import TableError

#: What `qfr contrast` can vary: the axes of a table file, and models at equal size of their files.
VARIES = (*map(str, (Axis.quant, Axis.prompt, Axis.model)), VARY)

_Plain = None | bool | int | float | str | list["_Plain"] | dict[str, "_Plain"]
_OF_A_STORE = frozenset(
    [
        "scope",
        "fault",
        "executor",
        "suite",
        "gate",
        "trial",
        "cells",
        "unit",
        "value",
        "critical",
        "registration",
        "standing",
        "standing_reason",
        "declared_family",
    ]
)
_HEADLINE = (Target.own, Target.matched, Target.full)


@dataclass(frozen=True)
class Further:
    """Contrasts of more than two cells."""

    grouped: tuple[Grouped, ...] = ()
    # Named groups of levels on shared tasks.
    interactions: tuple[Interaction, ...] = ()
    # Differences of differences, prompt by level.


def contrast_file(table: ResultTable, options: Options | None = None) -> tuple[Contrast, ...]:
    """Contrast a table file along an axis; its own order of levels counts where presets are contrasted.

    Raises
    ------
    TableError
        If the axis is none that a table file has, or a level cannot be ordered.
    """
    chosen = options or Options()
    if chosen.vary not in (Axis.quant, Axis.prompt, Axis.model):
        raise TableError(
            f"a table file has no axis {str(chosen.vary)!r}", hint="use --vary quant, prompt or model"
        )
    if chosen.vary is Axis.quant and table.levels:
        chosen = replace(chosen, order=table.levels)
    return contrast_table(table.tables, chosen)


def memory_file(table: ResultTable, options: Options | None = None) -> tuple[Contrast, ...]:
    """Contrast the models of a table file at equal size of their files.

    Raises
    ------
    TableError
        If the file gives no sizes.
    """
    if not table.sizes:
        raise TableError(
            "the file gives no sizes, so nothing is known of equal memory",
            hint='add "file_bytes": {"Llama/8": 8540770592, …}, one size per model and level',
        )
    return equal_memory(table.tables, table.sizes, options)


def further_file(table: ResultTable, groups: tuple[NamedGroup, ...], options: Options) -> Further:
    """Contrast named groups of levels, and prompts by levels.

    Raises
    ------
    TableError
        If no table has a level of the groups.
    """
    lost = not_run(table.tables, groups)
    if lost:
        known = dict.fromkeys(one.key.quant for one in table.tables)
        raise TableError(
            f"no table has these levels: {'; '.join(lost)}", hint=f"the file has {', '.join(known)}"
        )
    way = options.bootstrap, options.seed
    return Further(grouped(table.tables, groups, *way), interactions(table.tables, *way, order=table.levels))


def to_json(
    contrasts: Sequence[Contrast], cells: Iterable[CellSummary] = (), further: Further | None = None
) -> str:
    """Render contrasts (and cell summaries) of a table file.

    Returns
    -------
    str
        One object: ``contrasts`` holds the targets own, matched and full over all tasks; ``further`` the
        targets clean and s_star; ``families`` every target within each family; ``cells`` the summaries;
        ``groups`` and ``interactions`` contrasts of more than two cells. Differences and ends are in points,
        rates in 0..1; what cannot be estimated is null with a reason. Tests are adjusted over the contrasts
        of one target and policy over all tasks.
    """
    lists: dict[str, list[_Plain]] = {"contrasts": [], "further": [], "families": [], "cells": []}
    adjusted = {one.place: one for family in families(contrasts, ()) for one in family.members}
    for at, contrast in enumerate(contrasts):
        place = "contrasts" if contrast.target in _HEADLINE else "further"
        row = _record(contrast_row(contrast, adjusted.get(at)))
        lists[place if contrast.family is None else "families"].append(row)
    lists["cells"] += [_cell(cell) for cell in cells]
    more = further or Further()
    lists["groups"] = [_group(one) for one in more.grouped]
    lists["interactions"] = [_interaction(one) for one in more.interactions]
    return json.dumps({"version": VERSION, **lists}, indent=1, ensure_ascii=True, allow_nan=False)


def _record(row: Result) -> dict[str, _Plain]:
    """The row's columns that a table file can fill: it says nothing of runs, faults and registrations."""
    found: dict[str, _Plain] = {}
    for name in COLUMNS:
        if name not in _OF_A_STORE:
            value: Plain = getattr(row, name)
            found[name] = [*value] if isinstance(value, tuple) else value
    return found | {"policy": row.policy or None}


def _group(one: Grouped) -> _Plain:
    row = group_row(one)
    return _record(row) | {
        "a_levels": [*one.first.quants],
        "b_levels": [*one.second.quants],
        "a_successes": row.count_a,
        "a_episodes": row.of_a,
        "b_successes": row.count_b,
        "b_episodes": row.of_b,
        "fisher_warning": one.pooled.warning,
    }


def _interaction(one: Interaction) -> _Plain:
    return _record(interaction_row(one)) | {"first_prompt": one.first, "second_prompt": one.second}


def _cell(cell: CellSummary) -> _Plain:
    return {
        "model": cell.key.model,
        "level": cell.key.quant,
        "prompt": cell.key.prompt,
        "policy": cell.policy or None,
        "family": cell.family,
        "n_tasks": cell.n_tasks,
        "certified": cell.n_certified,
        "own_rate": cell.own.value,
        "own_low": cell.own.low,
        "own_high": cell.own.high,
        "successes": cell.successes,
        "episodes": cell.episodes,
        "episode_rate": cell.episode_rate.value,
        "wilson_low": cell.episode_rate.low,
        "wilson_high": cell.episode_rate.high,
        "full_rate": cell.full.value,
        "full_low": cell.full.low,
        "full_high": cell.full.high,
        "s_star_tasks": cell.n_s_star,
        "s_star_rate": cell.s_star.value,
        "reason": cell.own.reason,
    }

"""What `qfr contrast` does with a table file: its contrasts, and the JSON of `qfr contrast --json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qfr.analysis.cells import CellSummary
from qfr.analysis.contrasts import Options, contrast_table
from qfr.analysis.decomposition import POINTS
from qfr.analysis.equal_memory import VARY, equal_memory
from qfr.analysis.family import AdjustedContrast, families
from qfr.analysis.groups import GroupContrast
from qfr.analysis.interactions import Interaction, interactions
from qfr.analysis.levels import Axis
from qfr.analysis.named_groups import Grouped, NamedGroup, grouped, not_run
from qfr.analysis.results import Contrast
from qfr.analysis.tablefile import ResultTable
from qfr.analysis.targets import Target
from qfr.errors import TableError

#: What `qfr contrast` can vary: the axes of a table file, and models at equal size of their files.
VARIES = (*map(str, (Axis.quant, Axis.prompt, Axis.model)), VARY)

_Plain = None | bool | int | float | str | list["_Plain"] | dict[str, "_Plain"]
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
        row = _contrast(contrast, adjusted.get(at))
        lists[place if contrast.family is None else "families"].append(row)
    lists["cells"] += [_cell(cell) for cell in cells]
    more = further or Further()
    lists["groups"] = [_group(one) for one in more.grouped]
    lists["interactions"] = [_interaction(one) for one in more.interactions]
    return json.dumps(lists, indent=1, ensure_ascii=True, allow_nan=False)


def _contrast(contrast: Contrast, adjusted: AdjustedContrast | None) -> _Plain:
    split = contrast.decomposition
    return {
        "model": contrast.model,
        "level": contrast.quant,
        "prompt": contrast.prompt,
        "policy": contrast.policy or None,
        "vary": contrast.vary,
        "a": contrast.a,
        "b": contrast.b,
        "target": contrast.target,
        "family": contrast.family,
        "n_tasks": contrast.n_tasks,
        "n_tasks_a": contrast.n_tasks_a,
        "n_tasks_b": contrast.n_tasks_b,
        "certified_a": contrast.certified_a,
        "certified_b": contrast.certified_b,
        "dropped_a": list(contrast.dropped_a),
        "dropped_b": list(contrast.dropped_b),
        "rate_a": contrast.rate_a,
        "rate_b": contrast.rate_b,
        "points": contrast.points,
        "low": contrast.low,
        "high": contrast.high,
        "confidence": contrast.level,
        "method": contrast.method,
        "resamples": contrast.resamples,
        "seed": contrast.seed,
        "degenerate": contrast.degenerate,
        "reliable": contrast.reliable,
        "reason": contrast.reason,
        "favour_a": contrast.favour_a,
        "favour_b": contrast.favour_b,
        "ties": contrast.ties,
        "sign_p": contrast.sign_p,
        "signflip_p": contrast.signflip_p,
        "smallest_p": contrast.smallest_p,
        "sign_holm_p": adjusted.sign_holm if adjusted else None,
        "sign_bh_p": adjusted.sign_bh if adjusted else None,
        "signflip_holm_p": adjusted.signflip_holm if adjusted else None,
        "signflip_bh_p": adjusted.signflip_bh if adjusted else None,
        "detectable_points": contrast.detectable,
        "margin_points": contrast.margin,
        "equivalence_low_points": contrast.equivalence_low,
        "equivalence_high_points": contrast.equivalence_high,
        "equivalent": contrast.equivalent,
        "remarks": list(contrast.remarks),
        "shared_points": split.shared if split else None,
        "only_a_points": split.only_a if split else None,
        "only_b_points": split.only_b if split else None,
        "screening_points": split.screening if split else None,
        "own_rates_points": split.own_rates if split else None,
    }


def _group(one: Grouped) -> _Plain:
    return {
        "model": one.key.model,
        "prompt": one.key.prompt,
        "policy": one.policy or None,
        "a": one.first.name,
        "a_levels": list(one.first.quants),
        "b": one.second.name,
        "b_levels": list(one.second.quants),
        **_found(one.found),
        "fisher_p": one.pooled.p,
        "odds_ratio": one.pooled.odds_ratio,
        "a_successes": one.successes[0],
        "a_episodes": one.pooled.n_first,
        "b_successes": one.successes[1],
        "b_episodes": one.pooled.n_second,
        "fisher_warning": one.pooled.warning,
    }


def _interaction(one: Interaction) -> _Plain:
    return {
        "model": one.key.model,
        "policy": one.policy or None,
        "a": one.a,
        "b": one.b,
        "first_prompt": one.first,
        "second_prompt": one.second,
        "target": one.target,
        **_found(one.found),
    }


def _found(found: GroupContrast) -> dict[str, _Plain]:
    one = found.difference
    low, high = (None if end is None else POINTS * end for end in (one.low, one.high))
    return {
        "n_tasks": len(found.tasks),
        "points": found.points,
        "low": low,
        "high": high,
        "degenerate": one.degenerate,
        "reliable": one.reliable,
        "reason": one.reason,
        "favour_a": found.sign.favour_first,
        "favour_b": found.sign.favour_second,
        "ties": found.sign.ties,
        "sign_p": found.sign.p,
        "signflip_p": found.signflip.p,
        "smallest_p": found.sign.smallest_p,
    }


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

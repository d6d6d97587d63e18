"""What `qfr contrast` does with a table file: its contrasts, and the JSON of `qfr contrast --json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from qfr.analysis.cells import CellSummary
from qfr.analysis.contrasts import Options, contrast_table
from qfr.analysis.levels import Axis
from qfr.analysis.results import Contrast
from qfr.analysis.tablefile import ResultTable
from qfr.analysis.targets import Target
from qfr.errors import TableError

_Plain = None | bool | int | float | str | list["_Plain"] | dict[str, "_Plain"]
_HEADLINE = (Target.own, Target.matched, Target.full)


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
            f"a table file has no axis {chosen.vary.value!r}", hint="use --vary quant, prompt or model"
        )
    if chosen.vary is Axis.quant and table.levels:
        chosen = replace(chosen, order=table.levels)
    return contrast_table(table.tables, chosen)


def to_json(contrasts: Iterable[Contrast], cells: Iterable[CellSummary] = ()) -> str:
    """Render contrasts (and cell summaries) of a table file.

    Returns
    -------
    str
        One object: ``contrasts`` holds the targets own, matched and full over all tasks; ``further`` the
        targets clean and s_star; ``families`` every target within each family; ``cells`` the summaries.
        Differences and ends are in points, rates in 0..1; what cannot be estimated is null with a reason.
    """
    lists: dict[str, list[_Plain]] = {"contrasts": [], "further": [], "families": [], "cells": []}
    for contrast in contrasts:
        place = "contrasts" if contrast.target in _HEADLINE else "further"
        lists[place if contrast.family is None else "families"].append(_contrast(contrast))
    lists["cells"] += [_cell(cell) for cell in cells]
    return json.dumps(lists, indent=1, ensure_ascii=True, allow_nan=False)


def _contrast(contrast: Contrast) -> _Plain:
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
        "shared_points": split.shared if split else None,
        "only_a_points": split.only_a if split else None,
        "only_b_points": split.only_b if split else None,
        "screening_points": split.screening if split else None,
        "recovery_points": split.recovery if split else None,
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

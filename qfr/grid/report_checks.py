"""Checks of what the closing report is asked for, before the first model loads.

A misspelt group or family would otherwise be found when the last cell has finished.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from qfr.analysis.contrast.family import Selector, selector
from qfr.analysis.contrast.groups import parse_groups
from qfr.analysis.levels import Axis, order_key
from qfr.analysis.published import NAMES
from qfr.analysis.targets import Target
from qfr.choices import check_among, check_preset
from qfr.config import CellConfig, ReportConfig
from qfr.errors import ConfigError, TableError, did_you_mean
from qfr.records import FaultKind, Policy

_CLOSED = {"policy": tuple(map(str, Policy)), "target": tuple(map(str, Target))}
_WITHOUT = "report.family=[] and report.groups='' declare nothing"


def check_report(report: ReportConfig) -> None:
    """Check everything that can be said of a report without its grid.

    Raises
    ------
    ConfigError
        Names key, value, choices and what to write instead.
    """
    if report.against is not None:
        check_among("report.against", report.against, NAMES)
    for name in (quant for group in _groups(report) for quant in group):
        check_preset("report.groups", name)
    for one in _selectors(report):
        for field, values in one.wanted:
            for value in sorted(values):
                if field in _CLOSED:
                    check_among(f"report.family: {field}", value, _CLOSED[field])
    if report.out is not None:
        _check_folder(Path(report.out).expanduser())


def check_declared(cells: Sequence[CellConfig]) -> None:
    """Check that the declared family and groups name levels of this grid.

    A grid under a registration keeps what was frozen, also where only a part of the grid runs; a grid
    without contrasts has no tests to adjust.

    Raises
    ------
    ConfigError
        A level is not in the grid, or a selector takes in nothing: it names the varied axis, or the lower
        level as `a`.
    """
    report = cells[0].report
    levels = {axis: _levels(cells, axis) for axis in Axis}
    if report.vary not in set(Axis):
        return
    vary = Axis(report.vary)
    if cells[0].registration.use is not None or len(levels[vary]) < 2:
        return
    known = {str(axis): names for axis, names in levels.items()}
    known |= {"suite": tuple(dict.fromkeys(cell.suite.name for cell in cells))}
    known |= {"a": levels[vary], "b": levels[vary]}
    for name in (quant for group in _groups(report) for quant in group):
        _check_there("report.groups", name, levels[Axis.quant])
    for one in _selectors(report):
        wanted = dict(one.wanted)
        if vary in wanted:
            raise ConfigError(
                f"report.family selects by {vary}, the axis that report.vary contrasts",
                hint=f"its levels are a (the higher one) and b: {{a: {levels[vary][0]}}}",
            )
        for field, value in ((field, value) for field, values in one.wanted for value in sorted(values)):
            if field not in _CLOSED:
                _check_there(f"report.family: {field}", value, known[field])
        _check_order(wanted, levels[vary], one)


def _selectors(report: ReportConfig) -> list[Selector]:
    try:
        return [selector(given) for given in report.family]
    except TableError as error:
        raise ConfigError(error.what, where=error.where, hint=error.hint) from None


def _groups(report: ReportConfig) -> list[tuple[str, ...]]:
    try:
        return [group.quants for group in parse_groups(report.groups)]
    except TableError as error:
        raise ConfigError(error.what, where="report.groups", hint=error.hint) from None


def _levels(cells: Sequence[CellConfig], axis: Axis) -> tuple[str, ...]:
    """Levels of the grid, the higher one first."""
    names = {
        Axis.model: [cell.model.name for cell in cells],
        Axis.quant: [cell.quant.preset for cell in cells],
        Axis.prompt: [cell.prompt.name for cell in cells],
        Axis.fault: [str(cell.fault.kind) for cell in cells],
        Axis.executor: [str(cell.executor.kind) for cell in cells],
    }[axis]
    if axis is Axis.fault:
        # A clean pass has no contrast of its own beside fault cells.
        names = [name for name in names if name != FaultKind.none] or names
    return tuple(sorted(set(names), key=lambda name: order_key(axis, name)))


def _among(value: str, names: Sequence[str]) -> bool:
    # A preset of two files carries the file in brackets, which no grid knows.
    return value.partition(" [")[0].lower() in {name.lower() for name in names}


def _check_order(wanted: dict[str, frozenset[str]], levels: Sequence[str], one: Selector) -> None:
    def takes(side: str, name: str) -> bool:
        return side not in wanted or any(_among(value, (name,)) for value in wanted[side])

    pairs = [(a, b) for at, a in enumerate(levels) for b in levels[at + 1 :]]
    if not any(takes("a", a) and takes("b", b) for a, b in pairs):
        raise ConfigError(
            f"report.family: {one.text} takes in no contrast, since a is the higher level of every pair",
            hint=f"from high to low: {', '.join(levels)}; {_WITHOUT}",
        )


def _check_there(key: str, value: str, names: Sequence[str]) -> None:
    if not _among(value, names):
        raise ConfigError(
            f"{key}={value} is not in this grid" + did_you_mean(value, names),
            hint=f"it has {', '.join(names)}; {_WITHOUT}",
        )


def _check_folder(folder: Path) -> None:
    there = next(place for place in (folder, *folder.resolve().parents) if place.exists())
    if not there.is_dir():
        raise ConfigError(f"report.out={folder} cannot be a folder: {there} is a file")
    if not os.access(there, os.W_OK):
        raise ConfigError(f"report.out={folder} cannot be written: no permission in {there}")

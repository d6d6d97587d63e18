"""Figure 1 of Hu 2026 for any group: three panels (own, matched, full pipeline), points with intervals.

Each panel is a figure of its own, so that the page can set them side by side or below each other.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass

import plotly.graph_objects as go

from qfr.analysis.levels import NOT_STATED
from qfr.analysis.results import Contrast
from qfr.analysis.targets import Target
from qfr.report.figures.palette import GRID, MARKS, NOTHING, SERIES, ZERO, base_layout, safe_json
from qfr.report.layout import Group, Pair, interval
from qfr.report.tables.formats import signed


@dataclass(frozen=True)
class Panel:
    """One panel of a figure."""

    target: Target
    title: str
    spec: str
    # Plotly's JSON (data and layout), safe inside a script element.
    label: str
    # What a screen reader says.


def panels(group: Group) -> tuple[Panel, ...]:
    """Return the panels of a group, three where faults were injected, drawn to one common scale."""
    span = _span(group)
    return tuple(
        Panel(target, group.titled(target), safe_json(_panel(group, target, span)), _label(group, target))
        for target in group.panels
    )


def _panel(group: Group, target: Target, span: tuple[float, float]) -> go.Figure:
    pairs = group.drawn_pairs
    traces = []
    for at, pair in enumerate(pairs):
        offset = (at - (len(pairs) - 1) / 2) * min(0.24, 0.6 / len(pairs))
        traces.append(_trace(group, target, pair, (at, offset)))
    names = ["" if row == NOT_STATED else f"{html.escape(row)}<br>" for row in group.rows]
    ticks = [f"{name}{_numbers(group, row, target)}" for name, row in zip(names, group.rows, strict=True)]
    steps = _steps(span)
    layout = {
        **base_layout(300 + 14 * len(pairs)),
        "margin": {"l": 44, "r": 8, "t": 6, "b": 34 + 14 * len(pairs)},
        "xaxis": {
            "tickmode": "array",
            "tickvals": list(range(len(group.rows))),
            "ticktext": ticks,
            "range": [-0.55, len(group.rows) - 0.45],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
        "yaxis": {
            "range": list(span),
            "gridcolor": GRID,
            "zeroline": True,
            "zerolinecolor": ZERO,
            "zerolinewidth": 2,
            "tickmode": "array",
            "tickvals": steps,
            "ticktext": [signed(step, 0) for step in steps],
            "fixedrange": True,
        },
    }
    if not any(trace.x for trace in traces):
        layout["annotations"] = [NOTHING | {"text": "not estimable"}]
    return go.Figure(data=traces, layout=layout)


def _trace(group: Group, target: Target, pair: Pair, place: tuple[int, float]) -> go.Scatter:
    at, offset = place
    found = [(x, row, group.find(row, pair, target)) for x, row in enumerate(group.rows)]
    shown = [(x, row, c) for x, row, c in found if c is not None and c.points is not None]
    colour = SERIES[at % len(SERIES)]
    mark = MARKS[at % len(MARKS)]
    return go.Scatter(
        name=html.escape(f"{pair[0]} − {pair[1]}"),
        mode="markers",
        x=[x + offset for x, _, _ in shown],
        y=[c.points for _, _, c in shown],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_arm(c.high, c.points) for _, _, c in shown],
            "arrayminus": [_arm(c.points, c.low) for _, _, c in shown],
            "color": colour,
            "thickness": 1.6,
            "width": 4,
        },
        marker={
            "color": colour,
            "size": 9,
            "symbol": [mark if c.reliable else f"{mark}-open" for _, _, c in shown],
            "line": {"width": 2, "color": colour},
        },
        hovertext=[_hover(row, c) for _, row, c in shown],
        hoverinfo="text",
    )


def _arm(upper: float | None, lower: float | None) -> float:
    return 0.0 if upper is None or lower is None else max(0.0, upper - lower)


def _hover(row: str, c: Contrast) -> str:
    n = f"n = {c.n_tasks}" if c.target != Target.own else f"n = {c.n_tasks_a} and {c.n_tasks_b}"
    lines = [f"{row}: {c.a} − {c.b}", f"{signed(c.points)} points {interval(c)}", n]
    if c.reason:
        lines.append(c.reason[:90])
    return "<br>".join(html.escape(line) for line in lines)


def _numbers(group: Group, row: str, target: Target) -> str:
    """Return the numbers of tasks below a tick, one line per pair."""
    lines = []
    for pair in group.drawn_pairs:
        c = group.find(row, pair, target)
        if c is None:
            lines.append("not run")
        elif target is Target.own:
            lines.append(f"{c.n_tasks_a}/{c.n_tasks_b}")
        else:
            lines.append(f"n {c.n_tasks}")
    return "<br>".join(lines)


def _span(group: Group) -> tuple[float, float]:
    ends: list[float] = [0.0]
    for target in group.panels:
        for row in group.rows:
            for pair in group.drawn_pairs:
                c = group.find(row, pair, target)
                if c is not None:
                    ends += [end for end in (c.low, c.high, c.points) if end is not None]
    # Never less than ten points either way, so that nothing looks large for want of anything larger.
    low, high = min(-10.0, *ends), max(10.0, *ends)
    room = 0.08 * (high - low)
    return low - room, high + room


def _steps(span: tuple[float, float]) -> list[int]:
    """Return round values to label, zero among them, six or so."""
    step = next(size for size in (2, 5, 10, 20, 25, 50, 100) if (span[1] - span[0]) / size <= 7)
    return list(range(math.ceil(span[0] / step) * step, math.floor(span[1]) + 1, step))


def _label(group: Group, target: Target) -> str:
    parts = []
    for row in group.rows:
        for pair in group.drawn_pairs:
            c = group.find(row, pair, target)
            if c is not None:
                told = f"{signed(c.points)} points" if c.points is not None else "not estimable"
                parts.append(f"{row} {pair[0]} minus {pair[1]} {told}")
    return f"{group.titled(target)}{group.scoring}: " + "; ".join(parts)

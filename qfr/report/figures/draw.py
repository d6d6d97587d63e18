"""Charts drawn by plotly: dots with whiskers, lines with bands, stacked bars, the map of outcomes."""

from __future__ import annotations

import html

import plotly.graph_objects as go

from qfr.report.charts import Chart, Kind, Mark, Series
from qfr.report.content.outcomes import Map
from qfr.report.figures.palette import (
    DASHES,
    GRID,
    MARKS,
    NOTHING,
    SQUARES,
    ZERO,
    band,
    base_layout,
    colour,
    safe_json,
)

_LOG_TICKS = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100]
_LOG_TEXTS = [f"{tick:g}" for tick in _LOG_TICKS]
#: How far the series of one category lie apart, of the room between two categories.
_SPREAD = {Kind.dots: 0.75, Kind.columns: 0.3, Kind.points: 0.5}


def drawn(chart: Chart) -> str:
    """Return a chart as plotly's JSON, safe inside a script element."""
    layout = _layout(chart)
    if not any(series.marks for series in chart.series):
        layout["annotations"] = [NOTHING | {"text": chart.empty}]
    # Given at once: filling a figure step by step takes many times as long.
    figure = go.Figure(data=_traces(chart), layout=layout)
    return safe_json(figure)


def height(chart: Chart) -> int:
    """Return the height of a chart in CSS pixels."""
    if chart.kind is Kind.points:
        return 300 + 14 * len(chart.series)
    if chart.kind not in (Kind.dots, Kind.bars):
        return 270
    deep = max(1, len(chart.series)) if chart.kind is Kind.dots else 1
    return 70 + max(1, len(chart.categories)) * (16 + 11 * deep)


def label(chart: Chart) -> str:
    """Return what a screen reader says of a chart."""
    parts = [f"{series.name} {mark.at} {mark.value:.3g}" for series in chart.series for mark in series.marks]
    parts = [part.replace("\n", " ") for part in parts]
    told = "; ".join(parts[:40]) + (f"; and {len(parts) - 40} more" if len(parts) > 40 else "")
    return f"{chart.title}, {chart.unit}: {told or 'nothing to show'}"


def _traces(chart: Chart) -> list[go.Scatter | go.Bar]:
    if chart.kind is Kind.lines:
        return [trace for series in chart.series for trace in _line(series)]
    if chart.kind is Kind.bars:
        return [_bar(chart, series) for series in chart.series]
    return [_whiskers(chart, series, at) for at, series in enumerate(chart.series)]


def _line(series: Series) -> list[go.Scatter]:
    xs = [float(mark.at) for mark in series.marks]
    shared = {"x": xs, "mode": "lines", "showlegend": False, "line": {"width": 0, "shape": "linear"}}
    lows = [mark.value if mark.low is None else mark.low for mark in series.marks]
    highs = [mark.value if mark.high is None else mark.high for mark in series.marks]
    return [
        go.Scatter(y=lows, hoverinfo="skip", **shared),
        go.Scatter(y=highs, hoverinfo="skip", fill="tonexty", fillcolor=band(series.style), **shared),
        go.Scatter(
            name=html.escape(series.name),
            x=xs,
            y=[mark.value for mark in series.marks],
            mode="lines+markers",
            line={"color": colour(series.style), "width": 2, "dash": DASHES[series.style % len(DASHES)]},
            marker=_marker(series),
            hovertext=[_hover(mark) for mark in series.marks],
            hoverinfo="text",
        ),
    ]


def _whiskers(chart: Chart, series: Series, at: int) -> go.Scatter:
    across = chart.kind is Kind.dots
    offset = (at - (len(chart.series) - 1) / 2) * _SPREAD[chart.kind] / max(2, len(chart.series))
    places = [chart.categories.index(mark.at) + offset for mark in series.marks]
    values = [mark.value for mark in series.marks]
    whiskers = {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if mark.high is None else max(0.0, mark.high - mark.value) for mark in series.marks],
        "arrayminus": [0.0 if mark.low is None else max(0.0, mark.value - mark.low) for mark in series.marks],
        "color": colour(series.style),
        "thickness": 1.6,
        "width": 3,
    }
    return go.Scatter(
        name=html.escape(series.name),
        mode="lines+markers" if chart.kind is Kind.columns else "markers",
        x=values if across else places,
        y=places if across else values,
        error_x=whiskers if across else None,
        error_y=None if across else whiskers,
        line={"color": colour(series.style), "width": 1.5, "dash": DASHES[series.style % len(DASHES)]},
        marker=_marker(series),
        hovertext=[_hover(mark) for mark in series.marks],
        hoverinfo="text",
    )


def _bar(chart: Chart, series: Series) -> go.Scatter | go.Bar:
    places = [chart.categories.index(mark.at) for mark in series.marks]
    values = [mark.value for mark in series.marks]
    shared = {
        "name": html.escape(series.name),
        "y": places,
        "x": values,
        "hovertext": [_hover(mark) for mark in series.marks],
        "hoverinfo": "text",
    }
    if series.style < 0:
        marker = {"symbol": "diamond-tall", "size": 14, "color": ZERO, "line": {"width": 1, "color": GRID}}
        return go.Scatter(mode="markers", marker=marker, **shared)
    pattern = ("", "/", ".", "x")[series.style % 4]
    marker = {"color": colour(series.style), "pattern": {"shape": pattern, "fgcolor": GRID, "size": 6}}
    return go.Bar(orientation="h", marker=marker, width=0.6, **shared)


def _marker(series: Series) -> dict[str, object]:
    mark = MARKS[series.style % len(MARKS)]
    return {
        "color": colour(series.style),
        "size": 8,
        "symbol": [f"{mark}-open" if one.open else mark for one in series.marks],
        "line": {"width": 1.5, "color": colour(series.style)},
    }


def _hover(mark: Mark) -> str:
    return "<br>".join(
        html.escape(line) for line in (mark.hover or f"{mark.at}: {mark.value:.3g}").split("\n")
    )


def _layout(chart: Chart) -> dict[str, object]:
    across, rows = chart.kind in (Kind.dots, Kind.bars), len(chart.categories)
    values = {
        "title": {"text": html.escape(chart.unit), "standoff": 6},
        "gridcolor": GRID,
        "zeroline": chart.zero,
        "zerolinecolor": ZERO,
        "zerolinewidth": 2,
        "fixedrange": True,
        "automargin": True,
        "nticks": 6,
    }
    if chart.span is not None:
        values["range"] = list(chart.span)
    if chart.log:
        values |= {"type": "log", "tickmode": "array", "tickvals": _LOG_TICKS, "ticktext": _LOG_TEXTS}
    others = {
        "title": {"text": html.escape(chart.axis), "standoff": 6},
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
    }
    if chart.categories:
        ticks = [html.escape(name).replace("\n", "<br>") for name in chart.categories]
        ends = [rows - 0.4, -0.6] if across else [-0.5, rows - 0.5]
        others |= {"tickmode": "array", "tickvals": list(range(rows)), "ticktext": ticks, "range": ends}
    else:
        others |= {"autorange": "reversed", "dtick": 1}
    axes = {"xaxis": values, "yaxis": others} if across else {"xaxis": others, "yaxis": values}
    margin = {"l": 8, "r": 10, "t": 6, "b": 8}
    return {**base_layout(height(chart)), "margin": margin, "barmode": "relative", **axes}


def map_height(chart: Map) -> int:
    """Return the height of a map in CSS pixels."""
    return 110 + 13 * len(chart.rows)


def drawn_map(chart: Map) -> str:
    """Return the map as plotly's JSON; each square carries its place for the viewer."""
    n = len(SQUARES)
    scale = [(edge / n, SQUARES[at]) for at in range(n) for edge in (at, at + 1)]
    squares = go.Heatmap(
        z=[list(row) for row in chart.codes],
        zmin=-0.5,
        zmax=n - 0.5,
        colorscale=scale,
        showscale=False,
        xgap=1,
        ygap=1,
        hovertext=[[html.escape(text).replace("\n", "<br>") for text in row] for row in chart.hovers],
        hoverinfo="text",
        customdata=[
            [[task, chart.fault, site, agent] for agent in chart.agents]
            for task, site in zip(chart.tasks, chart.sites, strict=True)
        ],
    )
    rows, columns = len(chart.rows), len(chart.columns)
    layout = {
        **base_layout(map_height(chart)),
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": {
            "tickmode": "array",
            "tickvals": list(range(columns)),
            "ticktext": [html.escape(name) for name in chart.columns],
            "tickangle": -90 if columns > 3 else 0,
            "side": "top",
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "automargin": True,
        },
        "yaxis": {
            "tickmode": "array",
            "tickvals": list(range(rows)),
            "ticktext": [html.escape(name) for name in chart.rows],
            "tickfont": {"size": 10},
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "automargin": True,
        },
    }
    return safe_json(go.Figure(data=[squares], layout=layout))

"""The map of outcomes: one square per task and site, one column per cell."""

from __future__ import annotations

import html

import plotly.graph_objects as go

from qfr.report.content.outcomes import Map
from qfr.report.figures.palette import SQUARES, base_layout, safe_json


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

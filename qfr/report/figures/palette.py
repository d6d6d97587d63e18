"""Colours near those of Okabe and Ito, told apart by colour-blind readers; series differ in mark too."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

#: Series colours on light and on dark ground.
SERIES = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#8A6D00", "#4B3FA7", "#9C2F55", "#51606B")
SERIES_DARK = ("#56B4E9", "#FF8A3D", "#2FCFA3", "#E5A1CB", "#F0D24A", "#B3A7FF", "#FF9DBB", "#B4C0CA")
INK, INK_DARK = "#1B1F24", "#E7EAEE"
GRID, GRID_DARK = "#D9DDE2", "#3A4048"
ZERO, ZERO_DARK = "#5B636D", "#9AA3AE"
MARKS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagram", "cross")
MARK_SIGNS = ("●", "■", "◆", "▲", "▼", "⬟", "✶", "✚")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
#: Squares of the outcome map: right, wrong, gave up, ran out, fault never fired, not run.
SQUARES = ("#7FC8A9", "#E08A5B", "#C9A0DC", "#B9892F", "#8FB3D9", "#EEF0F2")
SQUARES_DARK = ("#2F8F6B", "#C4622D", "#8C5FA8", "#8A6414", "#3F6C9C", "#24292E")
#: What an empty drawing says.
NOTHING = {
    "x": 0.5,
    "y": 0.6,
    "xref": "paper",
    "yref": "paper",
    "showarrow": False,
    "font": {"size": 14},
}
_BAND = 0.16


def script() -> str:
    """Return plotly.js, to be put on the page once."""
    return str(get_plotlyjs())


def dark_of_light() -> dict[str, str]:
    """Return the dark colour for every light one, bands included."""
    light, dark = (
        (*SERIES, INK, GRID, ZERO, *SQUARES),
        (*SERIES_DARK, INK_DARK, GRID_DARK, ZERO_DARK, *SQUARES_DARK),
    )
    pairs = dict(zip(light, dark, strict=True))
    return pairs | {_rgb(one): _rgb(other) for one, other in zip(SERIES, SERIES_DARK, strict=True)}


def colour(style: int) -> str:
    """Return the colour of a series."""
    return SERIES[style % len(SERIES)]


def band(style: int) -> str:
    """Return a translucent colour of a series."""
    return f"{_rgb(colour(style))}{_BAND})"


def safe_json(figure: go.Figure) -> str:
    """Return a figure as JSON that a script element can hold."""
    # Only "</script" and "<!--" could end the element: no "<" is left as it is.
    text = str(figure.to_json())
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def base_layout(height: int) -> dict[str, object]:
    """Return what all figures share."""
    return {
        "template": None,
        "showlegend": False,
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "hovermode": "closest",
    }


def _rgb(hexed: str) -> str:
    parts = (int(hexed[at : at + 2], 16) for at in (1, 3, 5))
    return "rgba(" + "".join(f"{part}," for part in parts)

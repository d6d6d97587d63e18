"""Plotly's JSON to image files, by kaleido and the system's Chromium."""

from __future__ import annotations

import html
import importlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go

from qfr.errors import UserError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Room for the title and for the legend, CSS pixels.
_HEAD = 40
_LEGEND = 40


@dataclass(frozen=True)
class Still:
    """One image to be written."""

    spec: str
    # Plotly's JSON.
    width: int
    # CSS pixels.
    title: str


def write_still(stills: Mapping[Path, Still]) -> None:
    """Write each image to its path; the suffix says the form.

    Raises
    ------
    UserError
        If kaleido or Chromium is missing.
    """
    try:
        kaleido = importlib.import_module("kaleido")
    except ImportError:
        raise UserError("static images need kaleido", hint="install it: pip install 'qfr[images]'") from None
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise UserError("static images need Chromium or Chrome", hint="apt-get install chromium")
    jobs = []
    for path, still in stills.items():
        figure = go.Figure(json.loads(still.spec))
        named = [trace for trace in figure.data if trace.name]
        height = int(figure.layout.height or 300) + _HEAD + (_LEGEND if len(named) > 1 else 0)
        figure.update_layout(
            paper_bgcolor="#FFFFFF",
            plot_bgcolor="#FFFFFF",
            title={"text": html.escape(still.title), "font": {"size": 13}, "x": 0.01, "xanchor": "left"},
            margin={"t": _HEAD},
            showlegend=len(named) > 1,
            legend={"orientation": "h", "yanchor": "top", "y": -0.25},
        )
        opts = {"format": path.suffix[1:], "width": still.width, "height": height, "scale": 2}
        jobs.append({"fig": figure, "path": path, "opts": opts})
    if jobs:
        kaleido.write_fig_from_object_sync(jobs, kopts={"path": browser})

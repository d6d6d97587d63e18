"""Plotly's JSON to image files, by kaleido and the system's Chromium."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import plotly.graph_objects as go

from qfr.errors import UserError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_HEIGHT_MARGIN = 20


def write_still(specs: Mapping[Path, tuple[str, int]]) -> None:
    """Write each spec (plotly's JSON, width in CSS pixels) to its path; the suffix says the form.

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
    for path, (spec, width) in specs.items():
        figure = go.Figure(json.loads(spec))
        figure.update_layout(paper_bgcolor="#FFFFFF", plot_bgcolor="#FFFFFF")
        height = int(figure.layout.height or 300) + _HEIGHT_MARGIN
        opts = {"format": path.suffix[1:], "width": width, "height": height, "scale": 2}
        jobs.append({"fig": figure, "path": path, "opts": opts})
    if jobs:
        kaleido.write_fig_from_object_sync(jobs, kopts={"path": browser})

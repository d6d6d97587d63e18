"""Figures as plain data: what is drawn, without a drawing library.

A figure is a row of charts with one legend and one caption. A caption says n, unit and interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a chart's marks are drawn."""

    dots = "dots"
    # Values along x with whiskers, one row per category.
    lines = "lines"
    # A line with a band over a numeric x.
    columns = "columns"
    # A line with whiskers over categories along x.
    points = "points"
    # Marks with whiskers over categories along x.
    bars = "bars"
    # Stacked bars along x, one row per category; a diamond marks the sum.


@dataclass(frozen=True)
class Mark:
    """One value."""

    at: str
    # Category, or a number as text.
    value: float
    low: float | None = None
    high: float | None = None
    open: bool = False
    # Drawn hollow: no interval, or one that is too short.
    hover: str = ""


@dataclass(frozen=True)
class Series:
    """Marks of one colour."""

    name: str
    style: int
    # Index of colour and mark.
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Chart:
    """One panel."""

    title: str
    kind: Kind
    categories: tuple[str, ...]
    # In order; empty for a numeric axis.
    series: tuple[Series, ...]
    unit: str
    # Title of the value axis.
    axis: str = ""
    # Title of the other axis.
    span: tuple[float, float] | None = None
    # Of the value axis; None = from the marks.
    zero: bool = False
    # A line at zero.
    log: bool = False
    empty: str = "nothing to show"
    # What a chart without marks says.


@dataclass(frozen=True)
class Figure:
    """Charts side by side."""

    title: str
    caption: str
    charts: tuple[Chart, ...]
    legend: tuple[tuple[int, str], ...] = ()
    # Style and name.
    wide: bool = False
    # Each chart takes the whole width.
    folded: bool = False
    # Behind a summary line.

"""The looks of a try as one SVG: estimate, confidence sequence, capital. Nothing is needed to see it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from qfr.analysis.decisions.sequential import Look, Sequential

_WIDTH, _HEIGHT, _LEFT, _TOP = 560, 150, 60, 24
_STYLE = "font-family:sans-serif;font-size:11px;fill:#444"


def svg(curves: Sequence[tuple[str, Sequence[Look]]], rule: Sequential) -> str:
    """Two panels for each comparison: the difference with its confidence sequence, and both capitals."""
    height = 2 * (_HEIGHT + 50)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 2 * _LEFT}" '
        f'height="{height * max(1, len(curves))}"><rect width="100%" height="100%" fill="white"/>'
    ]
    for at, (title, looks) in enumerate(curves):
        parts.append(f'<g transform="translate({_LEFT},{_TOP + at * height})">')
        parts += _differences(title, looks, rule)
        parts.append(f'<g transform="translate(0,{_HEIGHT + 46})">')
        parts += [*_capitals(looks, rule), "</g></g>"]
    return "".join([*parts, "</svg>\n"])


def _differences(title: str, looks: Sequence[Look], rule: Sequential) -> list[str]:
    top = max(rule.margin, *(one.high for one in looks), 0.02)
    bottom = min(-rule.margin, *(one.low for one in looks), -0.02)

    def y(value: float) -> float:
        return _HEIGHT * (top - value) / (top - bottom)

    last = looks[-1].tasks
    band = [(_x(one.tasks, last), y(one.high)) for one in looks]
    band += [(_x(one.tasks, last), y(one.low)) for one in reversed(looks)]
    return [
        _text(0, -8, f"{title}: difference in points, and its confidence sequence"),
        f'<polygon points="{_points(band)}" fill="#4477aa" fill-opacity="0.25"/>',
        _rule(y(0.0), "#888", "0"),
        _rule(y(-rule.margin), "#cc3311", f"−{100 * rule.margin:g}"),
        _line([(_x(one.tasks, last), y(one.estimate)) for one in looks], "#4477aa"),
        *_ticks(looks),
    ]


def _capitals(looks: Sequence[Look], rule: Sequential) -> list[str]:
    bar = math.log10(1 / rule.alpha)
    values = [_log(value) for one in looks for value in (one.not_worse, one.worse)]
    top, bottom = max(bar * 1.1, *values), max(-6.0, min(-0.5, *values))

    def y(value: float) -> float:
        return _HEIGHT * (top - max(bottom, value)) / (top - bottom)

    last = looks[-1].tasks
    return [
        _text(0, -8, "capital (log10): green for 'not worse by more than the margin', red for 'worse'"),
        _rule(y(bar), "#888", f"{1 / rule.alpha:g}"),
        _line([(_x(one.tasks, last), y(_log(one.not_worse))) for one in looks], "#228833"),
        _line([(_x(one.tasks, last), y(_log(one.worse))) for one in looks], "#cc3311"),
        *_ticks(looks),
    ]


def _log(value: float) -> float:
    return math.log10(value) if value > 0 else -6.0


def _x(tasks: int, last: int) -> float:
    return _WIDTH * tasks / last


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points)
    return f'<polyline points="{_points(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>{dots}'


def _rule(y: float, colour: str, label: str) -> str:
    return (
        f'<line x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-dasharray="4 3"/>'
        + _text(-8, y + 4, label, anchor="end")
    )


def _ticks(looks: Sequence[Look]) -> list[str]:
    step = max(1, len(looks) // 6)
    shown = [*looks[step - 1 :: step]]
    return [
        _text(_x(one.tasks, looks[-1].tasks), _HEIGHT + 14, f"{one.tasks} tasks", anchor="middle")
        for one in shown
    ]


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{_STYLE}">{escape(text)}</text>'

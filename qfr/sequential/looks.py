"""Every look, written as JSON lines and drawn as an SVG: estimate, confidence sequence, capital."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path

from qfr.analysis.decisions.sequential import Look
from qfr.analysis.decisions.verdict import Rule
from qfr.sequential.files import Arm

_WIDTH, _HEIGHT, _PANEL = 720, 170, 320


def write_looks(folder: Path, looks: Sequence[tuple[Arm, Look]], rule: Rule) -> Path:
    """Write `looks.jsonl` and `looks.svg` into a folder, and return the drawing's path."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"file": arm.path.name, "arm": arm.label, **asdict(one)}) for arm, one in looks]
    (folder / "looks.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / "looks.svg"
    path.write_text(draw(looks, rule), encoding="utf-8")
    return path


def draw(looks: Sequence[tuple[Arm, Look]], rule: Rule) -> str:
    """Draw one row per arm: left the estimate in its confidence sequence, right both capitals."""
    arms = list(dict.fromkeys(arm.label for arm, _ in looks))
    most = max((one.n for _, one in looks), default=1)
    rows = [
        _row(at * _HEIGHT, arm, [one for it, one in looks if it.label == arm], rule, most)
        for at, arm in enumerate(arms)
    ]
    height = max(1, len(arms)) * _HEIGHT
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
    return f'{head} font-size="11"><rect width="100%" height="100%" fill="white"/>{"".join(rows)}</svg>\n'


def _row(top: int, arm: str, looks: Sequence[Look], rule: Rule, most: int) -> str:
    def at(one: Look, left: int) -> float:
        return left + _PANEL * one.n / most

    def height(value: float) -> float:
        return top + 85 - 60 * max(-1.0, min(1.0, value * 2))

    def money(value: float) -> float:
        return top + 145 - 40 * max(0.0, min(3.0, math.log10(max(1.0, value))))

    low = " ".join(f"{at(one, 20):.1f},{height(one.low):.1f}" for one in looks)
    high = " ".join(f"{at(one, 20):.1f},{height(one.high):.1f}" for one in reversed(looks))
    middle = " ".join(f"{at(one, 20):.1f},{height(one.estimate):.1f}" for one in looks)
    bar = money(1 / rule.alpha)
    capitals = "".join(
        f'<polyline fill="none" stroke="{colour}" points="'
        + " ".join(f"{at(one, 380):.1f},{money(getattr(one, name)):.1f}" for one in looks)
        + '"/>'
        for name, colour in (("not_worse", "#1b7837"), ("worse", "#b2182b"))
    )
    last = looks[-1]
    return (
        f'<text x="20" y="{top + 16}">{escape(arm)}: {last.n} tasks, {100 * last.estimate:+.1f} points, '
        f"{escape(str(last.outcome))}</text>"
        f'<polygon points="{low} {high}" fill="#c6dbef"/>'
        f'<polyline fill="none" stroke="#08519c" points="{middle}"/>'
        f'<line x1="20" x2="340" y1="{height(-rule.margin):.1f}" y2="{height(-rule.margin):.1f}" '
        'stroke="#b2182b" stroke-dasharray="4"/>'
        f'<text x="380" y="{top + 16}">capital: not worse (green), worse (red); the line decides</text>'
        f'<line x1="380" x2="700" y1="{bar:.1f}" y2="{bar:.1f}" stroke="#555" stroke-dasharray="4"/>'
        + capitals
    )

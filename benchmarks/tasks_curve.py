"""The curve of time and memory against tasks, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_TITLE = "Time and memory per task: level = linear, falling = better"
_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 380, 70, 50
# Colours of Okabe and Ito, distinguishable for colour-blind readers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


@dataclass(frozen=True)
class Point:
    """One run."""

    model: str
    tasks: int
    episodes: int
    command_seconds: float
    cpu_seconds: float
    walk_seconds: float
    engine_seconds: float
    peak_bytes: int
    store_bytes: int
    # What the run left on disk.

    @property
    def outside(self) -> float:
        """Seconds of the walk outside the engine."""
        return self.walk_seconds - self.engine_seconds

    def slower(self, times: int) -> float:
        """Share of overhead in the walk if the engine were that much slower."""
        return self.outside / (self.outside + times * self.engine_seconds)


def curve(points: Sequence[Point]) -> str:
    """Command, walk and memory per task against tasks, both axes logarithmic, as SVG."""
    series: dict[str, list[tuple[int, float]]] = {}
    for one in points:
        series.setdefault(f"{one.model}: ms of the walk", []).append(
            (one.tasks, 1e3 * one.walk_seconds / one.tasks)
        )
        series.setdefault(f"{one.model}: MB at most", []).append(
            (one.tasks, one.peak_bytes / 1e6 / one.tasks)
        )
    low_x, high_x = (math.log10(pick(one.tasks for one in points)) for pick in (min, max))
    values = [math.log10(value) for line in series.values() for _, value in line]
    low_y, high_y = math.floor(min(values)), math.ceil(max(values))
    wide, high = _WIDTH - _LEFT - 240, _HEIGHT - _TOP - 60

    def place(tasks: int, value: float) -> tuple[float, float]:
        x = _LEFT + wide * (math.log10(tasks) - low_x) / max(high_x - low_x, 1e-9)
        return x, _TOP + high * (high_y - math.log10(value)) / (high_y - low_y)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        f' font-size="12"><title>{_TITLE}</title><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{_TITLE}</text>',
    ]
    for power in range(low_y, high_y + 1):
        y = place(points[0].tasks, 10.0**power)[1]
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for tasks in sorted({one.tasks for one in points}):
        x = place(tasks, 1.0)[0]
        parts.append(f'<text x="{x:.1f}" y="{_TOP + high + 20}" text-anchor="middle">{tasks:,}</text>')
    parts.append(f'<text x="{_LEFT + wide / 2:.0f}" y="{_TOP + high + 44}" text-anchor="middle">tasks</text>')
    for at, (name, line) in enumerate(series.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        path = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in line)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        x, y = _LEFT + wide + 16, _TOP + 12 + 22 * at
        parts.append(f'<line x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 24}" y="{y + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"

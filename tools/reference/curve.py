"""Draws a training log as an SVG: ``python tools/reference/curve.py LOG.jsonl OUT.svg``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 760, 360, 60, 40, 50
# Colours of Okabe and Ito, distinguishable for colour-blind readers.
_LINES = (
    ("right_tool", "tool names", "#0072B2"),
    ("right_copied", "copied arguments", "#009E73"),
    ("right_answer", "answer tokens", "#D55E00"),
)


def svg(log: Sequence[dict[str, float]], title: str) -> str:
    """Share of right next tokens (argmax, training batches, drills included) and loss against the step."""
    last = log[-1]["step"]
    top_loss = max(line["loss"] for line in log)
    wide, high = _WIDTH - _LEFT - 180, _HEIGHT - _TOP - _BOTTOM

    def path(key: str, scale: float, colour: str, dash: str) -> str:
        points = " ".join(
            f"{_LEFT + wide * line['step'] / last:.1f},{_TOP + high * (1 - line[key] / scale):.1f}"
            for line in log
        )
        return f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dash} points="{points}"/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        f' font-size="12"><title>{title}</title><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">{title}</text>',
    ]
    for i in range(6):
        y = _TOP + high * (1 - i / 5)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{i / 5:.1f}</text>')
        x = _LEFT + wide * i / 5
        parts.append(
            f'<text x="{x:.1f}" y="{_TOP + high + 18}" text-anchor="middle">{last * i / 5:.0f}</text>'
        )
    middle = _LEFT + wide / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 12}" text-anchor="middle">optimizer step</text>')
    down = _TOP + high / 2
    parts.append(
        f'<text transform="translate(16 {down:.0f}) rotate(-90)" text-anchor="middle">share right</text>'
    )
    legend = [path(key, 1.0, colour, "") for key, _, colour in _LINES]
    legend.append(path("loss", top_loss, "#555", ' stroke-dasharray="5 3"'))
    names = [(name, colour) for _, name, colour in _LINES] + [(f"loss (1.0 = {top_loss:.2f} nats)", "#555")]
    for i, (name, colour) in enumerate(names):
        x, y = _LEFT + wide + 14, _TOP + 14 + 22 * i
        legend.append(f'<line x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        legend.append(f'<text x="{x + 24}" y="{y + 4}" font-size="11">{name}</text>')
    return "\n".join([*parts, *legend, "</svg>"]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 2:
        print("usage: python tools/reference/curve.py LOG.jsonl OUT.svg", file=sys.stderr)
        return 2
    source, out = Path(given[0]), Path(given[1])
    log = [json.loads(line) for line in source.read_text().splitlines()]
    out.write_text(svg(log, f"Training curve of {out.stem.removesuffix('-curve')}"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""False passes and stopping times of the sequential gate, beside the fixed test looked at again and again.

``python benchmarks/sequential.py [--draws 2000]`` prints the tables of docs/decisions.md.
Populations lie on up to three values of a task's difference; those at the margin are the least favourable.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

from qfr.analysis.decisions.bound import lower_bound
from qfr.stats.betting import above, below
from qfr.stats.lattice import Lattice

MARGIN, ALPHA, CAP, WAVE = 0.05, 0.05, 900, 30
BAR = math.log(1 / ALPHA)
Population = tuple[tuple[float, ...], tuple[float, ...]]
#: Name: values and chances; the mean of each is exactly −5 points.
AT_THE_MARGIN: dict[str, Population] = {
    "5 % lose all": ((-1.0, 0.0), (0.05, 0.95)),
    "10 % lose all, 5 % gain all": ((-1.0, 0.0, 1.0), (0.10, 0.85, 0.05)),
    "30 % lose all, 25 % gain all": ((-1.0, 0.0, 1.0), (0.30, 0.45, 0.25)),
    "10 % lose half": ((-0.5, 0.0), (0.10, 0.90)),
    "all lose 5 points": ((-0.05,), (1.0,)),
    "rare loss, small gains": ((-1.0, 0.0, 1 / 6), (0.07, 0.81, 0.12)),
}
ELSEWHERE: dict[str, Population] = {
    "identical": ((0.0,), (1.0,)),
    "4 % differ either way": ((-1.0, 0.0, 1.0), (0.02, 0.96, 0.02)),
    "10 points better": ((-1.0, 0.0, 1.0), (0.05, 0.80, 0.15)),
    "15 points worse": ((-1.0, 0.0, 1.0), (0.20, 0.75, 0.05)),
    "30 points worse": ((-1.0, 0.0, 1.0), (0.35, 0.60, 0.05)),
}


def sequential(drawn: np.ndarray, step: int) -> tuple[str, int]:
    """Outcome and tasks of one path, looked at every `step` tasks."""
    up, down = above(drawn, -MARGIN), below(drawn, -MARGIN)
    for at in range(step - 1, len(drawn), step):
        if up[at] >= BAR:
            return "pass", at + 1
        if down[at] >= BAR:
            return "worse", at + 1
    return "open", len(drawn)


def fixed(drawn: np.ndarray, step: int) -> bool:
    """Whether the fixed gate's bound passes at any of the looks, which it is not made for."""
    sixths = np.rint(drawn * 60).astype(np.int64)
    for n in range(2 * step, len(drawn) + 1, step):
        bound = lower_bound(Lattice(sixths[:n], 60), ALPHA)
        if bound is not None and bound > -MARGIN:
            return True
    return False


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--fixed-draws", type=int, default=200, help="of the fixed test, which is slower")
    given = parser.parse_args()
    rng = np.random.default_rng(20261201)
    print(f"{time.strftime('%d %B %Y')}, {given.draws} draws, margin 5 points, cap {CAP}\n")
    print("| truth: worse by just 5 points | passes, every task | every wave | fixed test, every wave |")
    print("|---|---|---|---|")
    for name, (values, chances) in AT_THE_MARGIN.items():
        paths = [rng.choice(values, CAP, p=chances) for _ in range(given.draws)]
        every, waves = (
            sum(sequential(one, step)[0] == "pass" for one in paths) / len(paths) for step in (1, WAVE)
        )
        again = sum(fixed(one, WAVE) for one in paths[: given.fixed_draws]) / given.fixed_draws
        print(f"| {name} | {100 * every:.1f} % | {100 * waves:.1f} % | {100 * again:.0f} % |")
    print(
        "\n| truth | tasks, mean (median) at every task | at every wave | pass / worse / open at every wave |"
    )
    print("|---|---|---|---|")
    for name, (values, chances) in ELSEWHERE.items():
        paths = [rng.choice(values, CAP, p=chances) for _ in range(max(200, given.draws // 4))]
        cells = []
        for step in (1, WAVE):
            ends = [sequential(one, step) for one in paths]
            tasks = [n for _, n in ends]
            cells.append(f"{np.mean(tasks):.0f} ({np.median(tasks):.0f})")
        shares = [
            f"{100 * sum(kind == one for kind, _ in ends) / len(ends):.1f}"
            for one in ("pass", "worse", "open")
        ]
        print(f"| {name} | {cells[0]} | {cells[1]} | {' / '.join(shares)} % |")


if __name__ == "__main__":
    main()

"""How often the gate and the pick are wrong.

    python benchmarks/decisions.py [--repeats 1000] [--seed 1] [--quick]

Prints the tables of docs/decisions.md. First, exactly: candidates that are worse by just the margin (five
points), every population on a three-valued lattice of a grid, and how often each way of deciding passes
them: the bound of the gate, the bootstrap (expanded percentile, one-sided 95 %) and t. Then, simulated: whole
ladders of presets through `pick`, and how often the named preset is truly worse by the margin or more.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.special import gammaln, stdtrit

from qfr.analysis.decisions.bound import chance_below, tasks_to_show
from qfr.analysis.decisions.pick import Preset, pick
from qfr.analysis.decisions.verdict import Rule
from qfr.analysis.targets import CellKey, TaskTable
from qfr.stats.bootstrap import mean
from qfr.stats.intervals import Options
from qfr.stats.lattice import Lattice

MARGIN = 0.05
ALPHA = 0.05
SUPPORTS = (  # sixths
    (-6, 0, 1), (-6, 0, 3), (-6, 0, 6), (-3, 0, 3), (-2, 0, 2), (-6, -1, 0), (-6, -3, 0), (-1, 0, 6),
    (-6, 1, 2),
)  # fmt: skip


# ------------------------------------------------------------------ exact


def gate(sample: Lattice) -> bool:
    """The gate's own decision."""
    return chance_below(sample, -MARGIN) < ALPHA


def bootstrap(sample: Lattice) -> bool:
    """Lower end of the expanded 90 % percentile interval; passes degenerate samples, as it stands."""
    low = mean(sample, options=Options(level=1 - 2 * ALPHA, expanded=True)).low
    return low is not None and low > -MARGIN


def student(sample: Lattice) -> bool:
    """Lower end of the 90 % t interval."""
    values = sample.values
    return bool(
        values.mean() - stdtrit(len(sample) - 1, 1 - ALPHA) * values.std(ddof=1) / math.sqrt(len(sample))
        > -MARGIN
    )


WAYS: dict[str, Callable[[Lattice], bool]] = {"gate": gate, "bootstrap": bootstrap, "t": student}


@dataclass(frozen=True)
class Worst:
    """Largest false-pass rate of one way over the populations of a support, and where."""

    rate: float
    population: tuple[float, float, float]


def populations(support: tuple[int, int, int]) -> Iterator[tuple[float, float, float]]:
    """Chances of three values (sixths) whose mean is minus the margin."""
    low, middle, high = support
    for share in np.linspace(0, 1, 81):
        # share = chance of the highest value; the rest follows from the mean.
        lost = (-6 * MARGIN - middle - share * (high - middle)) / (low - middle)
        rest = 1 - share - lost
        if min(lost, rest) >= -1e-12:
            yield float(lost), max(0.0, float(rest)), float(share)


def worst_cases(n: int, support: tuple[int, int, int], ways: tuple[str, ...]) -> dict[str, Worst]:
    """Enumerate every sample of n tasks: false-pass rates without simulation."""
    counts = np.array([(a, n - a - c, c) for a in range(n + 1) for c in range(n + 1 - a)])
    worst = dict.fromkeys(ways, Worst(0.0, (0.0, 0.0, 0.0)))
    decided = {}
    for way in ways:
        # Far more losses than the margin allows never pass; skipping them saves most of the work.
        decided[way] = np.array(
            [
                np.dot(row, support) / (6 * n) > -MARGIN
                and WAYS[way](Lattice(np.repeat(np.array(support, dtype=np.int64), row), 6))
                for row in counts
            ]
        )
    ways_to = gammaln(n + 1) - gammaln(counts + 1).sum(axis=1)
    for population in populations(support):
        chances = np.array(population)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(counts > 0, counts * np.log(chances), 0.0).sum(axis=1)
        weight = np.exp(ways_to + terms)
        for way in ways:
            rate = float(weight[decided[way]].sum())
            if rate > worst[way].rate:
                worst[way] = Worst(rate, population)
    return worst


def print_exact(sizes: tuple[int, ...]) -> None:
    """Largest false-pass rates per support and number of tasks."""
    print("| values of a task | tasks | gate | bootstrap | t |\n|---|---|---|---|---|")
    for support in SUPPORTS:
        for n in sizes:
            found = worst_cases(n, support, tuple(WAYS))
            values = ", ".join(f"{value / 6:+.2f}" if value else "0" for value in support)
            rates = " | ".join(f"{100 * found[way].rate:.1f}" for way in WAYS)
            print(f"| {values} | {n} | {rates} |", flush=True)


# ------------------------------------------------------------------ ladders


@dataclass(frozen=True)
class Ladder:
    """True differences of the presets from large to small, and how they come about."""

    name: str
    differences: tuple[float, ...]
    rare: bool
    # Losses of whole tasks (clean pass lost) instead of many small changes.


LADDERS = (
    Ladder("all worse by the margin, rare whole losses", (-0.05,) * 4, True),
    Ladder("all worse by the margin, many small changes", (-0.05,) * 4, False),
    Ladder("two equal, then worse by the margin", (0.0, 0.0, -0.05, -0.05), False),
    Ladder("two equal, then worse by the margin, rare", (0.0, 0.0, -0.05, -0.05), True),
    Ladder("equal, worse, equal, worse", (0.0, -0.1, 0.0, -0.05), False),
    Ladder("a slope", (0.0, -0.01, -0.03, -0.08), False),
    Ladder("all equal", (0.0, 0.0, 0.0, 0.0), False),
)
LEVELS = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
SKILL = 0.9
CHANGED = 0.3


def table(name: str, certified: np.ndarray, successes: np.ndarray, sites: np.ndarray) -> TaskTable:
    """A cell with every fault delivered on certified tasks."""
    ran = np.where(certified, sites, 0)
    return TaskTable(
        key=CellKey("m", name, "P0", "et", "tolerant", "s", "certified", 0),
        policy="tolerant",
        tasks=tuple(f"t{at}" for at in range(sites.size)),
        families=("",) * sites.size,
        certified=certified,
        successes=np.where(certified, successes, 0),
        delivered=ran,
        scheduled=ran,
    )


def draw(ladder: Ladder, n: int, rng: Generator) -> list[TaskTable]:
    """The reference and the presets of one ladder on n new tasks."""
    sites = np.where(np.arange(n) % 2, 3, 2)
    base = rng.binomial(sites, SKILL)
    everywhere = np.ones(n, dtype=np.bool_)
    found = [table("f16", everywhere, base, sites)]
    for name, difference in zip(LEVELS, ladder.differences, strict=True):
        if ladder.rare:
            # A task that loses its clean pass loses SKILL on average.
            certified = rng.random(n) >= -difference / SKILL
            found.append(table(name, certified, base, sites))
        else:
            again = rng.binomial(sites, SKILL + difference / CHANGED)
            found.append(table(name, everywhere, np.where(rng.random(n) < CHANGED, again, base), sites))
    return found


def presets(tables: list[TaskTable]) -> list[Preset]:
    """With file sizes that fall along the ladder."""
    sizes = range(len(tables), 0, -1)
    return [
        Preset(one.key.quant, size * 10**9, None, None, None, one)
        for size, one in zip(sizes, tables, strict=True)
    ]


def print_ladders(sizes: tuple[int, ...], repeats: int, rng: Generator) -> None:
    """How often the named preset is truly worse by the margin or more, and which is named."""
    heads = ("ladder", "tasks", "named one worse", "none", *LEVELS)
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for ladder in LADDERS:
        truth = dict(zip(LEVELS, ladder.differences, strict=True))
        for n in sizes:
            counts = dict.fromkeys(("none", *LEVELS), 0)
            for _ in range(repeats):
                reference, *others = presets(draw(ladder, n, rng))
                chosen = pick(reference, others, Rule(margin=MARGIN), 4e9).chosen
                counts[chosen.preset.name if chosen else "none"] += 1
            wrong = sum(counts[name] for name in LEVELS if truth[name] <= -MARGIN)
            shares = " | ".join(f"{100 * count / repeats:.0f}" for count in counts.values())
            print(f"| {ladder.name} | {n} | {100 * wrong / repeats:.1f} | {shares} |", flush=True)


def print_plans(repeats: int, rng: Generator) -> None:
    """Whether the planned numbers of tasks give the power that they were planned for."""
    print("| spread, points | planned tasks | shown, of planned 80 % |\n|---|---|---|")
    for moved in (0.02, 0.1, 0.3):
        # A share of tasks moves a whole point, half of them up.
        spread = math.sqrt(moved)
        needed = tasks_to_show(MARGIN, spread).n
        assert needed is not None
        shown = sum(
            gate(Lattice(rng.choice([-1, 0, 1], needed, p=[moved / 2, 1 - moved, moved / 2]), 1))
            for _ in range(repeats)
        )
        print(f"| {100 * spread:.0f} | {needed} | {100 * shown / repeats:.0f} |", flush=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    chosen = parser.parse_args()
    rng = np.random.default_rng(chosen.seed)
    print_exact((20, 60) if chosen.quick else (20, 60, 100, 150))
    print()
    print_plans(chosen.repeats, rng)
    print()
    print_ladders((100,) if chosen.quick else (20, 100, 450), chosen.repeats, rng)


if __name__ == "__main__":
    main()

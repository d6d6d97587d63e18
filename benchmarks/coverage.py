"""Real coverage of nominal 95 % bootstrap intervals on lattices like ours.

    python benchmarks/coverage.py [--repeats 4000] [--seed 1]

Prints the table of docs/statistics.md: for each population of task differences and each number of tasks,
how often the exact percentile interval holds the true mean, over all samples and over those whose interval
is not flagged, with the share of samples that are not flagged.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.random import Generator

from qfr.stats.bootstrap import mean, two_sample
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import FloatArray, IntArray, Lattice

SIZES = (4, 9, 14, 20, 50)
PAIR_SIZES = ((9, 9), (18, 14), (20, 20), (50, 40))
RATES = np.arange(7)  # sixths: tasks with two or three sites
DIFFERENCES = np.arange(-6, 7)


@dataclass(frozen=True)
class Coverage:
    """Shares of samples, 0..1: covered, not flagged, covered among those not flagged (nan if none)."""

    covered: float
    unflagged: float
    covered_unflagged: float


def rates(chance: float) -> FloatArray:
    """Distribution of one task's rate when every site succeeds by this chance, two sites or three."""
    mass = np.zeros(7)
    for sites in (2, 3):
        for k in range(sites + 1):
            mass[k * 6 // sites] += comb(sites, k) * chance**k * (1 - chance) ** (sites - k) / 2
    return mass


def differences(first: float, second: float) -> FloatArray:
    """Distribution of one task's difference between two independent presets."""
    mass = np.zeros(13)
    for sites in (2, 3):
        for k in range(sites + 1):
            for j in range(sites + 1):
                weight = comb(sites, k) * first**k * (1 - first) ** (sites - k)
                weight *= comb(sites, j) * second**j * (1 - second) ** (sites - j)
                mass[6 + (k - j) * 6 // sites] += weight / 2
    return mass


def tied(share: float, rest: Mapping[int, float]) -> FloatArray:
    """Distribution where a share of tasks ties and the rest differs by these sixths."""
    mass = np.zeros(13)
    mass[6] = share
    for sixths, weight in rest.items():
        mass[6 + sixths] += (1 - share) * weight
    return mass


def saturated(share: float, chance: float) -> FloatArray:
    """Distribution of rates where a share of tasks always succeeds and the rest by chance."""
    mass = (1 - share) * rates(chance)
    mass[6] += share
    return mass


PAIRED: dict[str, FloatArray] = {
    "dense, .8 against .5": differences(0.8, 0.5),
    "dense, .5 against .5": differences(0.5, 0.5),
    "dense, .9 against .4": differences(0.9, 0.4),
    "ceiling, .95 against .85": differences(0.95, 0.85),
    "ceiling, .99 against .90": differences(0.99, 0.9),
    "ceiling, .97 against .95": differences(0.97, 0.95),
    "sparse, 40 % differ, one way": tied(0.6, {2: 0.3, 3: 0.3, 6: 0.4}),
    "sparse, 30 % differ, both ways": tied(0.7, {6: 0.7, -2: 0.3}),
    "sparse, 25 % differ, one way": tied(0.75, {2: 0.3, 3: 0.3, 6: 0.4}),
    "sparse, 10 % differ, one way": tied(0.9, {6: 1.0}),
    "certified or not, 35 % differ": tied(0.65, {6: 0.9, -6: 0.1}),
}
TWO_SAMPLE: dict[str, tuple[FloatArray, FloatArray]] = {
    "dense, .6 against .6": (rates(0.6), rates(0.6)),
    "dense, .85 against .6": (rates(0.85), rates(0.6)),
    "70 % saturated against dense .6": (saturated(0.7, 0.4), rates(0.6)),
    "70 % saturated on both sides": (saturated(0.7, 0.4), saturated(0.7, 0.4)),
    "dense .6 against ceiling .99": (rates(0.6), rates(0.99)),
}


def tally(samples: list[tuple[Estimate, int]], truth: float) -> Coverage:
    """Count how often the truth lies within, over distinct samples with their multiplicities."""
    total = covered = unflagged = both = 0
    for estimate, count in samples:
        if estimate.low is None or estimate.high is None:
            raise ValueError("a sample without an interval")
        hit = estimate.low - 1e-12 <= truth <= estimate.high + 1e-12
        total += count
        covered += count * hit
        unflagged += count * estimate.reliable
        both += count * (hit and estimate.reliable)
    return Coverage(covered / total, unflagged / total, both / unflagged if unflagged else math.nan)


def paired_coverage(mass: FloatArray, n: int, repeats: int, way: tuple[Options, Generator]) -> Coverage:
    """Coverage of the paired interval: the population is the distribution of task differences."""
    options, rng = way
    # A sample matters only through how often each difference occurs in it.
    drawn, counts = np.unique(rng.multinomial(n, mass, size=repeats), axis=0, return_counts=True)
    samples = [
        (mean(Lattice(np.repeat(DIFFERENCES, row), 6), options=options), int(count))
        for row, count in zip(drawn, counts, strict=True)
    ]
    return tally(samples, float(mass @ DIFFERENCES) / 6)


def two_sample_coverage(
    masses: tuple[FloatArray, FloatArray],
    sizes: tuple[int, int],
    repeats: int,
    way: tuple[Options, Generator],
) -> Coverage:
    """Coverage of the two-sample interval: two independent populations of task rates."""
    options, rng = way

    def draw(side: int) -> list[IntArray]:
        return [np.repeat(RATES, row) for row in rng.multinomial(sizes[side], masses[side], size=repeats)]

    samples = [
        (two_sample(Lattice(one, 6), Lattice(other, 6), options=options), 1)
        for one, other in zip(draw(0), draw(1), strict=True)
    ]
    return tally(samples, float((masses[0] - masses[1]) @ RATES) / 6)


def cell(coverage: Coverage) -> str:
    """Format `all / not flagged (share not flagged)`, in per cent."""
    if not coverage.unflagged:
        return f"{100 * coverage.covered:.1f} / – (0)"
    unflagged = f"{100 * coverage.covered_unflagged:.1f} ({100 * coverage.unflagged:.0f})"
    return f"{100 * coverage.covered:.1f} / {unflagged}"


def print_table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n")
    print("| " + " | ".join(head) + " |")
    print("|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    for expanded in (False, True):
        way = (Options(expanded=expanded), rng)
        name = "expanded percentile" if expanded else "percentile"
        rows = [
            [title, *(cell(paired_coverage(mass, n, asked.repeats, way)) for n in SIZES)]
            for title, mass in PAIRED.items()
        ]
        print_table(f"Paired, {name}", ["population", *(f"n = {n}" for n in SIZES)], rows)
    way = (Options(), rng)
    rows = [
        [title, *(cell(two_sample_coverage(masses, sizes, asked.repeats // 4, way)) for sizes in PAIR_SIZES)]
        for title, masses in TWO_SAMPLE.items()
    ]
    print_table("Two-sample, percentile", ["population", *(f"n = {a}, {b}" for a, b in PAIR_SIZES)], rows)


if __name__ == "__main__":
    main()

"""Real coverage of nominal 95 % intervals on lattices like ours.

    python benchmarks/coverage.py [--repeats 4000] [--seed 1] [--grid | --together]

Prints the tables of docs/statistics.md. Simulated: for each population of task differences and each number of
tasks, how often the percentile interval, the expanded one and the Bayesian one hold the true mean, over all
samples and over those whose interval is not flagged, with the share of samples that are not flagged. Exactly
(`--grid`, nothing else): every population of a grid over three values of a task, every sample of n tasks.
Intervals of several prompts (`--together`, nothing else): how often all of them hold at once.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
from numpy.random import Generator
from scipy.special import expit, gammaln

from qfr.stats.bayesian import IMAGINED, interval, joint
from qfr.stats.bootstrap import mean, two_sample
from qfr.stats.dirichlet import chance_at_most, with_imagined
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import FloatArray, IntArray, Lattice
from qfr.stats.multiplicity import simultaneous

SIZES = (4, 9, 14, 20, 40)
GRID_SIZES = (9, 14, 20, 40)
PAIR_SIZES = ((9, 9), (18, 14), (20, 20), (50, 40))
RATES = np.arange(7)  # sixths: tasks with two or three sites
DIFFERENCES = np.arange(-6, 7)
LEVEL = 0.95
SLACK = 1e-9
#: The grid: every three of these values of a task, in sixths. A support and its mirror image cover alike.
GRID_VALUES = (-6, -3, -1, 0, 1, 3, 6)
SUPPORTS = tuple(one for one in combinations(GRID_VALUES, 3) if one <= tuple(-value for value in one[::-1]))
#: Chances on the grid are multiples of one over this.
GRID = 40


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


def counted(counts: Mapping[int, int]) -> FloatArray:
    """Distribution with these counts of sixths."""
    mass = np.zeros(13)
    for sixths, count in counts.items():
        mass[6 + sixths] = count
    found: FloatArray = mass / mass.sum()
    return found


def published() -> dict[str, FloatArray]:
    """Full-pipeline differences of the reconstructed tables of Hu 2026, 8 against 4 bit, as populations."""
    path = Path(__file__).parent.parent / "tests" / "fixtures" / "golden.json"
    golden = json.loads(path.read_text(encoding="utf-8"))

    def sixths(name: str) -> list[int]:
        pairs = zip(golden["tables"][name], golden["sites"], strict=True)
        return [0 if hits is None else 6 * hits // sites for hits, sites in pairs]

    found = {}
    for name in golden["tables"]:
        model, bits, prompt = name.split("/")
        if bits == "8":
            values = np.subtract(sixths(name), sixths(f"{model}/4/{prompt}"))
            found[f"{model} {prompt}"] = np.bincount(values + 6, minlength=13) / values.size
    return found


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
# Populations on which an interval that knows only what was seen must fail.
ADVERSARIAL: dict[str, FloatArray] = {
    "5 % lose the task, the rest gain 1/6": counted({-6: 5, 1: 95}),
    "5 % lose the task, half gain 1/6": counted({-6: 5, 0: 45, 1: 50}),
    "10 % lose the task, the rest gain 1/3": counted({-6: 10, 2: 90}),
    "2 % lose the task, the rest tie": counted({-6: 2, 0: 98}),
    "5 % lose half, the rest gain 1/6": counted({-3: 5, 1: 95}),
    "3 % gain the task, the rest lose 1/6": counted({6: 3, -1: 97}),
}
# ref_llama on the 450 tasks of `orders450_ref`, transient faults, full pipeline: how many tasks differ by how
# many sixths.
REAL: dict[str, FloatArray] = {
    "P4, Q8_0 against Q4_K_M": counted({-4: 1, -3: 34, -2: 166, 0: 245, 2: 3, 3: 1}),
    "P4, Q8_0 against Q3_K_M": counted({-3: 1, -2: 3, 0: 410, 2: 34, 3: 2}),
}
TWO_SAMPLE: dict[str, tuple[FloatArray, FloatArray]] = {
    "dense, .6 against .6": (rates(0.6), rates(0.6)),
    "dense, .85 against .6": (rates(0.85), rates(0.6)),
    "70 % saturated against dense .6": (saturated(0.7, 0.4), rates(0.6)),
    "70 % saturated on both sides": (saturated(0.7, 0.4), saturated(0.7, 0.4)),
    "dense .6 against ceiling .99": (rates(0.6), rates(0.99)),
}


# What a way says of a sample: whether its interval holds the truth, and whether it is not flagged.
Way = Callable[[Lattice, float], tuple[bool, bool]]


def holds(estimate: Estimate, truth: float) -> tuple[bool, bool]:
    """As `Way` returns it."""
    if estimate.low is None or estimate.high is None:
        raise ValueError("a sample without an interval")
    return estimate.low - SLACK <= truth <= estimate.high + SLACK, estimate.reliable


def percentile(sample: Lattice, truth: float) -> tuple[bool, bool]:
    """The plain percentile interval."""
    return holds(mean(sample), truth)


def expanded(sample: Lattice, truth: float) -> tuple[bool, bool]:
    """Hesterberg's expanded percentile interval."""
    return holds(mean(sample, options=Options(expanded=True)), truth)


def bayesian(sample: Lattice, truth: float) -> tuple[bool, bool]:
    """The Bayesian interval, by the chance at the truth: one integral instead of some twenty for two ends."""
    at = sample.mean
    assert at is not None
    below = chance_at_most(*with_imagined(sample, {-1.0: IMAGINED, 1.0: IMAGINED}), truth)
    tail = (1 - LEVEL) / 2
    return tail - SLACK <= below <= 1 - tail + SLACK or abs(at - truth) < SLACK, True


WAYS: dict[str, Way] = {"percentile": percentile, "expanded": expanded, "bayesian": bayesian}


def tally(samples: list[tuple[bool, bool, int]]) -> Coverage:
    """Shares over samples (holds the truth, not flagged, multiplicity)."""
    hit, unflagged, counts = (np.array(column) for column in zip(*samples, strict=True))
    total, kept = counts.sum(), counts @ unflagged
    both = counts @ (hit & unflagged)
    return Coverage(
        float(counts @ hit / total), float(kept / total), float(both / kept) if kept else math.nan
    )


def paired_coverage(mass: FloatArray, n: int, repeats: int, way: Way, rng: Generator) -> Coverage:
    """Coverage of the paired interval: the population is the distribution of task differences."""
    # A sample matters only through how often each difference occurs in it.
    drawn, counts = np.unique(rng.multinomial(n, mass, size=repeats), axis=0, return_counts=True)
    truth = float(mass @ DIFFERENCES) / 6
    return tally(
        [
            (*way(Lattice(np.repeat(DIFFERENCES, row), 6), truth), int(count))
            for row, count in zip(drawn, counts, strict=True)
        ]
    )


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

    truth = float((masses[0] - masses[1]) @ RATES) / 6
    return tally(
        [
            (*holds(two_sample(Lattice(one, 6), Lattice(other, 6), options=options), truth), 1)
            for one, other in zip(draw(0), draw(1), strict=True)
        ]
    )


# ------------------------------------------------------------------ own: two sets of one suite


def own_coverage(shared: float, n: int, repeats: int, rng: Generator) -> tuple[float, float]:
    """Coverage of *own* by the paper's two-sample interval and by the joint one.

    Each side certifies a task with chance 0.7; `shared` is how much both sides' rates and sets depend on the
    task alone: 0 = independent, 1 = equal but for four tasks in ten that the second side recovers less well.
    """
    hits = np.zeros(2)
    for _ in range(repeats):
        ease = rng.random((3, n))
        alike = rng.random(n) < shared
        certified = (ease[0] < 0.7, np.where(alike, ease[0], ease[1]) < 0.7)
        top = rng.binomial(3, 0.8, n) * 2
        bottom = np.where(alike, top, rng.binomial(3, 0.8, n) * 2)
        bottom = np.where(ease[2] < 0.4, bottom // 4 * 2, bottom)
        if not (certified[0].sum() > 1 and certified[1].sum() > 1):
            continue
        truth = OWN_TRUTH
        paper = two_sample(Lattice(top[certified[0]], 6), Lattice(bottom[certified[1]], 6))
        found = joint((top / 6, bottom / 6), certified, rng=rng, draws=2_000)
        assert found.low is not None
        assert found.high is not None
        hits += (holds(paper, truth)[0], found.low <= truth <= found.high)
    return float(hits[0] / repeats), float(hits[1] / repeats)


# Three sites at 0.8: the mean rate less what halving the successes (rounded down) takes from two in five.
_LAW = np.array([comb(3, k) * 0.8**k * 0.2 ** (3 - k) for k in range(4)])
OWN_TRUTH = 0.4 * float(_LAW @ (np.arange(4) - np.arange(4) * 2 // 4)) / 3


# ------------------------------------------------------------------ several prompts at once

#: What each of five prompts adds to the log odds of a site, and what the second preset loses.
PROMPTS = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
LOSS = 0.5


def together_coverage(spread: float, n: int, repeats: int, rng: Generator) -> float:
    """Share of samples in which the max-T intervals of five prompts all hold.

    A task has three sites and an ease, normal with standard deviation `spread` in log odds, which all prompts
    and both presets share.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    at_nodes = spread * nodes + PROMPTS[:, None]
    truth = (expit(at_nodes) - expit(at_nodes - LOSS)) @ (weights / weights.sum())
    held = 0
    for _ in range(repeats):
        odds = spread * rng.standard_normal(n) + PROMPTS[:, None]
        first, second = (rng.binomial(3, expit(odds - loss)) / 3 for loss in (0.0, LOSS))
        found = simultaneous(first, second, rng=rng, resamples=2_000).intervals
        held += all(
            one.low is not None and one.high is not None and one.low <= value <= one.high
            for one, value in zip(found, truth, strict=True)
        )
    return held / repeats


# ------------------------------------------------------------------ exact grid


def grid() -> FloatArray:
    """Chances of three values, shape (n_populations, 3): all multiples of 1 / GRID."""
    rows = [(a, b, GRID - a - b) for a in range(GRID + 1) for b in range(GRID + 1 - a)]
    return np.array(rows) / GRID


def grid_weights() -> FloatArray:
    """How often each population counts, shape (n_supports, n_populations): once over all supports together.

    Two values stand in several supports, and a support that differs from its mirror image stands for both.
    """
    others = len(GRID_VALUES)
    shared = np.array([0, comb(others - 1, 2), others - 2, 1])
    once = 1 / shared[(grid() > 0).sum(axis=1)]
    twice = np.array([1 if one == tuple(-value for value in one[::-1]) else 2 for one in SUPPORTS])
    return np.outer(twice, once)


def compositions(n: int) -> IntArray:
    """Every sample of n tasks by how often each of three values occurs."""
    return np.array([(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)])


def grid_coverages(support: tuple[int, ...], n: int) -> dict[str, FloatArray]:
    """Coverage of each way at every population of the grid, exactly."""
    samples, chances = compositions(n), grid()
    truths = chances @ np.array(support) / 6
    # Multinomial chances, shape (n_populations, n_samples); 0 log 0 is 0.
    logs = np.log(np.where(chances > 0, chances, 1e-300))
    weights = np.exp(gammaln(n + 1) - gammaln(samples + 1).sum(axis=1) + logs @ samples.T)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for row in samples:
        sample = Lattice(np.repeat(np.array(support, dtype=np.int64), row), 6)
        plain, wide, random = mean(sample), mean(sample, options=Options(expanded=True)), interval(sample)
        intervals = ((plain.low, plain.high), (wide.low, wide.high), (random.low, random.high))
        for name, one in zip(WAYS, intervals, strict=True):
            low, high = one
            assert low is not None
            assert high is not None
            found[name].append((low - SLACK, high + SLACK))
    covered = {}
    for name, pairs in found.items():
        ends = np.array(pairs)
        inside = (ends[None, :, 0] <= truths[:, None]) & (truths[:, None] <= ends[None, :, 1])
        covered[name] = (weights * inside).sum(axis=1)
    return covered


def grid_rows() -> Iterator[list[str]]:
    """Per number of tasks and way: populations with at least 93 %, the smallest coverage, and where."""
    weights = grid_weights()
    for n in GRID_SIZES:
        everything = [grid_coverages(support, n) for support in SUPPORTS]
        for name in WAYS:
            values = np.concatenate([one[name] for one in everything])
            at = int(values.argmin())
            support, chances = SUPPORTS[at // len(grid())], grid()[at % len(grid())]
            where = ", ".join(f"{100 * c:g} % {v:+d}/6" for v, c in zip(support, chances, strict=True))
            share = 100 * float(weights.ravel() @ (values >= 0.93)) / float(weights.sum())
            yield [str(n), name, f"{share:.1f}", f"{100 * values[at]:.1f}", where]


def cell(coverage: Coverage) -> str:
    """Format `all / not flagged (share not flagged)`, in per cent; one number where nothing is flagged."""
    if coverage.unflagged == 1:
        return f"{100 * coverage.covered:.1f}"
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


def print_paired(repeats: int, rng: Generator) -> None:
    """One table per kind of population, the three ways side by side."""
    kinds = {"made": PAIRED, "published": published(), "real": REAL, "adversarial": ADVERSARIAL}
    for kind, populations in kinds.items():
        rows = [
            [title, way, *(cell(paired_coverage(mass, n, repeats, WAYS[way], rng)) for n in SIZES)]
            for title, mass in populations.items()
            for way in WAYS
        ]
        print_table(
            f"Paired, {kind} populations", ["population", "interval", *(f"n = {n}" for n in SIZES)], rows
        )


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--grid", action="store_true", help="the exact grid alone")
    only.add_argument("--together", action="store_true", help="max-T intervals of five prompts alone")
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    if asked.grid:
        head = ["tasks", "interval", "populations with at least 93 %", "smallest coverage", "where"]
        print_table(f"Exact, {grid_weights().sum():,.0f} populations", head, list(grid_rows()))
        return
    if asked.together:
        rows = [
            [
                f"{spread:g}",
                *(f"{100 * together_coverage(spread, n, asked.repeats, rng):.1f}" for n in GRID_SIZES),
            ]
            for spread in (0.0, 1.0, 2.0)
        ]
        head = ["spread of tasks", *(f"n = {n}" for n in GRID_SIZES)]
        print_table("All five max-T intervals hold, in per cent", head, rows)
        return
    print_paired(asked.repeats, rng)
    way = (Options(), rng)
    rows = [
        [title, *(cell(two_sample_coverage(masses, sizes, asked.repeats // 4, way)) for sizes in PAIR_SIZES)]
        for title, masses in TWO_SAMPLE.items()
    ]
    print_table("Two-sample, percentile", ["population", *(f"n = {a}, {b}" for a, b in PAIR_SIZES)], rows)
    rows = [
        [
            f"{shared:g}",
            str(n),
            *(f"{100 * one:.1f}" for one in own_coverage(shared, n, asked.repeats // 4, rng)),
        ]
        for shared in (0.0, 0.5, 1.0)
        for n in (20, 40, 100)
    ]
    print_table("Own", ["what both sides share", "tasks", "two-sample", "joint"], rows)


if __name__ == "__main__":
    main()

"""Speed of the exact and the Monte Carlo bootstrap against `scipy.stats.bootstrap` on the same data.

    python benchmarks/bootstrap.py [--rounds 7] [--sizes 9 14 20 100 1000 10000]

Every round times all methods in turn on one machine, so that drift hits them alike. A ratio is scipy's
time over ours in the same round; the table gives the median and the range over rounds. Everyone starts
from what they take as input: ours from exact differences (and, in its own row, from successes and sites),
scipy from float differences. All compute a 95 % percentile interval; the Monte Carlo ones with 20,000
resamples.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy
from scipy.stats import bootstrap as scipy_bootstrap

from qfr.stats.bootstrap import mean, paired, two_sample
from qfr.stats.intervals import Method, Options
from qfr.stats.lattice import Lattice, difference

MONTECARLO = Options(method=Method.MONTECARLO)
#: scipy draws resamples times tasks indices at once; this keeps it within memory.
SCIPY_BATCH_ITEMS = 20_000_000


def contenders(n: int, seed: int) -> dict[str, Callable[[], object]]:
    """Return the timed calls by name, on one data set of n tasks with two or three sites."""
    rng = np.random.default_rng(seed)
    sites = 2 + np.arange(n) % 2
    counts = [rng.binomial(sites, chance) for chance in (0.85, 0.6)]
    first, second = (Lattice.from_counts(side, sites) for side in counts)
    exact = difference(first, second)
    floats, rates = exact.values, (first.values, second.values)
    batch = max(1, min(20_000, SCIPY_BATCH_ITEMS // n))

    def scipy_paired() -> object:
        return scipy_bootstrap(
            (floats,), np.mean, n_resamples=20_000, method="percentile", batch=batch, rng=rng, vectorized=True
        )

    def scipy_two_sample() -> object:
        return scipy_bootstrap(
            rates,
            lambda one, other, axis: one.mean(axis=axis) - other.mean(axis=axis),
            n_resamples=20_000,
            method="percentile",
            batch=batch,
            rng=rng,
            vectorized=True,
        )

    def from_counts() -> object:
        return paired(Lattice.from_counts(counts[0], sites), Lattice.from_counts(counts[1], sites))

    return {
        "scipy paired": scipy_paired,
        "exact paired": lambda: mean(exact),
        "exact paired, from counts": from_counts,
        "montecarlo paired": lambda: mean(exact, options=MONTECARLO, rng=rng),
        "scipy two-sample": scipy_two_sample,
        "exact two-sample": lambda: two_sample(first, second),
        "montecarlo two-sample": lambda: two_sample(first, second, options=MONTECARLO, rng=rng),
    }


def seconds(call: Callable[[], object], at_least: float = 0.02) -> float:
    """Return the time of one call, averaged over enough calls to be measurable."""
    calls = 0
    begin = time.perf_counter()
    while True:
        call()
        calls += 1
        spent = time.perf_counter() - begin
        if spent >= at_least:
            return spent / calls


def measure(n: int, rounds: int) -> dict[str, list[float]]:
    """Time every contender in every round, interleaved."""
    calls = contenders(n, seed=n)
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return times


def row(n: int, name: str, times: dict[str, list[float]]) -> str:
    """Format one line: median time and median ratio with its range."""
    against = f"scipy {name.split()[1].rstrip(',')}"
    ratios = [theirs / ours for theirs, ours in zip(times[against], times[name], strict=True)]
    ours, theirs = statistics.median(times[name]), statistics.median(times[against])
    cells = [
        f"{n:,}",
        name,
        f"{1e6 * ours:,.0f}",
        f"{1e6 * theirs:,.0f}",
        f"{statistics.median(ratios):.1f}",
        f"{min(ratios):.1f}–{max(ratios):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs="+", default=[9, 14, 20, 100, 1000, 10_000])
    asked = parser.parse_args()
    versions = f"Python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}"
    print(f"{versions}, {asked.rounds} rounds\n")
    print("| n | method | µs | scipy µs | times faster | range |")
    print("|---|---|---|---|---|---|")
    for n in asked.sizes:
        times = measure(n, asked.rounds)
        for name in times:
            if not name.startswith("scipy"):
                print(row(n, name, times), flush=True)


if __name__ == "__main__":
    main()

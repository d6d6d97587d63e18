"""What shared noise is worth: the spread of paired differences between presets, with the noise shared or own.

    python run.py experiment=sampling_noise
    python -m benchmarks.noise mlruns s-…

For every two presets of a prompt and repetition: the standard deviation over tasks of the full-pipeline
difference with shared and with own noise, and the ratio of the variances. Below 1 is what sharing saves.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np

from qfr.analysis.decisions.cells import tables_of
from qfr.analysis.targets import Target, full_rates
from qfr.records import Policy
from qfr.stats.lattice import FloatArray
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import open_store


def rates(root: Path, sweep: str) -> dict[tuple[str, int, str], dict[str, FloatArray]]:
    """Full-pipeline rate of every task, by prompt, repetition and whose noise it is; then by preset."""
    cells = read_cells(open_store(None, root, "qfr"), sweep=sweep).cells
    noises = {one.facts.cell_id: json.loads(one.facts.config)["engine"]["noise"] for one in cells}
    found: dict[tuple[str, int, str], dict[str, FloatArray]] = defaultdict(dict)
    for table in tables_of(cells, Policy.tolerant, Target.full):
        key, whole = table.key, np.ones(len(table.tasks), dtype=bool)
        found[key.prompt, key.trial, noises[table.cells[0]]][key.quant] = full_rates(table, whole).values
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("sweep")
    asked = parser.parse_args()
    found = rates(asked.root, asked.sweep)
    print("| prompt | repetition | presets | SD, own noise | SD, shared noise | variance, shared ÷ own |")
    print("|---|---|---|---|---|---|")
    sums = np.zeros(2)
    for prompt, trial in sorted({key[:2] for key in found}):
        own, shared = found[prompt, trial, "own"], found[prompt, trial, "shared"]
        for a, b in combinations(sorted(own), 2):
            spreads = np.array([np.std(one[a] - one[b], ddof=1) for one in (own, shared)])
            sums += spreads**2
            ratio = "–" if spreads[0] == 0 else f"{(spreads[1] / spreads[0]) ** 2:.2f}"
            cells = (prompt, str(trial), f"{a}, {b}", f"{spreads[0]:.3f}", f"{spreads[1]:.3f}", ratio)
            print("| " + " | ".join(cells) + " |")
    print(f"\nAll together, variance with shared noise ÷ with own: {sums[1] / sums[0]:.2f}")


if __name__ == "__main__":
    main()

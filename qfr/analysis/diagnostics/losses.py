"""What another preset loses: episodes in which the reference succeeds and the other does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfr.analysis.diagnostics.keys import codes, find
from qfr.analysis.diagnostics.log import Log
from qfr.records import FaultKind, Policy
from qfr.stats.lattice import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Losses:
    """The reference's successes, and which of them the other keeps."""

    rows: IntArray
    # Rows of the reference's episodes that succeeded and can be compared, shape (n,).
    lost: BoolArray
    # The other fails it, shape (n,).
    uncertified: int
    # Of those lost: fault episodes that the other never ran because it failed the task's clean pass.
    incomparable: int
    # Successes of the reference without a counterpart: not run, or the other's fault never fired.

    def by_task(self, log: Log) -> tuple[IntArray, BoolArray]:
        """Tasks (indices into the reference's) with a comparable success, and whether any is lost."""
        task = log.task_of[self.rows]
        compared = np.bincount(task, minlength=len(log.tasks)) > 0
        lost = np.bincount(task, weights=self.lost, minlength=len(log.tasks)) > 0
        return np.flatnonzero(compared), lost[compared]


def losses(reference: Log, other: Log, policy: Policy) -> Losses:
    """Find what the other loses of the reference's successes, episode by episode.

    A fault episode that the other never ran counts as lost when the other's log holds the task's clean pass
    and that failed: a deployed agent would have failed the task. So hand in logs that hold the clean pass
    as well.

    Raises
    ------
    TableError
        If a table holds no scores.
    """
    delivered = reference.score(policy, "delivered")
    rows = np.flatnonzero(reference.score(policy) & delivered)
    wanted, among = codes(reference.episodes, other.episodes)
    at = find(wanted[rows], among)
    met = at >= 0
    kept = np.zeros(rows.size, dtype=np.bool_)
    comparable = np.zeros(rows.size, dtype=np.bool_)
    kept[met] = other.score(policy)[at[met]]
    comparable[met] = other.score(policy, "delivered")[at[met]]
    clean = (other.episodes["fault"] == str(FaultKind.none)).to_numpy(dtype=np.bool_)
    failed = other.episodes["task"][clean & ~other.score(policy)].unique()
    never = ~met & reference.episodes["task"].iloc[rows].isin(failed).to_numpy(dtype=np.bool_)
    counted = comparable | never
    return Losses(rows[counted], ~kept[counted], int(never.sum()), int((~counted).sum()))

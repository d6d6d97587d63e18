"""Narrow margins: quantization noise flips decisions that were close (Jang 2026).

The margin of a token is its logit minus the runner-up's. The *deciding token* of a turn is the one with the
smallest margin, since under greedy decoding it is where the least noise changes the text. That is what the
tables hold; a token that in fact parted two presets is known only from a pair of transcripts, and
`divergence` says how often it was this one. A longer turn has more tokens and so a smaller smallest margin:
compare like turns.

A turn is *wrong* when its call failed by the agent's own error, when it submits an answer or reports
failure and the episode does not succeed. Every other turn is *right*, a call that met the injected fault
included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from qfr.analysis.diagnostics.log import Log, codes, find
from qfr.analysis.diagnostics.resampled import DEFAULT, affordable
from qfr.records import FaultKind, Policy
from qfr.stats.association import Area, area_under_curve
from qfr.stats.intervals import Options
from qfr.stats.lattice import BoolArray, FloatArray, IntArray


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


PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Spread:
    """A distribution of smallest margins, in logits."""

    n: int
    quantiles: tuple[float, ...]
    # At PROBABILITIES; empty without values.


@dataclass(frozen=True)
class TurnMargins:
    """Margins at the deciding token of right and wrong turns."""

    name: str
    policy: str
    right: Spread
    wrong: Spread
    without: int
    # Turns without a margin (nothing generated, or a log that has none).
    area: Area
    # How well a small margin tells wrong turns from right ones: the chance that a wrong turn has the
    # smaller one.


@dataclass(frozen=True)
class Foretold:
    """How well the reference's margins foretell what the other loses."""

    reference: str
    other: str
    policy: str
    by_task: Area
    # Tasks with a success of the reference; positive = the other loses at least one of them; score = smallest
    # margin over all of the reference's episodes of the task.
    by_episode: Area
    # The reference's successful episodes; positive = lost; score = the episode's smallest margin.
    uncertified: int
    # Episodes lost because the other failed the clean pass.
    incomparable: int
    # The reference's successes without a counterpart.
    without: int
    # Comparable successes without a margin, left out.


def turn_margins(log: Log, policy: Policy, *, rng: Generator, options: Options = DEFAULT) -> TurnMargins:
    """Compare the margins at the deciding tokens of right and wrong turns.

    Parameters
    ----------
    log : Log
        With scores, and ``min_margin`` of the calls.
    options : Options
        Level and resamples (fewer for an area over many turns: `resampled.affordable`).
    """
    margin, wrong = log.numbers("min_margin"), wrong_turns(log, policy)
    known = np.isfinite(margin)
    task = log.task_of[log.episode_of]
    way = affordable(options, int(known.sum()))
    return TurnMargins(
        name=log.name,
        policy=str(policy),
        right=_spread(margin[known & ~wrong]),
        wrong=_spread(margin[known & wrong]),
        without=int((~known).sum()),
        area=area_under_curve(-margin[known], wrong[known], task[known], rng=rng, options=way),
    )


def wrong_turns(log: Log, policy: Policy) -> BoolArray:
    """Whether each turn is wrong under a policy, shape (n_calls,)."""
    failed = ~log.score(policy)[log.episode_of]
    return log.erred | ((log.submits | log.reports) & failed)


def foretold(
    reference: Log, other: Log, policy: Policy, *, rng: Generator, options: Options = DEFAULT
) -> Foretold:
    """Return how well the reference's smallest margins foretell which of its successes the other loses.

    Parameters
    ----------
    reference, other : Log
        Best with the clean pass (`losses`).
    options : Options
        Level and resamples.
    """
    found = losses(reference, other, policy)
    episode, task = smallest_margins(reference)
    score = episode[found.rows]
    known = np.isfinite(score)
    where = reference.task_of[found.rows]
    way = affordable(options, int(known.sum()))
    by_episode = area_under_curve(-score[known], found.lost[known], where[known], rng=rng, options=way)
    tasks, lost = found.by_task(reference)
    named = np.isfinite(task[tasks])
    way = affordable(options, int(named.sum()))
    by_task = area_under_curve(-task[tasks][named], lost[named], tasks[named], rng=rng, options=way)
    return Foretold(
        reference=reference.name,
        other=other.name,
        policy=str(policy),
        by_task=by_task,
        by_episode=by_episode,
        uncertified=found.uncertified,
        incomparable=found.incomparable,
        without=int((~known).sum()),
    )


def smallest_margins(log: Log) -> tuple[FloatArray, FloatArray]:
    """Return the smallest margin of each episode and of each task, in logits, inf where none is logged."""
    margin = np.nan_to_num(log.numbers("min_margin"), nan=np.inf)
    episode = np.full(log.n_episodes, np.inf)
    np.minimum.at(episode, log.episode_of, margin)
    task = np.full(len(log.tasks), np.inf)
    np.minimum.at(task, log.task_of, episode)
    return episode, task


def _spread(margins: FloatArray) -> Spread:
    quantiles = np.quantile(margins, PROBABILITIES).tolist() if margins.size else []
    return Spread(int(margins.size), tuple(map(float, quantiles)))

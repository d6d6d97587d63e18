"""Rank correlation, and how well a score tells two outcomes apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from qfr.errors import TableError
from qfr.stats.intervals import Estimate, Method, Options
from qfr.stats.lattice import BoolArray, FloatArray, IntArray
from qfr.stats.reliability import FEWEST_TASKS, FEWEST_TASKS_PLAIN
from qfr.stats.resampling import ends, weight_batches


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation.

    Attributes
    ----------
    value : float or None
        -1..1; None when undefined.
    n : int
        Pairs.
    reason : str or None
    """

    value: float | None
    n: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class Area:
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting half.

    Attributes
    ----------
    estimate : Estimate
        Value and task-bootstrap interval; ``n`` counts tasks.
    positives, negatives : int
        Items of either outcome.
    """

    estimate: Estimate
    positives: int
    negatives: int


def spearman(first: FloatArray, second: FloatArray) -> Correlation:
    """Return Spearman's rank correlation, ties at their mean rank; None for constant input.

    Raises
    ------
    TableError
        If the lengths differ or a value is nan.
    """
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != other.shape or one.ndim != 1:
        raise TableError(f"{one.shape} values against {other.shape}", hint="pair the values")
    if np.isnan(one).any() or np.isnan(other).any():
        raise TableError("a value is nan", hint="leave out pairs without a value")
    n = int(one.size)
    if n < 2:
        return Correlation(None, n, "fewer than two pairs")
    for side, values in (("first", one), ("second", other)):
        if bool((values == values[0]).all()):
            return Correlation(None, n, f"the {side} variable is constant")
    # scipy.stats takes most of a second to load.
    from scipy.stats import spearmanr

    return Correlation(float(spearmanr(one, other).statistic), n, None)


def area_under_curve(
    scores: FloatArray,
    positive: BoolArray,
    tasks: IntArray,
    *,
    rng: Generator,
    options: Options | None = None,
) -> Area:
    """Return the area under the ROC curve with a percentile interval that resamples tasks.

    Parameters
    ----------
    scores : array, shape (n_items,)
        Higher should mean positive.
    positive : bool array, shape (n_items,)
    tasks : int array, shape (n_items,)
        Task of each item; items of one task are drawn together.
    rng : numpy.random.Generator
    options : Options, optional
        Level and resamples.

    Raises
    ------
    TableError
        If the lengths differ or a score is nan.
    """
    way = options or Options()
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=np.bool_)
    if not values.shape == truth.shape == np.shape(tasks) or values.ndim != 1:
        raise TableError(f"{values.size} scores, {truth.size} outcomes, {np.size(tasks)} tasks")
    if np.isnan(values).any():
        raise TableError("a score is nan", hint="leave out items without a score")
    names = np.unique(np.asarray(tasks))
    task_of = np.searchsorted(names, np.asarray(tasks))
    n, up, down = int(names.size), int(truth.sum()), int((~truth).sum())
    if up == 0 or down == 0:
        missing = "no item" if not values.size else f"no {'negative' if up else 'positive'} item"
        return Area(_no_interval(None, n, way, missing), up, down)
    order = np.argsort(values, kind="stable")
    ordered, truth, task_of = values[order], truth[order], task_of[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    value = float(_areas(np.ones((1, values.size)), truth, starts)[0])
    if n == 1:
        return Area(_no_interval(value, n, way, "one task: no interval"), up, down)
    batches = weight_batches(n, way.resamples, rng, values.size)
    drawn = np.concatenate([_areas(weights[:, task_of], truth, starts) for weights in batches])
    carriers = min(np.unique(task_of[truth]).size, np.unique(task_of[~truth]).size)
    return Area(_with_interval(value, drawn[np.isfinite(drawn)], (n, carriers), way), up, down)


def _with_interval(value: float, drawn: FloatArray, sizes: tuple[int, int], way: Options) -> Estimate:
    n, carriers = sizes
    lost = way.resamples - drawn.size
    if not drawn.size:
        return _no_interval(value, n, way, "no resample with both outcomes")
    low, high = ends(drawn, way.tail)
    doubts = None
    if low == high:
        doubts = "degenerate: the resampled area does not vary"
    elif n < FEWEST_TASKS_PLAIN or carriers < FEWEST_TASKS:
        doubts = f"unreliable: {n} tasks, {carriers} of them with the rarer outcome"
    remark = f"{lost} resamples with one outcome only left out" if lost else None
    reason = "; ".join(text for text in (doubts, remark) if text) or None
    counts = (way.level, n, None, Method.MONTECARLO, way.resamples)
    return Estimate(value, low, high, *counts, low == high, doubts is None, reason)


def _areas(weights: FloatArray, positive: BoolArray, starts: IntArray) -> FloatArray:
    """Return weighted areas, shape (rows,); items are sorted by score, `starts` begins each tied block."""
    up = np.add.reduceat(weights * positive, starts, axis=1)
    down = np.add.reduceat(weights * ~positive, starts, axis=1)
    below = np.cumsum(down, axis=1) - down / 2
    pairs = up.sum(axis=1) * down.sum(axis=1)
    won = (up * below).sum(axis=1)
    areas: FloatArray = np.divide(won, pairs, out=np.full_like(won, np.nan), where=pairs > 0)
    return areas


def _no_interval(value: float | None, n: int, way: Options, reason: str) -> Estimate:
    return Estimate(value, None, None, way.level, n, None, Method.MONTECARLO, None, False, False, reason)

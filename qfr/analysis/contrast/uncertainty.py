"""The intervals of a contrast beside the published one: which words rest on, and which know the families.

`contrasts` gives each contrast the paper's percentile interval (paired, or two-sample for *own*), which stays
what is published. Words rest on `bayesian`: for paired targets one weight per task, for *own* one weight per
task of the suite, since the two sets share tasks. `stratified` resamples within families, for targets that
every task of the suite enters: there the counts per family are fixed by the design.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from qfr.analysis.targets import Samples
from qfr.stats import bootstrap, lattice
from qfr.stats.bayesian import BayesianInterval, interval, joint
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import BoolArray, FloatArray, Lattice


def bayesian(drawn: Samples, rng: Generator, level: float = 0.95) -> BayesianInterval:
    """Return the interval of A minus B that words rest on, in fractions.

    Parameters
    ----------
    drawn : Samples
        As `targets.samples` returns them.
    rng : numpy.random.Generator
        Used for *own* alone; the paired interval is deterministic.
    level : float
    """
    if drawn.paired:
        return interval(lattice.difference(drawn.rates_a, drawn.rates_b), level=level)
    members = (drawn.enters_a, drawn.enters_b)
    rates = (_spread_out(drawn.rates_a, drawn.enters_a), _spread_out(drawn.rates_b, drawn.enters_b))
    return joint(rates, members, rng=rng, level=level)


def stratified(
    drawn: Samples, families: tuple[str, ...], options: Options, rng: Generator | None = None
) -> Estimate | None:
    """Return the percentile interval that resamples tasks within their families.

    Returns
    -------
    Estimate or None
        None where the counts per family are not fixed by the design: where not every task enters on both
        sides, or where the suite has one family.
    """
    if not (drawn.paired and drawn.enters_a.all() and drawn.enters_b.all()) or len(set(families)) < 2:
        return None
    strata = np.unique(np.array(families), return_inverse=True)[1].astype(np.int64)
    return bootstrap.paired(drawn.rates_a, drawn.rates_b, strata=strata, options=options, rng=rng)


def _spread_out(rates: Lattice, enters: BoolArray) -> FloatArray:
    """Return one rate per task of the suite; nan where the task is not in the set."""
    values: FloatArray = np.full(enters.size, np.nan)
    values[enters] = rates.values
    return values

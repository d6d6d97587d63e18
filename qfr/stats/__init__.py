"""Statistics on plain arrays: numpy and scipy only.

Rates are fractions in 0..1 and differences are fractions in -1..1 throughout this room; whoever shows them
turns them into points. A quantity that cannot be estimated is `None` with a reason; a degenerate but defined
one is its value with ``degenerate`` set and the reason. Chance comes in as a `numpy.random.Generator`.

- `lattice`: exact values, k over a common denominator
- `intervals`: results, Wilson intervals, the quantile rule, when an interval can be trusted
- `sums`: the exact distribution of a resampled sum
- `bootstrap`: percentile task bootstrap (mean, paired, two-sample, ratio), exact or Monte Carlo
- `dirichlet`: the distribution of a weighted mean with random weights, by an integral
- `bayesian`: the Bayesian bootstrap with imagined tasks, for one value per task and for two sets of one suite
- `exact`: sign test, sign-flip test, Fisher's exact test
- `multiplicity`: Holm, Benjamini-Hochberg, simultaneous intervals
- `equivalence`: two one-sided tests
- `power`: detectable differences and tasks needed
- `association`: rank correlation, area under the curve
"""

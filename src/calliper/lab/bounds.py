"""Coverage near one input: what is bounded, what is only estimated, and coverage in cells.

**Cells.** Data can prove coverage in a few cells of inputs: divide them into G cells *before*
looking at held-out points, count how many of the n_g points of cell g lie in their intervals, and
invert the binomial law at level δ/G, so that by Bonferroni all G bounds hold together (Clopper,
Pearson 1934, doi:10.1093/biomet/26.4.404):

    L_g = max{p : P(Bin(n_g, p) ≥ k_g) ≤ δ/G} = Beta⁻¹(δ/G; k_g, n_g − k_g + 1),
    P(L_g ≤ coverage in cell g, for all g) ≥ 1 − δ.

Any rule that is fixed in advance defines such cells: a season, a site, or k-means on training
inputs, where a point belongs to the nearest of G centres. Letters: 1−δ → ``confidence``, n_g,
k_g/n_g, L_g → ``n``, ``coverage``, ``lower`` of a ``Cell``.

Assumptions: held-out points are independent draws from the distribution of new points, and were
not used for training, calibration or the choice of cells. The bounds hold for these intervals,
whatever the method, not on average over calibration draws.

**Regions.** If the score σ did not depend on the input X, one threshold would cover equally in
every region. The mutual information MI(X, σ) measures the dependence, and so bounds the coverage p
in any region ω of probability ρ = P(X ∈ ω), given the coverage c over all inputs:

    paper     p ≥ c − √(1 − exp(−MI)) / ρ                                          (Theorem S.2)
    binary    p ≥ min{p ≤ c : ρ kl(p, c) + (1−ρ) kl((c − ρp)/(1−ρ), c) ≤ MI}

with kl the divergence of two Bernoulli laws. The binary form is the data processing inequality for
(1{X ∈ ω}, 1{σ ≤ q}). Two bits with that information attain it, so it is the best bound from MI, c
and ρ; convex in c and 0 at 0, it also holds for coverage averaged over calibration draws. For
MI = ∞ it is the trivial max{0, 1 − (1−c)/ρ}; the paper's form is below even that unless
MI < −log(1 − (1−c)²(1−ρ)²), 0.002 nats at c = 0.95 and ρ = 0.1.

Assumptions: a score that is fixed before calibration (split conformal, MADSplit), coverage marginal
over calibration draws, and the *true* mutual information, which is unknown.
``plug_in_local_coverage`` uses an estimate M̂ instead: the bound at max{0, M̂}, and next to it the
bound at two standard errors more. That is no confidence bound, since mutual information of
continuous variables has no distribution-free upper one.

**Rescaled scores.** Divide the score by its mean at x, s̄(x), and use one threshold q (or τ) for
the ratio. Then the coverage at this x is bounded, whatever the law of the score there:

    Markov      P(s/s̄(x) ≤ q | x) ≥ 1 − 1/q
    Cantelli    P(s/s̄(x) ≥ τ | x) ≤ σ²(x) / (σ²(x) + (τ−1)² s̄²(x)),   τ > 1
    solved      P(s/s̄(x) ≥ 1 + σ(x)/s̄(x) √((1−α)/α) | x) ≤ α

(the paper prints s̄(x) instead of s̄²(x), which would depend on the unit of y). With estimated
moments these inequalities are not bounds, and no method here uses them.

Reference: Deutschmann, Rigotti, Rodríguez Martínez (2024), "Adaptive Conformal Regression with
Jackknife+ Rescaled Scores", TMLR: Theorem S.2 (in the text Proposition 2), and the supplement's
"Rescaled Scores and Concentration Inequalities".
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats
from scipy.special import xlog1py

from calliper._notebook import floored
from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_level, check_option, check_vector
from calliper.exceptions import CalliperError
from calliper.information import MutualInformation, mutual_information
from calliper.lab.metrics import numbered
from calliper.rows import same_rows

__all__ = [
    "Cell",
    "CellCoverage",
    "LocalCoverageEstimate",
    "Partition",
    "cantelli_local_coverage",
    "cantelli_threshold",
    "cell_coverage",
    "local_coverage_bound",
    "markov_local_coverage",
    "partition",
    "plug_in_local_coverage",
]

#: The sharper bound, or the one printed in the paper.
Form = Literal["binary", "paper"]

#: What numbers must be.
_EXPECTED = {
    "rho": "must lie in (0, 1]: it is the probability that an input falls into the region",
    "mutual_information": "must be nats >= 0: pass max(0, estimate), or use plug_in_local_coverage",
    "threshold": "must be >= 0",
    "variation": "must be >= 0",
}

#: Halvings that shrink an interval in [0, 1] below the spacing of floats around any c.
HALVINGS = 64


@dataclass(frozen=True, eq=False)
class Partition:
    """Cells of inputs: each point belongs to the nearest of fixed centres (G, d).

    Parameters
    ----------
    centres : (G, d)

    Examples
    --------
    >>> Partition(np.array([[0.0], [10.0]])).assign([[1.0], [8.0]])
    array([0, 1])
    """

    centres: FloatArray

    @property
    def labels(self) -> range:
        """All cells; pass them as ``labels`` to ``cell_coverage`` to include empty ones."""
        return range(len(self.centres))

    def assign(self, Z: Any) -> IntArray:
        """The cell of each row, 0 … G−1."""
        from sklearn.metrics import pairwise_distances_argmin

        features = check_features(Z)
        d, expected = features.shape[1], self.centres.shape[1]
        if d != expected:
            made = f"the partition was made from rows of {expected}"
            raise CalliperError(f"Z has {d} columns, but {made}.")
        return np.asarray(pairwise_distances_argmin(features, self.centres), dtype=np.intp)


def partition(Z_train: Any, n_cells: int = 10, *, random_state: Any = None) -> Partition:
    """Cells by k-means on *training* inputs: standardise columns first if their units differ.

    Parameters
    ----------
    Z_train : (n, d) inputs or embeddings that are neither calibration nor held-out points
    n_cells : G, at most the number of distinct rows
    random_state : int, RandomState or None

    Returns
    -------
    Partition; its ``assign(Z)`` gives the cell of each row

    Examples
    --------
    >>> np.sort(partition([[0.0], [0.1], [5.0], [5.1]], 2, random_state=0).centres[:, 0])
    array([0.05, 5.05])
    """
    from sklearn.cluster import KMeans

    features = check_features(Z_train, "Z_train")
    n_distinct = len(np.unique(features, axis=0))
    if not isinstance(n_cells, int | np.integer) or not 1 <= n_cells <= n_distinct:
        known = f"between 1 and {n_distinct}, the number of distinct rows of Z_train"
        raise CalliperError(f"n_cells must be an integer {known}; got {n_cells!r}.")
    fitted = KMeans(int(n_cells), n_init=10, random_state=random_state).fit(features)
    return Partition(np.asarray(fitted.cluster_centers_, dtype=np.float64))


@dataclass(frozen=True)
class Cell:
    """Held-out points of one cell.

    Parameters
    ----------
    label : the cell
    n : number of held-out points in it
    coverage : share of them that lie in their intervals; NaN if there are none
    lower : lower bound on the coverage of new points in this cell; 0 if there are no points

    Examples
    --------
    >>> cell_coverage(["a", "a", "b"], [True, False, True]).cells[0].coverage
    0.5
    """

    label: Hashable
    n: int
    coverage: float
    lower: float


@dataclass(frozen=True)
class CellCoverage:
    """Cells with lower bounds that all hold with probability ``confidence``.

    Parameters
    ----------
    cells : tuple of Cell
    confidence : probability that all bounds hold

    Examples
    --------
    >>> found = cell_coverage(["a"] * 50, [True] * 45 + [False] * 5)
    >>> round(found.cells[0].lower, 2), found.confidence
    (0.8, 0.95)
    """

    cells: tuple[Cell, ...]
    confidence: float

    @property
    def worst(self) -> Cell:
        """The cell with the lowest bound."""
        return min(self.cells, key=lambda cell: cell.lower)

    def describe(self) -> str:
        """The bounds in words, with their assumptions."""
        lines = []
        for cell in self.cells:
            held = (
                f"{cell.n} held-out points, {cell.coverage:.3f} covered" if cell.n else "no points"
            )
            lines.append(f"cell {cell.label}: {held}, coverage at least {floored(cell.lower)}")
        return "\n".join(lines) + (
            f"\nAll {len(lines)} bounds hold together with probability at least "
            f"{self.confidence:g} over the draw of the held-out points, provided that these are "
            f"independent draws from the distribution of new points and were not used for "
            f"training, calibration or the choice of cells. They hold for these intervals, and for "
            f"each cell as a whole: coverage may vary inside a cell."
        )


def cell_coverage(
    cells: Any, covered: Any, *, confidence: float = 0.95, labels: Iterable[Any] | None = None
) -> CellCoverage:
    """Simultaneous lower bounds on the coverage in each cell, from held-out points.

    Parameters
    ----------
    cells : (m,) labels of the held-out points, for example ``partition(Z_train).assign(Z_test)``
    covered : (m,) of bool; whether its target is in its interval, as ``intervals.contains(y_test)``
    confidence : float, default 0.95; probability that all bounds hold
    labels : iterable, optional; all cells, by default those that occur, given their numbers of
    points

    Returns
    -------
    CellCoverage; the cells with their bounds, in the order of ``labels``

    Examples
    --------
    >>> result = cell_coverage(["a"] * 100 + ["b"] * 50, [True] * 92 + [False] * 8 + [True] * 50)
    >>> [(cell.label, cell.n, cell.coverage, round(cell.lower, 3)) for cell in result.cells]
    [('a', 100, 0.92, 0.848), ('b', 50, 1.0, 0.929)]
    """
    level = check_level(confidence, "confidence")
    cells, covered = same_rows(None, "rows", cells=cells, covered=covered)
    names, cell = numbered(cells, "cells")
    values = check_vector(covered, "covered", n=len(cell))
    for wrong in np.flatnonzero(~np.isin(values, (0, 1))):
        got = f"got {values[wrong]:g} at position {wrong}. Pass intervals.contains(y)."
        raise CalliperError(f"covered must be True or False for each row; {got}")
    every = names if labels is None else numbered(list(labels), "labels")[0]
    unknown = [name for name in names if name not in every]
    if unknown:
        raise CalliperError(f"labels must include all cells; {unknown} are not in {every}.")
    cell = np.array([every.index(name) for name in names])[cell]
    n, k = (np.bincount(rows, minlength=len(every)) for rows in (cell, cell[values == 1]))
    # Clopper and Pearson's one-sided bounds; 0 without a success.
    bound = stats.beta.ppf((1 - level) / len(every), np.maximum(k, 1), n - k + 1)
    lower = np.where(k > 0, bound, 0.0)
    share = np.divide(k, n, out=np.full(len(n), np.nan), where=n > 0)
    columns = zip(every, n.tolist(), share.tolist(), lower.tolist(), strict=True)
    return CellCoverage(tuple(Cell(*column) for column in columns), level)


def local_coverage_bound(
    mutual_information: Any, coverage: float, rho: Any, *, form: Form = "binary"
) -> float | FloatArray:
    """Lower bound on the coverage in any region with a share ``rho`` of all inputs.

    Holds for a score fixed before calibration, marginally over calibration draws, and for the
    *true* mutual information of input and score. An estimate of it gives an estimate of the bound.

    Parameters
    ----------
    mutual_information : float or array
        In nats, ≥ 0. Infinity means unknown: only coverage over all inputs is then used.
    coverage : float; over all inputs, strictly inside (0, 1)
    rho : float or array; probability of the region, in (0, 1], broadcast against the information
    form : {"binary", "paper"}
        The sharper bound, accurate to 1e-12, or the one printed in the paper, clipped at 0.

    Returns
    -------
    float or array; at most ``coverage``

    Examples
    --------
    >>> local_coverage_bound(0.02, 0.95, [0.1, 0.25, 1.0]).round(3)
    array([0.785, 0.868, 0.95 ])
    >>> local_coverage_bound(0.02, 0.95, [0.1, 0.25, 1.0], form="paper").round(3)
    array([0.   , 0.387, 0.809])
    """
    check_option(form, ("binary", "paper"), "form")
    level = check_level(coverage)
    information, share = _checked(mutual_information=mutual_information, rho=rho)
    if form == "paper":
        deficit = np.sqrt(-np.expm1(-information)) / share
    else:
        deficit = _binary_deficit(information, level, share)
    return _like_input(np.maximum(level - deficit, 0.0))


@dataclass(frozen=True, eq=False)
class LocalCoverageEstimate:
    """A plug-in estimate of local coverage, not a guarantee.

    Parameters
    ----------
    rho : probability of the region, one or many
    bound : the bound at the estimated information, which is set to at least 0; like ``rho``
    mutual_information : the estimate, with its standard error and p-value
    coverage : coverage over all inputs
    form : which bound, "binary" or "paper"

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, scores = rng.uniform(size=(300, 1)), rng.exponential(size=300)
    >>> plug_in_local_coverage(Z, scores, 0.9, 0.2, random_state=0).form
    'binary'
    """

    rho: float | FloatArray
    bound: float | FloatArray
    mutual_information: MutualInformation
    coverage: float
    form: Form

    @property
    def cautious_bound(self) -> float | FloatArray:
        """The bound at the estimate plus two standard errors; at infinity if these are unknown."""
        found = self.mutual_information
        more = np.nan_to_num(max(0.0, found.estimate) + 2 * found.standard_error, nan=np.inf)
        return local_coverage_bound(more, self.coverage, self.rho, form=self.form)

    def describe(self) -> str:
        """The estimate in words: what was measured, and what follows from it."""
        found = self.mutual_information
        trivial = local_coverage_bound(np.inf, self.coverage, self.rho)
        words = [
            "Local coverage, a plug-in estimate, not a guarantee.",
            f"Mutual information of inputs and scores: {found.estimate:.4f} nats, standard "
            f"error {found.standard_error:.4f}, p-value {found.p_value:.3g} against "
            f"independence ({found.n} points, {found.n_neighbors} neighbours).",
        ]
        if not np.isfinite(found.standard_error):
            words.append("There are too few points for a standard error.")
        if found.estimate < 0:
            words.append("The true value is not negative, so 0 is used.")
        if found.p_value > 0.05:
            words.append("No dependence was detected, which does not prove that there is none.")
        if (n_summed := len(found.per_component)) > 1:
            which = f"{n_summed} features or components"
            words.append(f"It is a sum over {which}, which may be below their joint information.")
        columns = map(np.ravel, (self.rho, self.bound, self.cautious_bound, trivial))
        regions = (
            f"at least {bound:.3f} in a region of {100 * rho:g} % of inputs (two standard errors "
            f"higher: {cautious:.3f}; from coverage over all inputs alone: {alone:.3f})"
            for rho, bound, cautious, alone in zip(*columns, strict=True)
        )
        words += [
            f"If it were exact, coverage (over all inputs: {self.coverage:g}) would be",
            "; ".join(regions) + ".",
            "Even then this would be an average over calibration draws, and proved only for a "
            "score that is fixed before calibration. For a bound that data can prove, use "
            "cell_coverage.",
        ]
        return " ".join(words)


def plug_in_local_coverage(
    Z: Any,
    scores: Any,
    coverage: float,
    rho: Any,
    *,
    form: Form = "binary",
    n_neighbors: int = 10,
    n_components: int | None = None,
    Z_train: Any = None,
    random_state: Any = None,
) -> LocalCoverageEstimate:
    """Estimate how low coverage may be in a region of probability ``rho``; not a bound.

    Parameters
    ----------
    Z : (n, d) inputs or embeddings; for d > 1 marginal informations are summed
    scores : (n,) that the threshold applies to (rescaled if the method rescales)
    coverage, rho, form : as in ``local_coverage_bound``
    n_neighbors, n_components, Z_train, random_state : as in ``mutual_information``

    Returns
    -------
    LocalCoverageEstimate; with ``bound`` and ``cautious_bound``

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(size=(1000, 1))
    >>> scores = rng.exponential(size=1000) * (1 + x[:, 0])  # errors that double across the range
    >>> result = plug_in_local_coverage(x, scores, 0.9, [0.1, 0.5], random_state=0)
    >>> np.round(result.bound, 2), np.round(result.cautious_bound, 2)
    (array([0.74, 0.86]), array([0.56, 0.82]))
    """
    check_option(form, ("binary", "paper"), "form")
    level, share = check_level(coverage), _like_input(*_checked(rho=rho))
    how: Any = {"n_components": n_components, "Z_train": Z_train, "random_state": random_state}
    found = mutual_information(Z, scores, n_neighbors=n_neighbors, **how)
    bound = local_coverage_bound(max(0.0, found.estimate), level, share, form=form)
    return LocalCoverageEstimate(share, bound, found, level, form)


def markov_local_coverage(threshold: Any) -> float | FloatArray:
    """Markov's bound 1 − 1/q for q ≥ 1, else 0, on the coverage of s ≤ q·s̄(x) at any input.

    Assumes the exact mean s̄(x) of a non-negative score; not a bound for finite samples.

    Parameters
    ----------
    threshold : float or array; q ≥ 0, on the score divided by its mean

    Returns
    -------
    float or array; like ``threshold``

    Examples
    --------
    >>> markov_local_coverage([0.5, 2.0, 20.0])
    array([0.  , 0.5 , 0.95])
    """
    (q,) = _checked(threshold=threshold)
    return _like_input(1 - 1 / np.maximum(q, 1.0))


def cantelli_local_coverage(threshold: Any, variation: Any) -> float | FloatArray:
    """Cantelli's bound (τ−1)²/(r² + (τ−1)²) for τ > 1, else 0, for the rule s < τ·s̄(x).

    Here r = σ(x)/s̄(x), both exact; better than Markov's 1 − 1/τ where r² < τ − 1.

    Parameters
    ----------
    threshold : float or array; τ ≥ 0, on the score divided by its mean
    variation : float or array; r ≥ 0, infinite for a score without finite variance

    Returns
    -------
    float or array; in their common shape

    Examples
    --------
    >>> cantelli_local_coverage(3.0, [0.5, 1.0, np.inf]).round(3)
    array([0.941, 0.8  , 0.   ])
    """
    tau, r = _checked(threshold=threshold, variation=variation)
    excess = np.where(tau > 1, tau - 1, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        covered = 1 / (1 + (r / excess) ** 2)
    covered = np.where(np.isinf(tau), 1.0, covered)
    return _like_input(np.where(tau > 1, covered, 0.0))


def cantelli_threshold(coverage: float, variation: Any) -> float | FloatArray:
    """The threshold 1 + r √(c/(1−c)) on s/s̄(x) at which Cantelli's inequality gives c.

    Parameters
    ----------
    coverage : float; c, strictly inside (0, 1)
    variation : float or array; r = σ(x)/s̄(x) ≥ 0

    Returns
    -------
    float or array; like ``variation``

    Examples
    --------
    >>> cantelli_threshold(0.95, [0.5, 1.0]).round(3)
    array([3.179, 5.359])
    """
    level, (r,) = check_level(coverage), _checked(variation=variation)
    return _like_input(1 + r * np.sqrt(level / (1 - level)))


def _binary_deficit(information: FloatArray, c: float, rho: FloatArray) -> FloatArray:
    """The largest c − p that the information allows, by bisection from the safe side.

    The information needed for a share u of the largest deficit is convex and increases in u; the
    upper end of the bracket is returned, so rounding never raises the bound.
    """
    with np.errstate(divide="ignore"):
        inside = np.minimum(c, (1 - c) * (1 - rho) / rho)  # largest c − p
        outside = np.minimum(c * rho / (1 - rho), 1 - c)  # what the other inputs gain then
    low, high = np.zeros_like(rho), np.ones_like(rho)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        cost = rho * _kl(-inside * middle, c) + (1 - rho) * _kl(outside * middle, c)
        enough = cost <= information
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return inside * high


def _kl(shift: FloatArray, c: float) -> FloatArray:
    """kl(c + shift, c) without cancellation for small shifts."""
    return c * _excess(shift / c) + (1 - c) * _excess(-shift / (1 - c))


def _excess(x: FloatArray) -> FloatArray:
    """(1+x) log(1+x) − x = x²/2 − x³/6 + x⁴/12 − …, to full precision for x ≥ −1."""
    near = np.where(np.abs(x) < 0.1, x, 0.0)
    series = np.zeros_like(near)
    for k in range(17, 1, -1):
        series = 1 / (k * (k - 1)) - near * series
    return np.where(np.abs(x) < 0.1, near**2 * series, xlog1py(1 + x, x) - x)


def _checked(**given: Any) -> list[FloatArray]:
    """Numbers in a common shape, each ≥ 0 and ``rho`` in (0, 1]; an error names the first wrong."""
    arrays = {}
    for name, values in given.items():
        try:
            arrays[name] = numbers = np.array(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise CalliperError(f"{name} must be a number or an array; got {values!r}.") from None
        valid = (numbers > 0) & (numbers <= 1) if name == "rho" else numbers >= 0
        for where in map(tuple, np.argwhere(~valid).tolist()):
            at = f" at position {where if len(where) > 1 else where[0]}" if where else ""
            raise CalliperError(f"{name} {_EXPECTED[name]}; got {numbers[where]:g}{at}.")
    try:
        return list(np.broadcast_arrays(*arrays.values()))
    except ValueError:
        shapes = " and ".join(f"{name} {values.shape}" for name, values in arrays.items())
        remedy = "For all pairs, pass one as a column, values[:, None]."
        raise CalliperError(f"shapes cannot be broadcast: {shapes}. {remedy}") from None


def _like_input(values: FloatArray) -> float | FloatArray:
    """A number if numbers were given, otherwise the array."""
    return float(values) if values.ndim == 0 else values

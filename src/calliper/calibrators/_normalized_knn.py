"""Normalised scores: divide by how hard the neighbourhood in the training set looks.

A point far from all training points, or among training points whose labels disagree, is harder
to predict. Each difficulty comes from the K nearest training points, in units of its median over
the training points, each judged by its K nearest *others*:

    λ = Σ_k ‖x − X_k‖ / median,   ξ = SD of Y_k / median,   ε = mean of V_k / median,
    "sum":  σ(x) = γ + λ,  γ + ξ,  γ + ε  or  γ + λ + ξ,
    "exp":  σ(x) = exp(γλ),  exp(γξ),  exp(γε)  or  exp(γλ) + exp(ρξ),
    Δ(x) = σ(x) · (Q-th smallest of s_i / σ(X_i)),   Q = ⌈(1−α)(N+1)⌉.

Letters: X, Y, V → inputs, targets and errors of ``training``, K → ``n_neighbors``, s/σ →
``rescaled_scores_``, the medians → ``units_``. Points just as far as the K-th share its place. A
median of 0 is replaced by the mean, and by 1 if that is 0 too. ε is not in the paper.

Guarantee: 1−α, marginal, for exchangeable calibration and new points independent of the training
data; given the calibration set, Beta(Q, N+1−Q) without ties.

Reference: Papadopoulos, Vovk, Gammerman (2011), "Regression conformal prediction with nearest
neighbours", doi:10.1613/jair.3198.
"""

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

import numpy as np

from calliper._blocks import CHUNK_ROWS, row_slices
from calliper._types import FloatArray
from calliper._validation import check_option
from calliper.calibrators._calibrator import Calibrator
from calliper.declarations import About, Uses
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, NeighborSearch, paired_distances, shared_means
from calliper.quantile import ROUNDING
from calliper.rows import Rows

DIFFICULTIES = ("distance", "labels", "residuals", "distance+labels")

#: Scales beyond this would overflow; the same cap holds for calibration and new points.
LARGEST_SCALE = 1e300


@dataclass(eq=False, repr=False)
class NormalizedKNN(Calibrator):
    """Split conformal with scores normalised by the difficulty among training points.

    Parameters
    ----------
    n_neighbors : int, default 10
        K, at most n − 1.
    difficulty : {"distance", "labels", "residuals", "distance+labels"}, default "distance"
        λ; ξ, which needs training targets; ε, which needs training errors; or λ and ξ together.
    form : {"sum", "exp"}, default "sum"
        How σ is made of the difficulty.
    gamma, rho : float >= 0, default 0.5
        γ damps the difficulty in the sum (large approaches ``Split``), where it must be above 0,
        and sharpens it in the exponential (0 is ``Split``); ρ sharpens ξ beside λ.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> y = noise * Z[..., 0]
    >>> method = NormalizedKNN(difficulty="labels")
    >>> method = method.fit(Z[0], abs(y[0]), training=(Z[1], None, y[1]))
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.43, 0.89])
    """

    about = About(
        cli="normalized-knn",
        width="wide far from training rows",
        when="if errors grow where training rows are sparse",
        cost="neighbours of n + N + M rows among n, O(K d) a row",
        order=10,
        neighbors="n_neighbors",
    )
    has_law = True
    has_distribution = True

    @property
    def uses(self) -> Uses:
        """Training rows, and of them what the difficulty is made of."""
        parts = {"labels": "targets", "residuals": "errors"}
        named = [name for part, name in parts.items() if part in str(self.difficulty)]
        of_each = ("signs", "weights", "errors", "targets")
        return Uses(*of_each, needs=("training", *named), learns=f"the {self.difficulty} of points")

    n_neighbors: int = 10
    _: KW_ONLY
    difficulty: str = "distance"
    form: str = "sum"
    gamma: float = 0.5
    rho: float = 0.5

    def _learn(self, rows: Rows) -> None:
        train = self._training
        kernel, n = KNN(self.n_neighbors).resolved(), len(train.Z)
        if n < 2:
            raise CalliperError(f"NormalizedKNN needs at least 2 training points; got {n}.")
        self._parts = self.difficulty.split("+")
        self._values = train.targets if "labels" in self._parts else train.scores
        self._search, self._Z_train = NeighborSearch(train.Z, kernel.metric), train.Z
        self._k = kernel.at_most(n - 1)
        raw = self._raw(None)
        self.units_ = np.ones(len(raw))
        for unit in (raw.mean(axis=1), np.median(raw, axis=1)):
            self.units_[unit > 0] = unit[unit > 0]
        self._rescale(rows, self._local_scale(rows.Z))

    def _check_parameters(self) -> None:
        check_option(self.difficulty, DIFFICULTIES, "difficulty")
        check_option(self.form, ("sum", "exp"), "form")
        for value in (self.gamma, self.rho):
            if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
                raise ValueError(f"gamma and rho must be finite numbers >= 0; got {value!r}.")
        if self.form == "sum" and self.gamma == 0:
            raise ValueError("gamma must be > 0 in the sum: a difficulty of 0 would divide by 0.")

    def _local_scale(self, Z: FloatArray) -> FloatArray:
        """σ at each row, (m,)."""
        chunks = row_slices(len(Z), CHUNK_ROWS)
        raw = [self._raw(Z[rows]) for rows in chunks]
        with np.errstate(over="ignore"):
            part = np.concatenate(raw, axis=1) / self.units_[:, None]
            if self.form == "exp":
                part = np.exp(np.array([self.gamma, self.rho])[: len(part), None] * part)
            total = part.sum(axis=0) + (self.gamma if self.form == "sum" else 0.0)
        return np.asarray(np.minimum(total, LARGEST_SCALE))

    def _raw(self, Z: FloatArray | None) -> FloatArray:
        """The parts of the difficulty before division by their units, (p, m).

        Of new rows, or of all training points, each among the others.
        """
        others, rows = Z is None, self._Z_train if Z is None else Z
        search = self._search
        near, tied = search.nearest_others(self._k) if others else search.nearest(rows, self._k)
        raw = np.zeros((len(self._parts), len(rows)))
        for part, out in zip(self._parts, raw, strict=True):
            if part == "distance":  # those that share a place are all as far
                for neighbor in near.T:
                    out += np.sqrt(paired_distances(rows, self._Z_train[neighbor]))
                continue
            if part == "labels":  # less one of them: the SD of equal labels is exactly 0
                out[:] = (self._values[near] - self._values[near[:, :1]]).std(axis=1)
            else:
                out[:] = self._values[near].mean(axis=1)
            if tied.any():
                who = np.flatnonzero(tied) if others else rows[tied]
                out[tied] = self._shared(who, spread=part == "labels")
        return raw

    def _shared(self, who: Any, *, spread: bool) -> FloatArray:
        """Mean or SD of the values where points share the last place, (m,).

        ``who`` are new rows, or the numbers of training points among the others.
        """
        if not spread:
            return shared_means(self._search, self._values, self._k, who)
        values = self._values - self._values.mean()
        sides = np.maximum(values, 0.0), np.maximum(-values, 0.0)  # sums are of sizes
        above, below, square = (
            shared_means(self._search, each, self._k, who) for each in (*sides, np.square(values))
        )
        variance = square - np.square(above - below)
        return np.sqrt(np.where(variance > ROUNDING * square, variance, 0.0))

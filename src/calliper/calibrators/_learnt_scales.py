"""Split conformal in a scale learnt on training rows: MADSplit, NormalizedKNN, RCP and SLCP.

Training rows say how large an error to expect at an input. Calibration scores are measured in that
scale, and the Q-th smallest, Q = ⌈(1−α)(N+1)⌉, is turned back into a radius at a new input:

    MADSplit        Δ(x) = r̂(x) · (s_i / r̂(X_i))_(Q),     r̂ a model of the error     (paper, Eq. 2)
    NormalizedKNN   Δ(x) = σ(x) · (s_i / σ(X_i))_(Q),     σ the difficulty among training points
    RCP             Δ(x) = τ̂(x) · (s_i / τ̂(X_i))_(Q),     τ̂ a model of the (1−α)-quantile
    SLCP            Δ(x) = Q̂(x) + (s_i − Q̂(X_i))_(Q),     Q̂ a local (1−α)-quantile of errors V_j:
                    Q̂(x) = inf{v : Σ_j w_j(x) 1{V_j ≤ v} ≥ 1−α},  w_j(x) = K(x, X_j) / Σ_l K(x, X_l)

The difficulty comes from the K nearest training points (X, Y, V their inputs, targets and errors),
in units of its median over the training points, each judged by its K nearest *others*:

    λ = Σ_k ‖x − X_k‖ / median,   ξ = SD of Y_k / median,   ε = mean of V_k / median,
    "sum":  σ(x) = γ + λ,  γ + ξ,  γ + ε  or  γ + λ + ξ,
    "exp":  σ(x) = exp(γλ),  exp(γξ),  exp(γε)  or  exp(γλ) + exp(ρξ).

A median of 0 is replaced by the mean, and by 1 if that is 0 too; ε is not in the paper. Points just
as far as the K-th share its place. An estimate below 0 counts as 0, except Q̂. A radius of SLCP
below 0 would be an empty interval, so it is raised to 0 unless some calibration score is negative.
RCP and SLCP have a scale for each level: with few points, radii need not grow with the level.

Letters: r̂ → ``scale``, s/r̂ and s/σ → ``rescaled_scores_``, the medians → ``units_``, τ̂ →
``quantile_regressor`` or ``kernel``, Q̂ → ``local_``. A known weakness: training errors are made on
data that the model has seen, and may be unlike errors on new data.

Guarantee: 1−α, marginal, for exchangeable calibration and new points independent of the training
data; given the calibration set, Beta(Q, N+1−Q) without ties.

References: Lei, G'Sell, Rinaldo, Tibshirani, Wasserman (2018), "Distribution-free predictive
inference for regression", §5.2, doi:10.1080/01621459.2017.1307116. Papadopoulos, Vovk, Gammerman
(2011), "Regression conformal prediction with nearest neighbours", doi:10.1613/jair.3198. Plassier,
Fishkov, Dheur, Guizani, Ben Taieb, Panov, Moulines (2025), "Rectifying conformity scores for better
conditional coverage", ICML, arXiv:2502.16336. Han, Tang, Ghosh, Liu (2023), "Split localized
conformal prediction", arXiv:2206.13092, whose published code mixes up the training errors.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._blocks import CHUNK_ROWS, row_slices
from calliper._kept import Array, Field, Inline, Part, Plain
from calliper._trees import BoostedSum
from calliper._types import FloatArray, IntArray
from calliper._validation import (
    check_option,
    check_size,
    check_vector,
    warn_if_zero_scales,
    warn_of_unused,
)
from calliper.calibrators._calibrator import MOST_LEVELS, Calibrator, fixed_kernel
from calliper.declarations import About, Uses
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, Kernel, NeighborSearch, paired_distances, rescale, shared_means
from calliper.quantile import ROUNDING, Shares, above, conformal_thresholds, rescaled_back
from calliper.rows import Rows

DIFFICULTIES = ("distance", "labels", "residuals", "distance+labels")
#: Scales beyond this would overflow; the same cap holds for calibration and new points.
LARGEST_SCALE = 1e300
#: The quantile of the errors that rescales those of a distribution, which has one scale for all
#: levels. Any fixed function would do, so its quantiles are valid, though not those of the radius.
OF_DISTRIBUTION = 0.75


class MADSplit(Calibrator):
    """Locally weighted split conformal with a scale learnt on training errors.

    Parameters
    ----------
    scale : kernel or scikit-learn regressor, default KNN(10)
        ``KNN(10)`` and ``RBF("median")`` are the paper's two variants; a regressor is cloned and
        fitted to the training errors. Negative predictions count as a scale of zero.
    offset : float, default 0
        Constant added to every scale, in the unit of y; choose it without calibration data.
    random_state : int, RandomState or None
        Draws training rows that a tuned kernel is tuned on.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = MADSplit().fit(Z[0], errors[0], training=(Z[1], errors[1]))
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.23, 1.  ])
    """

    uses = Uses("signs", "weights", needs=("training", "errors"), learns="its scale")
    about = About(
        cli="mad-split",
        width="wide where nearby training errors were large",
        when="if training errors resemble new ones, or there are few calibration rows",
        cost="neighbours of N + M rows among n",
        neighbors="scale",
    )
    has_law = True
    has_distribution = True
    learns: ClassVar[Mapping[str, Field]] = {
        "learnt_": Plain("scale"),
        "sizes_": Array("float64", ("N",), least=0),
    }

    def __init__(self, scale: Any = None, *, offset: float = 0.0, random_state: Any = None) -> None:
        self.scale, self.offset, self.random_state = scale, offset, random_state

    def _learn(self, rows: Rows) -> None:
        self.offset_ = check_size(self.offset, "offset")
        train, rng = self._training, check_random_state(self.random_state)
        self.learnt_ = self._once("learnt_", lambda: self._learn_scale(train.Z, train.scores, rng))
        if hasattr(self.learnt_, "fit"):
            try:
                check_is_fitted(self.learnt_)
            except (NotFittedError, TypeError):  # passed to ``load`` unfitted
                self.learnt_ = clone(self.learnt_).fit(train.Z, train.scores)
        self.scale_ = self.learnt_
        if isinstance(self.learnt_, Kernel):
            kernel = self.learnt_ = self.learnt_.resolved()
            self.scale_ = kernel.mean(train.Z, train.scores)
        local = partial(self._local_scale, rows.Z)
        # What a regressor says is asked again: another one may have been brought.
        self.sizes_ = self._once("sizes_", local) if self.scale_ is not self.learnt_ else local()
        warn_if_zero_scales(self.sizes_)
        self._rescale(rows, self.sizes_)

    def _learn_scale(self, Z_train: FloatArray, scores_train: FloatArray, rng: Any) -> Any:
        """The fitted regressor, or the kernel that training errors lead to."""
        if hasattr(self.scale, "predict"):
            return clone(self.scale).fit(Z_train, scores_train)
        return fixed_kernel(self.scale, KNN(10), Z_train, scores_train, rng)

    def _local_scale(self, Z: FloatArray) -> FloatArray:
        predicted = check_vector(self.scale_.predict(Z), "predictions of scale", n=len(Z))
        return np.maximum(predicted, 0.0) + self.offset_


@dataclass(eq=False, repr=False)
class NormalizedKNN(Calibrator):
    """Split conformal with scores normalised by the difficulty of near training points.

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
        cost="neighbours of n + N + M rows among n, O(K d) per row",
        neighbors="n_neighbors",
    )
    has_law = True
    has_distribution = True

    @property
    def uses(self) -> Uses:
        """Training rows, with whatever defines the difficulty."""
        parts = {"labels": "targets", "residuals": "errors"}
        named = [name for part, name in parts.items() if part in str(self.difficulty)]
        of_each = ("signs", "weights", "errors", "targets")
        return Uses(*of_each, needs=("training", *named), learns=f"the {self.difficulty} of points")

    learns: ClassVar[Mapping[str, Field]] = {
        "units_": Array("float64", ("p",), least=5e-324),
        "sizes_": Array("float64", ("N",), least=0, most=LARGEST_SCALE),
    }

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
            raise CalliperError(f"NormalizedKNN needs at least 2 training rows; got {n}.")
        self._parts = self.difficulty.split("+")
        self._values = train.targets if "labels" in self._parts else train.scores
        self._search, self._Z_train = NeighborSearch(train.Z, kernel.metric), train.Z
        self._k = kernel.at_most(n - 1)
        self.units_ = self._once("units_", self._units)
        if len(self.units_) != len(self._parts):
            raise CalliperError(f"{len(self.units_)} units are not those of {self.difficulty!r}.")
        self.sizes_ = self._once("sizes_", lambda: self._local_scale(rows.Z))
        self._rescale(rows, self.sizes_)

    def _check_parameters(self) -> None:
        check_option(self.difficulty, DIFFICULTIES, "difficulty")
        check_option(self.form, ("sum", "exp"), "form")
        check_size(self.gamma, "gamma")
        check_size(self.rho, "rho")
        if self.form == "sum" and self.gamma == 0:
            raise ValueError("gamma must be > 0 if form='sum', since a difficulty may be 0.")
        if self.form == "sum" or "+" not in self.difficulty:
            warn_of_unused(self, ("rho",), "it needs form='exp' and a difficulty of two parts")

    def _units(self) -> FloatArray:
        """Medians of the parts of the difficulty at the points, or means, or 1, (p,)."""
        raw = self._raw(None)
        mean, median = raw.mean(axis=1), np.median(raw, axis=1)
        return np.where(median > 0, median, np.where(mean > 0, mean, 1.0))

    def _local_scale(self, Z: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            part = self._raw(Z) / self.units_[:, None]
            if self.form == "exp":
                part = np.exp(np.array([self.gamma, self.rho])[: len(part), None] * part)
            total = part.sum(axis=0) + (self.gamma if self.form == "sum" else 0.0)
        return np.asarray(np.minimum(total, LARGEST_SCALE))

    def _raw(self, Z: FloatArray | None) -> FloatArray:
        """Parts of the difficulty without units, (p, m), of rows or of points among the others."""
        m = len(self._Z_train if Z is None else Z)
        blocks = row_slices(m, max(1, 64 * CHUNK_ROWS // self._k))  # 32 MB of neighbours
        return np.concatenate([self._raw_block(Z, np.arange(m)[rows]) for rows in blocks], axis=1)

    def _raw_block(self, Z: FloatArray | None, which: IntArray) -> FloatArray:
        others, rows, search = Z is None, (self._Z_train if Z is None else Z)[which], self._search
        near, tied = search.others_of(which, self._k) if others else search.nearest(rows, self._k)
        raw = np.zeros((len(self._parts), len(rows)))
        for part, out in zip(self._parts, raw, strict=True):
            if part == "distance":  # points that share the last place are equally far
                for neighbor in near.T:
                    out += np.sqrt(paired_distances(rows, self._Z_train[neighbor]))
                continue
            if part == "labels":  # minus the first: the SD of equal labels is exactly 0
                out[:] = (self._values[near] - self._values[near[:, :1]]).std(axis=1)
            else:
                out[:] = self._values[near].mean(axis=1)
            if tied.any():
                who = which[tied] if others else rows[tied]
                out[tied] = self._shared(who, spread=part == "labels")
        return raw

    def _shared(self, who: Any, *, spread: bool) -> FloatArray:
        """Mean or SD of the values where points share the last place, as :func:`shared_means`."""
        if not spread:
            return shared_means(self._search, self._values, self._k, who)
        values = self._values - self._values.mean()
        sides = np.maximum(values, 0.0), np.maximum(-values, 0.0)  # sums take numbers ≥ 0
        above, below, square = (
            shared_means(self._search, each, self._k, who) for each in (*sides, np.square(values))
        )
        variance = square - np.square(above - below)
        return np.sqrt(np.where(variance > ROUNDING * square, variance, 0.0))


class PerLevel(Calibrator):
    """A method whose scores differ from level to level."""

    #: Thresholds of the levels asked for; ``_learn`` empties it.
    _thresholds: dict[float, float]

    def _level_thresholds(self, levels: list[float], shares: Shares | None) -> FloatArray:
        """Thresholds (L,) of the scores ``_at_levels``, each found once; by weight (m, L)."""
        kept = shares is None and len(self._thresholds) < MOST_LEVELS
        known: dict[float, Any] = self._thresholds if kept else {}
        new = [level for level in levels if level not in known]
        for level, column in zip(new, self._at_levels(new).T if new else (), strict=True):
            order = np.argsort(column)
            own = shares and shares.reordered(order)
            known[level] = conformal_thresholds(column[order], [level], own)[..., 0]
        if shares is None:
            self._thresholds = known
        return np.stack([known[level] for level in levels], axis=-1)

    def share_below(self, Z: FloatArray, scores: FloatArray) -> FloatArray | None:
        """None: thresholds differ from level to level."""
        return None

    @abstractmethod
    def _at_levels(self, levels: list[float]) -> FloatArray:
        """What calibration scores are by a scale of each level, (N, L)."""


@dataclass(eq=False, repr=False)
class RCP(PerLevel):
    """Split conformal with scores rectified by a quantile regression of training errors.

    Parameters
    ----------
    quantile_regressor : scikit-learn regressor, optional
        Fitted to the training errors with its parameter ``quantile`` set to the level; by default
        ``HistGradientBoostingRegressor(loss="quantile")`` with trees of 8 leaves.
    kernel : KNN, optional
        Instead of a regressor: the ⌈(1−α)K⌉-th smallest error of the K nearest training points.
    offset : float, default 0
        Constant added to every estimate, in the unit of y; choose it without calibration data.
    random_state : int, RandomState or None
        Seeds the default regressor.

    Examples
    --------
    >>> from calliper import KNN
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = RCP(kernel=KNN(50)).fit(Z[0], errors[0], training=(Z[1], errors[1]))
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.22, 1.47])
    """

    uses = Uses("signs", "weights", needs=("training", "errors"), learns="a quantile")
    about = About(
        cli="rcp",
        width="a learnt quantile of training errors, times a constant",
        when="with many features and many training rows",
        cost="a fit to n rows and N + M predictions, for each level",
        neighbors="kernel",
        usual_neighbors="trees instead",
    )
    has_law = True
    has_distribution = True

    learns: ClassVar[Mapping[str, Field]] = {
        "at_": Array("float64", ("k",), least=0, most=1),
        "sums_": Inline(BoostedSum, several=True),
    }

    quantile_regressor: Any = None
    _: KW_ONLY
    kernel: Any = None
    offset: float = 0.0
    random_state: Any = None

    def _learn(self, rows: Rows) -> None:
        check_size(self.offset, "offset")
        self._model, self._local = self._chosen_model(), None
        if self.kernel is not None:
            self._local = self._model.local_quantile(self._training.Z, self._training.scores)
        self._signed = None
        levels, sums = self._once("at_", lambda: np.empty(0)), self._once("sums_", tuple)
        self.models_: dict[float, Any] = dict(zip(levels.tolist(), sums, strict=True))
        self._thresholds = {}

    def for_file(self) -> dict[str, Any]:
        """The usual state and its own trees; another regressor is fitted again on loading."""
        own = self.models_ if self.quantile_regressor is None else {}
        self.at_ = np.array(sorted(own), dtype=np.float64)
        models = [own[level] for level in self.at_.tolist()]
        self.sums_ = [m if isinstance(m, BoostedSum) else BoostedSum.of(m) for m in models]
        return super().for_file()

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        return rescaled_back(self._scale(Z, levels), self._level_thresholds(levels, shares))

    def predict_distribution(self, Z: Any, y_pred: Any, **how: Any) -> Distribution:
        """As every method's; the quantile of one level is estimated when first asked for."""
        check_is_fitted(self)
        if self._signed is None:
            self._keep_signed(self._at_levels([OF_DISTRIBUTION])[:, 0])
        return super().predict_distribution(Z, y_pred, **how)

    def _local_scale(self, Z: FloatArray) -> FloatArray:
        return self._scale(Z, [OF_DISTRIBUTION])[:, 0]

    def _chosen_model(self) -> Any:
        """KNN or a regressor with a parameter ``quantile``."""
        if self.kernel is not None:
            if self.quantile_regressor is not None:
                raise ValueError("pass a quantile_regressor or a kernel, not both.")
            if not getattr(self.kernel, "counts_neighbors", False):
                raise TypeError(f"kernel must be KNN(...); got {self.kernel!r}.")
            return self.kernel.resolved()
        if self.quantile_regressor is None:
            from sklearn.ensemble import HistGradientBoostingRegressor

            model = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, max_leaf_nodes=8)
            return model.set_params(random_state=self.random_state)
        parameters: dict[str, Any] = getattr(self.quantile_regressor, "get_params", dict)()
        if "quantile" not in parameters or parameters.get("loss", "quantile") != "quantile":
            raise TypeError(
                "quantile_regressor must have a parameter quantile and predict that quantile, as "
                "QuantileRegressor() or HistGradientBoostingRegressor(loss='quantile') do; got "
                f"{self.quantile_regressor!r}."
            )
        return self.quantile_regressor

    def _at_levels(self, levels: list[float]) -> FloatArray:
        """σ_i at each level, (N, L)."""
        scale = self._scale(self._rows.Z, levels)
        warn_if_zero_scales(scale.min(axis=1))
        return rescale(self._rows.scores[:, None], scale)

    def _scale(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        """τ̂ at each row and level, at least 0, plus the offset: (m, L)."""
        estimate = self._local or self._regress
        return np.maximum(estimate(Z, levels), 0.0) + self.offset

    def _regress(self, Z: FloatArray, levels: Sequence[float]) -> FloatArray:
        estimate = np.empty((len(Z), len(levels)))
        for column, level in enumerate(levels):
            if level not in self.models_:
                model = clone(self._model).set_params(quantile=level)
                model.fit(self._training.Z, self._training.scores)
                # If several threads train one, all of them use the first, and its threshold.
                self.models_.setdefault(level, model)
            predicted = self.models_[level].predict(Z)
            estimate[:, column] = check_vector(predicted, "predicted quantiles", n=len(Z))
        return estimate


class SLCP(PerLevel):
    """Split conformal localised by a kernel quantile of training errors; takes any real score.

    Parameters
    ----------
    kernel : KNN, RBF, TunedKNN or TunedRBF, default KNN(20)
        Which training errors count at x. A quantile needs more neighbours than a mean: with K of
        them, a level above 1 − 1/K takes their largest error. A tuned kernel is tuned on the
        sizes of the training errors.
    random_state : int, RandomState or None
        Draws training rows that a tuned kernel is tuned on.

    Attributes
    ----------
    local_ : the local quantile of training errors, a function of rows and levels

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, noise = rng.uniform(size=(2, 300, 1)), rng.normal(size=(2, 300))
    >>> errors = abs(noise) * Z[..., 0]
    >>> method = SLCP(KNN(50)).fit(Z[0], errors[0], training=(Z[1], errors[1]))
    >>> method.predict_radius([[0.1], [0.9]]).round(2)
    array([0.22, 1.46])
    """

    uses = Uses("weights", needs=("training", "errors"), learns="local quantiles")
    about = About(
        cli="slcp",
        width="a local quantile of training errors, plus a constant",
        when="if the shape of errors changes, not only their size",
        cost="neighbours of N + M rows among n",
        neighbors="kernel",
        usual_neighbors="20",
    )
    takes_any_score = True
    has_law = True
    _rounded = True
    learns: ClassVar[Mapping[str, Field]] = {"kernel_": Part("kernels")}

    def __init__(self, kernel: Any = None, *, random_state: Any = None) -> None:
        self.kernel, self.random_state = kernel, random_state

    def _learn(self, rows: Rows) -> None:
        train, rng = self._training, check_random_state(self.random_state)
        sizes = np.abs(train.scores)
        self.kernel_ = self._once(
            "kernel_", lambda: fixed_kernel(self.kernel, KNN(20), train.Z, sizes, rng)
        ).resolved()
        self.local_ = self.kernel_.local_quantile(train.Z, train.scores)
        self._thresholds = {}

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        radius = above(self.local_(Z, levels), self._level_thresholds(levels, shares))
        return np.maximum(radius, 0.0) if self._rows.scores.min() >= 0 else radius

    def _at_levels(self, levels: list[float]) -> FloatArray:
        return np.asarray(self._rows.scores[:, None] - self.local_(self._rows.Z, levels))

"""What methods that refit have in common: many models, one residual per row, a guarantee in words.

n rows train all models and calibrate them too. With μ₋ᵢ a model, or several, trained without row i,
R_i = s(y_i, μ₋ᵢ(x_i)) its score, |y_i − μ₋ᵢ(x_i)| by default, and [a_i(r), b_i(r)] the targets
whose score at μ₋ᵢ(x) is at most r, [μ₋ᵢ(x) − r, μ₋ᵢ(x) + r] by default, the ends are

    plus     ⌊α(n+1)⌋-th smallest of a_i(R_i),  ⌈(1−α)(n+1)⌉-th smallest of b_i(R_i)
    minmax   min_i a_i(R),  max_i b_i(R),  R = ⌈(1−α)(n+1)⌉-th smallest of R_i

Every sum is rounded outward. A target beyond an end of ``plus`` scores more than R_i for
⌈(1−α)(n+1)⌉ rows i, whatever the score: the proofs of Barber et al., written for absolute errors,
use no more (Gupta, Kuchibhotla, Ramdas 2022, doi:10.1016/j.patcog.2021.108496).
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from calliper import _kept as kept
from calliper import _validation as valid
from calliper import models
from calliper._blocks import map_row_blocks, row_slices
from calliper._types import BothEnds, Coverage, FloatArray, IntArray, Levels
from calliper.exceptions import CalliperError
from calliper.guarantees import ASSUMPTIONS, Guarantee, fold_coverage, jackknife_coverage
from calliper.intervals import Intervals
from calliper.quantile import conformal_rank, conformal_thresholds, row_order_statistics
from calliper.rows import check_known_rows, same_rows, state_of
from calliper.scores import Score

#: Rows to train on, and rows left out.
Fold = tuple[IntArray, IntArray]
#: Rows left out, and what the model predicts of them.
Predicted = tuple[IntArray, FloatArray]
#: Predictions held at a time, models times new rows: 128 MB.
CHUNK_FLOATS = 1 << 24

#: What intervals of models that refit look like.
NEARLY_CONSTANT = "nearly the same width everywhere"
#: What is known of all of them.
USUALLY = "On ordinary data coverage is close to the level asked for"

#: What they assume.
EXCHANGEABLE = ASSUMPTIONS[0].replace("calibration", "training")
SYMMETRIC = (
    "the estimator treats its training rows alike, whatever their order, and its settings were "
    "not tuned on them"
)


@dataclass(frozen=True)
class RefitGuarantee(Guarantee):
    """The guarantee of one fitted method at one level; ``n_calibration`` counts all rows.

    Parameters
    ----------
    remark : what is known beyond the bound, in a sentence

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from calliper.refitting import CVPlus
    >>> X = np.arange(40.0)[:, None]
    >>> CVPlus(LinearRegression(), cv=4).fit(X, X[:, 0] % 7).guarantee(0.9).n_calibration
    40
    """

    remark: str = ""
    points: str = "training"

    @property
    def assumptions(self) -> tuple[str, ...]:
        return EXCHANGEABLE, SYMMETRIC

    def _besides(self) -> list[str]:
        return [self.remark]


class RefittedRegressor(valid.MadeByCoverage, RegressorMixin, models.AroundModel):  # type: ignore[misc]
    """Intervals from models that each left out some rows.

    A method writes ``_folds``. One whose rows are left out by several models also writes
    ``_measure``, ``predict``, ``_left_out`` and ``_spread``, and what is proved of it.
    """

    #: What a file keeps; all models stay outside.
    keeps: ClassVar[Mapping[str, kept.Field]] = {
        "residuals_": kept.Array("float64", ("n",), least=np.finfo(np.float64).min, finite=False),
        "fold_": kept.Array("int32", ("n",), least=0, becomes="int64"),
        "in_bag_": kept.Array("bool", ("b", "n"), optional=True),
        "no_guarantee_": kept.Text(optional=True),
        "minmax": kept.Number(bool, optional=True),
        "models_": kept.Plain(),
        "estimator_": kept.Plain(),
        **kept.COLUMN_FIELDS,
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds; models are stored by number."""
        known = {n: vars(self).get(n) for n in self.keeps if n not in kept.COLUMN_FIELDS}
        return {**known, **kept.columns_for_file(self)}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what a file held, with the models given."""
        known = {name: value for name, value in state.items() if value is not None}
        self.__dict__.update({name: known[name] for name in known if name.endswith("_")})
        fold, bags, n_models = state["fold_"], state["in_bag_"], len(self.models_)
        fits = n_models == len(bags) if fold is None else fold.max(initial=0) < n_models
        if not fits or len({*map(id, self.models_)}) < n_models:
            raise CalliperError("rows refer to models that are missing, or models are there twice.")
        asked = [*self.models_, *([state["estimator_"]] if self.trains_on_all else ())]
        if len(self.residuals_) < 2 or not all(callable(getattr(m, "predict", m)) for m in asked):
            raise CalliperError("a method that refits needs at least 2 rows and fitted models.")
        kept.restore_columns(self, state)

    n_jobs: int | None
    minmax = False
    score_function: Any = None
    #: What each model leaves out.
    _part = "a fold"
    #: Whether :meth:`predict` asks one more model, trained on all rows.
    trains_on_all = True

    models_: tuple[Any, ...]
    residuals_: FloatArray
    fold_: IntArray
    no_guarantee_: str | None = None

    @valid.unchanged_if_refused
    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:
        """Train the models, and measure each row by those that left it out.

        ``fit_params`` go to ``fit`` of each, a value for each row (``sample_weight``) with the row.
        """
        return self._fit(X, y, fit_params)

    def _fit(self, X: Any, y: Any, fit_params: dict[str, Any], groups: Any = None) -> Self:
        y, _ = same_rows(X, "X", y=y, sample_weight=fit_params.get("sample_weight"))
        y = check_known_rows(self, X, y)
        self._probe = state_of(X)
        if len(y) < 2:
            what = f"{type(self).__name__} needs at least 2 rows, one to leave out and one to train"
            raise CalliperError(f"{what}; got n_samples = {len(y)}.")
        models.check_sample_weight(fit_params, len(y))
        models.refuse_crashing(self.estimator, X)
        model, score = self._asked()
        if score.n_tails != 1:
            what = f"{type(self).__name__} needs a score with one tail, such as QuantileError()"
            raise CalliperError(f"{what}; got {self.score_function!r}, which has {score.n_tails}.")
        X, known = indexable(X)[0], models.routed(self, fit_params)
        folds = self._folds(X, y, groups)
        jobs = (
            delayed(_fit_and_predict)(score.n_outputs, models.fresh(model), X, y, fold, known)
            for fold in folds
        )
        self.models_, parts = zip(*Parallel(n_jobs=self.n_jobs)(jobs), strict=True)
        self.residuals_ = self._measure(y, parts, score)
        if self.trains_on_all:
            self.estimator_ = models.fresh(model).fit(X, y, **known)
        self.no_guarantee_ = None
        return self

    def _measure(self, y: FloatArray, parts: Sequence[Predicted], score: Score) -> FloatArray:
        """R_i from what each model predicted of the rows that it left out."""
        self.fold_ = np.empty(len(y), dtype=np.intp)
        y_pred = np.empty((len(y), *parts[0][1].shape[1:]))
        for k, (rows, values) in enumerate(parts):
            self.fold_[rows], y_pred[rows] = k, values
        return score.measure(y, y_pred)

    def _asked(self) -> tuple[Any, Score]:
        """The model to train and predict with, and the score of its predictions."""
        return models.asked_as(self.estimator, self.score_function)

    @abstractmethod
    def _folds(self, X: Any, y: FloatArray, groups: Any) -> list[Fold]:
        """Rows to train on and rows left out, of each model."""

    def _proved(self, coverage: float, n: int) -> float:
        """The proved marginal coverage at one level, where each row is left out by one model."""
        n_folds, rank = len(self.models_), conformal_rank(coverage, n)
        bounds = [fold_coverage(coverage, n, n_folds)]
        if n_folds == n:
            bounds.append(jackknife_coverage(coverage, n))
        if self.minmax and n % n_folds == 0 and rank <= n:
            bounds.append(rank / (n + n // n_folds))
        return max(bounds)

    def _remark(self, coverage: float) -> str:
        """What is known beyond the bound, in a sentence."""
        if self.minmax:
            return "Coverage is usually well above the level asked for."
        return (
            f"{USUALLY}; it can fall to the bound if the model changes much without {self._part}."
        )

    def __sklearn_is_fitted__(self) -> bool:
        return "residuals_" in vars(self)

    def predict(self, X: Any) -> FloatArray:
        """What the model trained on all rows predicts, (m,); the middle of several quantiles."""
        check_is_fitted(self)
        valid.check_new_rows(self, X)
        score = self._asked()[1]
        return np.asarray(score.centre(models.predictions(self.estimator_, X, score.n_outputs)))

    @valid.says_coverage
    def predict_interval(self, X: Any, coverage: Coverage = 0.9) -> Intervals:
        """Intervals at one level, or at each of several.

        Parameters
        ----------
        X : rows to predict
        coverage : float or increasing list of L floats, default 0.9; ends are then (m, L)
        """
        check_is_fitted(self)
        valid.check_new_rows(self, X)
        levels = valid.check_levels(coverage)
        if not valid.n_rows(X):
            raise CalliperError("X has no rows: pass at least one.")
        valid.warn_if_too_few(len(self.residuals_), levels)
        held = len(self.models_) * self._asked()[1].n_outputs
        slices = row_slices(valid.n_rows(X), max(1, CHUNK_FLOATS // held))
        rows = indexable(X)[0]
        chunks = [X] if len(slices) == 1 else [_safe_indexing(rows, each) for each in slices]
        parts = zip(*(end for chunk in chunks for end in self._ends(chunk, levels)), strict=True)
        lower, upper = (valid.like_coverage(np.concatenate(part), coverage) for part in parts)
        asked = levels[0] if np.ndim(coverage) == 0 else levels
        return Intervals(lower, upper, asked, valid.labels_of(X))

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several."""
        check_is_fitted(self)
        n = 0 if self.no_guarantee_ else len(self.residuals_)
        return valid.each_level(lambda level: self._proved(level, n) if n else 0.0, coverage)

    def guarantee(self, coverage: float = 0.9) -> RefitGuarantee:
        """The guarantee with its assumptions; ``.describe()`` puts it in words."""
        coverage = valid.check_level(coverage)
        proved, remark = float(self.guaranteed_coverage(coverage)), self._remark(coverage)
        none = f"no coverage is proved at level {coverage:g}. {self.no_guarantee_ or remark}"
        return RefitGuarantee(
            method=type(self).__name__,
            coverage=coverage,
            n_calibration=len(self.residuals_),
            proved=proved,
            note=None if proved > 0 else none,
            remark=remark,
        )

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()
        fitted = self.__sklearn_is_fitted__()
        return diagram + self.guarantee(0.9)._repr_html_() if fitted else diagram

    def _left_out(self, per_model: FloatArray) -> FloatArray:
        """μ₋ᵢ(x), (m, n) or (m, n, K), from the predictions of all models, (m, n_models, …)."""
        return per_model[:, self.fold_]

    def _spread(self, per_model: FloatArray) -> FloatArray:
        """R_i, (n,), or (m, n) with what μ₋ᵢ(x) may be wrong by through rounding."""
        return self.residuals_

    def _ends(self, X: Any, levels: Levels) -> list[BothEnds]:
        """Ends for one chunk of rows, in blocks: (rows, n) never exists for all of them."""
        per_model, score = self.predictions_of_models(X), self._asked()[1]

        def block(rows: slice) -> BothEnds:
            near = per_model[rows]
            if self.minmax:
                return minmax_ends(score, near, self.residuals_, levels)
            return plus_ends(*score.invert(self._left_out(near), self._spread(near)), levels)

        return map_row_blocks(block, len(per_model), len(self.residuals_) * score.n_outputs)

    def predictions_of_models(self, X: Any) -> FloatArray:
        """Predictions of each model, (m, n_models), or (m, n_models, K) of K quantiles each."""
        workers, k = Parallel(n_jobs=self.n_jobs, prefer="threads"), self._asked()[1].n_outputs
        columns = workers(delayed(models.predictions)(model, X, k) for model in self.models_)
        return np.asarray(np.stack(columns, axis=1))


def plus_ends(down: FloatArray, up: FloatArray, levels: Levels) -> BothEnds:
    """Order statistics of a_i(R_i) and b_i(R_i), (m, n), at ranks n+1−Q and Q: two (m, L).

    Below level 1/2 they can be out of order; the interval is then the point of :func:`_innermost`.
    """
    n, no_end = down.shape[1], np.full((len(down), 1), np.inf)  # what rank n+1 is
    ranks = [conformal_rank(level, n) for level in levels]
    lower = row_order_statistics(np.hstack([-no_end, down]), [n + 2 - rank for rank in ranks])
    upper = row_order_statistics(np.hstack([up, no_end]), ranks)
    row, column = np.nonzero(lower > upper)
    rows, inverse = np.unique(row, return_inverse=True)
    lower[row, column] = upper[row, column] = _innermost(down[rows], up[rows])[inverse]
    return lower, upper


def _innermost(down: FloatArray, up: FloatArray) -> FloatArray:
    """A point (m,) within the ends of every rank at which these are in order, at any levels.

    Halfway between the ends at the last rank before, or as near to that as the next one allows.
    """
    down, up = np.sort(down, axis=1)[:, ::-1], np.sort(up, axis=1)
    rows, first = np.arange(len(down)), np.argmax(down <= up, axis=1)
    before = rows, first - 1
    halfway = down[before] + (up[before] - down[before]) / 2
    return np.asarray(np.clip(halfway, down[rows, first], up[rows, first]))


def minmax_ends(
    score: Score, per_model: FloatArray, residuals: FloatArray, levels: Levels
) -> BothEnds:
    """The least and the greatest target that some model scores at most R: two (m, L)."""
    radii = conformal_thresholds(np.sort(residuals), levels)
    ends = [score.invert(per_model, np.full(per_model.shape[:2], radius)) for radius in radii]
    lower, upper = (np.stack(each, axis=-1) for each in zip(*ends, strict=True))
    return lower.min(axis=1), upper.max(axis=1)


def _fit_and_predict(k: int, model: Any, X: Any, y: FloatArray, fold: Fold, given: Any) -> Any:
    """The model trained on a fold, rows that were left out, and its k predictions of each."""
    train, left_out = fold
    model = model.fit(_safe_indexing(X, train), y[train], **models.fit_params_of(X, given, train))
    if not len(left_out):
        return model, (left_out, np.empty(0))
    return model, (left_out, models.predictions(model, _safe_indexing(X, left_out), k))

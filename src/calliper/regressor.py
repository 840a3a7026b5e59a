"""Model and method together: intervals around a model that is trained once.

``fit`` splits the data, trains, and calibrates on the part that the model has not seen;
``calibrate`` takes a model that is already fitted. Both end in the same state.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_consistent_length, check_is_fitted, has_fit_parameter

from calliper._models import check_known_rows, check_new_rows, predictions
from calliper._types import Coverage, FloatArray, Score
from calliper._validation import check_levels, check_vector, like_coverage
from calliper.calibrators import FullRescaled, Split
from calliper.embedding import (
    LEFT_OUT,
    SEEN,
    Learnt,
    Training,
    check_folds,
    fit_embedding,
    refuse_changing,
    warn_if_poor,
)
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.quantile import as_fraction
from calliper.scores import AbsoluteError

#: What a calibrator may name in its ``fit`` beyond the calibration set.
EXTRAS = {"magnitudes", "length_scale", "y_train", *SEEN, *LEFT_OUT}


class ConformalRegressor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Prediction intervals around any regression model, as wide as the model errs *there*.

    Parameters
    ----------
    estimator : regressor or callable
        A scikit-learn regressor, fitted (for :meth:`calibrate`) or not (for :meth:`fit`), or any
        function from inputs to predictions (for :meth:`calibrate`).
    calibrator : calibrator, default FullRescaled()
        The method that turns calibration errors into radii. By default the kernel and how much its
        local scale is mixed with the global one are chosen by a rule, from left-out errors where
        they are known and never from calibration errors; see :class:`FullRescaled`.
    score_function : score, default AbsoluteError()
        What is called an error; ``SignedError`` gives one-sided bounds or two radii,
        ``QuantileError`` takes a model of quantiles (with ``Split``, that is CQR). (Plain
        ``score`` is taken: it is scikit-learn's method that rates the predictions.)
    embed : "auto", "inputs", "prediction", transformer or callable, default "auto"
        The space where nearness is judged. ``"auto"`` looks at the fitted model: prediction and
        spread of the members for forests and bagging, how far the last stages move it for
        gradient boosting, standard deviation where the model states one, the penultimate layer of
        a network; for others standardised inputs and prediction (without training rows the
        prediction alone, for a linear model what each input adds). Where left-out errors are
        known, the error that they let expect is one coordinate more, in place of the inputs.
        A class of your own that looks like an ensemble is asked for its spread only if its
        predictions of training rows are what the spread is taken around.
        ``"inputs"`` (or None) are the inputs, standardised by training rows where there are any.
        Kernels that work on the inputs (``ForestProximity(forest)``) get them as they are.
        A transformer is fitted to training rows, a function or ``Layer`` is taken as it is.
        Nothing is learnt from calibration rows: they would be treated unlike a new point, which
        costs the guarantee.
    calibration_size : float or int, default 0.25
        Part (or number) of the rows that :meth:`fit` holds out for calibration.
    left_out_folds : int, optional
        Errors on training rows by models that have not seen them, for calibrators that ask: out
        of bag where the model has bags, else from so many refits. By default :meth:`fit` refits 5
        times if the calibrator asks, :meth:`calibrate` never; 0 never refits. A frozen model is
        never refitted; a refit that fails is pointed out by ``EmbeddingWarning``.
    random_state : int, RandomState or None
        Splits the data, and seeds a calibrator that has no ``random_state`` of its own.

    Attributes
    ----------
    estimator_ : the model whose predictions are the centre of the intervals
    calibrators_ : the fitted calibrator of each tail of the score; one for most scores
    embedding_ : the fitted map to the space where nearness is judged; its repr says which
    left_out_ : training rows as seen by models that were not trained on them, or None

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 1))
    >>> y = X[:, 0] + X[:, 0] * rng.normal(size=1000)
    >>> model = ConformalRegressor(LinearRegression(), random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval([[0.1], [0.9]], coverage=0.9)
    >>> (upper - lower).round(1)
    array([0.3, 2.9])
    """

    def __init__(
        self,
        estimator: Any,
        calibrator: Any = None,
        *,
        score_function: Score | None = None,
        embed: Any = "auto",
        calibration_size: float = 0.25,
        left_out_folds: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.score_function = score_function
        self.embed = embed
        self.calibration_size = calibration_size
        self.left_out_folds = left_out_folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Hold out a part, train a clone of the estimator on the rest, calibrate on the part."""
        if not hasattr(self.estimator, "fit"):
            raise TypeError(
                f"fit needs an estimator that can be trained; got {self.estimator!r}. "
                f"If it already predicts, use calibrate(X, y) with data it has not seen."
            )
        check_folds(self.left_out_folds)
        y = check_known_rows(self, X, y)
        if len(y) < 2:
            raise CalliperError(
                f"fit needs at least 2 rows, one to train and one to calibrate; got n_samples = "
                f"{len(y)}."
            )
        X_train, X_cal, y_train, y_cal = train_test_split(
            X, y, test_size=self.calibration_size, random_state=self.random_state
        )
        estimator = clone(self.estimator).fit(X_train, y_train)
        training = Training(X_train, y_train, True, self.left_out_folds, self.random_state)
        return self._calibrate(estimator, X_cal, y_cal, training)

    def calibrate(self, X: Any, y: Any, *, X_train: Any = None, y_train: Any = None) -> Self:
        """Calibrate a model that is already fitted, on rows that it has not seen.

        ``X_train`` and ``y_train``, if given, are rows that the model *was* trained on (or other
        rows apart from ``X``): they standardise the inputs, and feed calibrators that learn from
        training errors or targets, such as ``MADSplit``.
        """
        check_folds(self.left_out_folds)
        y = check_known_rows(self, X, y)
        if (X_train is None) and (y_train is not None):
            raise CalliperError("y_train was given without X_train: pass both.")
        if y_train is not None:
            check_consistent_length(X_train, y_train)
            y_train = check_vector(y_train, "y_train")
        training = Training(X_train, y_train, False, self.left_out_folds, self.random_state)
        return self._calibrate(self.estimator, X, y, training)

    def predict(self, X: Any) -> FloatArray:
        """The model's prediction, (m,): the middle, if it predicts several quantiles."""
        check_is_fitted(self, "calibrators_")
        check_new_rows(self, X)
        y_pred = predictions(self.estimator_, X, getattr(self.score_, "n_outputs", 1))
        return y_pred if y_pred.ndim == 1 else np.asarray(self.score_.centre(y_pred))

    def predict_interval(
        self,
        X: Any,
        coverage: Coverage = 0.9,
        *,
        bounds: tuple[float, float] | None = None,
    ) -> Intervals:
        """Intervals at one level, or at each of several.

        Parameters
        ----------
        X : rows to predict
        coverage : float or increasing list of floats, default 0.9
            With a list of L levels the ends have shape (m, L).
        bounds : (y_min, y_max), optional
            The range that y can have, known beforehand; ends are moved into it, which loses no
            coverage. ``None`` or an infinity leaves a side open.
        """
        check_is_fitted(self, "calibrators_")
        check_new_rows(self, X)
        levels = check_levels(coverage)
        y_pred, Z = self.embedding_.predict_and_transform(X)
        tails = len(self.calibrators_)
        per_tail = [float(1 - (1 - as_fraction(level)) / tails) for level in levels]
        radius = np.stack([c.predict_radius(Z, per_tail) for c in self.calibrators_], axis=-1)
        per_level = y_pred[:, None]  # predictions are the same at every level
        lower, upper = self.score_.invert(per_level, radius[..., 0] if tails == 1 else radius)
        if bounds is not None:
            low, high = _check_bounds(bounds)
            lower, upper = np.clip(lower, low, high), np.clip(upper, low, high)
        return Intervals(
            like_coverage(lower, coverage),
            like_coverage(upper, coverage),
            levels[0] if np.ndim(coverage) == 0 else levels,
            getattr(X, "index", None) if hasattr(X, "columns") else None,
        )

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage; with two tails, by the union bound."""
        check_is_fitted(self, "calibrators_")
        tails = len(self.calibrators_)
        levels = [1 - (1 - as_fraction(level)) / tails for level in check_levels(coverage)]
        proved = []
        for level in levels:
            misses = [1 - c.guaranteed_coverage(float(level)) for c in self.calibrators_]
            proved.append(float(1 - sum(misses)))
        return proved[0] if np.ndim(coverage) == 0 else np.array(proved)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        proved = float(self.guaranteed_coverage(coverage))
        calibrator = self.calibrators_[0]
        level = float(1 - (1 - as_fraction(coverage)) / len(self.calibrators_))
        one: Guarantee = calibrator.guarantee(level)
        if len(self.calibrators_) == 1:
            return one
        return Guarantee(
            one.method, coverage, one.n_calibration, proved, one.has_law, len(self.calibrators_)
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrators_")

    def _calibrate(self, estimator: Any, X: Any, y: FloatArray, training: Training) -> Self:
        score: Any = AbsoluteError() if self.score_function is None else self.score_function
        n_outputs = getattr(score, "n_outputs", 1)
        calibrator = self._seeded_calibrator()
        named = {name for name in EXTRAS if has_fit_parameter(calibrator, name)}
        takes_inputs = getattr(getattr(calibrator, "kernel", None), "takes_inputs", False)
        embedding = fit_embedding(
            self.embed,
            training.X,
            X,
            model=estimator,
            n_outputs=n_outputs,
            y_train=training.y,
            raw=takes_inputs,
        )
        learnt = Learnt(embedding)
        if named & LEFT_OUT and getattr(calibrator, "uses_left_out", True):
            auto = isinstance(self.embed, str) and self.embed == "auto"
            learnt = training.learn(embedding, score, chosen=auto)
        embedding = learnt.embedding
        y_pred, Z = embedding.predict_and_transform(X)
        refuse_changing(embedding, X, y_pred, Z)
        if not (takes_inputs or isinstance(calibrator, Split)):  # which ask no distances
            warn_if_poor(embedding, Z)
        extras: dict[str, Any] = {
            "magnitudes": score.magnitude(y, y_pred),
            "length_scale": embedding.space.length_scale(len(y)),
            **learnt.extras,
            **training.tell(named, embedding, score),
        }
        wanted = {name: value for name, value in extras.items() if name in named}
        tails = score.measure(y, y_pred).reshape(len(y), -1).T
        self.calibrators_ = tuple(clone(calibrator).fit(Z, tail, **wanted) for tail in tails)
        self.estimator_, self.embedding_, self.score_ = estimator, embedding, score
        self.left_out_ = learnt.unseen
        return self

    def _seeded_calibrator(self) -> Any:
        calibrator = FullRescaled() if self.calibrator is None else clone(self.calibrator)
        parameters = calibrator.get_params(deep=False)
        if parameters.get("random_state", 0) is None:
            calibrator.set_params(random_state=self.random_state)
        return calibrator


def _check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise CalliperError(f"bounds must be a pair (y_min, y_max); got {bounds!r}.") from None
    low, high = -np.inf if low is None else float(low), np.inf if high is None else float(high)
    if not low < high:
        raise CalliperError(f"bounds must be (y_min, y_max) with y_min < y_max; got {bounds!r}.")
    return low, high

"""Model and method together: intervals around a model that is trained once.

``fit`` splits the data, trains, and calibrates on the part that the model has not seen;
``calibrate`` takes a model that is already fitted. Both end in the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any, Self

from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_consistent_length, check_is_fitted, has_fit_parameter

from calliper._calibrated import Calibrated, calibrate, seeded
from calliper._models import check_known_rows, check_new_rows, predictions
from calliper._types import Coverage, FloatArray, Score
from calliper._validation import check_vector
from calliper.calibrators import FullRescaled
from calliper.embedding import (
    LEFT_OUT,
    SEEN,
    Learnt,
    Training,
    fit_embedding,
    refuse_changing,
    warn_if_poor,
)
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.scores import AbsoluteError


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
    >>> import numpy as np
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
        _check_folds(self.left_out_folds)
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
        training = self._training(X_train, y_train, may_refit=True)
        return self._calibrate(estimator, X_cal, y_cal, training)

    def calibrate(self, X: Any, y: Any, *, X_train: Any = None, y_train: Any = None) -> Self:
        """Calibrate a model that is already fitted, on rows that it has not seen.

        ``X_train`` and ``y_train``, if given, are rows that the model *was* trained on (or other
        rows apart from ``X``): they standardise the inputs, and feed calibrators that learn from
        training errors or targets, such as ``MADSplit``.
        """
        _check_folds(self.left_out_folds)
        y = check_known_rows(self, X, y)
        if (X_train is None) and (y_train is not None):
            raise CalliperError("y_train was given without X_train: pass both.")
        if y_train is not None:
            check_consistent_length(X_train, y_train)
            y_train = check_vector(y_train, "y_train")
        training = self._training(X_train, y_train, may_refit=False)
        return self._calibrate(self.estimator, X, y, training)

    def predict(self, X: Any) -> FloatArray:
        """The model's prediction, (m,): the middle, if it predicts several quantiles."""
        check_is_fitted(self, "calibrators_")
        check_new_rows(self, X)
        y_pred = predictions(self.estimator_, X, getattr(self.score_, "n_outputs", 1))
        return self._calibrated.centre(y_pred)

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
        y_pred, Z = self.embedding_.predict_and_transform(X)
        index = getattr(X, "index", None) if hasattr(X, "columns") else None
        return self._calibrated.intervals(y_pred, Z, coverage, bounds=bounds, index=index)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage; with two tails, by the union bound."""
        check_is_fitted(self, "calibrators_")
        return self._calibrated.guaranteed_coverage(coverage)

    def guarantee(self, coverage: float = 0.9) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        check_is_fitted(self, "calibrators_")
        return self._calibrated.guarantee(coverage)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; ``calibrator__`` and its like name those of the default, too."""
        params: dict[str, Any] = super().get_params(deep)
        if deep and self.calibrator is None:
            nested = FullRescaled().get_params().items()
            params.update({f"calibrator__{name}": value for name, value in nested})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; to set one of the default calibrator's makes it explicit."""
        nested = any(name.startswith("calibrator__") for name in params)
        if nested and params.get("calibrator", self.calibrator) is None:
            params["calibrator"] = FullRescaled()
        super().set_params(**params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrators_")

    @property
    def _calibrated(self) -> Calibrated:
        return Calibrated(score=self.score_, calibrators=self.calibrators_)

    def _training(self, X: Any, y: FloatArray | None, *, may_refit: bool) -> Training:
        return Training(
            X=X,
            y=y,
            may_refit=may_refit,
            folds=self.left_out_folds,
            random_state=self.random_state,
        )

    def _calibrate(self, estimator: Any, X: Any, y: FloatArray, training: Training) -> Self:
        score: Any = AbsoluteError() if self.score_function is None else self.score_function
        calibrator = FullRescaled() if self.calibrator is None else self.calibrator
        calibrator = seeded(calibrator, self.random_state)
        learnt, known = self._learn(estimator, calibrator, score, X, training)
        embedding = learnt.embedding
        y_pred, Z = embedding.predict_and_transform(X)
        refuse_changing(embedding, X, y_pred, Z)
        if _asks_distances(calibrator):
            warn_if_poor(embedding, Z)
        known["length_scale"] = embedding.length_scale(len(y))
        self.calibrators_ = calibrate(calibrator, score, Z, y, y_pred, **known).calibrators
        self.estimator_, self.embedding_, self.score_ = estimator, embedding, score
        self.left_out_ = learnt.unseen
        return self

    def _learn(
        self, estimator: Any, calibrator: Any, score: Any, X: Any, training: Training
    ) -> tuple[Learnt, dict[str, Any]]:
        """The space, and what training rows tell the calibrator; nothing that it does not name."""
        embedding = fit_embedding(
            self.embed,
            training.X,
            X,
            model=estimator,
            n_outputs=getattr(score, "n_outputs", 1),
            y_train=training.y,
            raw=_takes_inputs(calibrator),
            nearness=getattr(calibrator, "judges_nearness", True),
        )
        learnt = Learnt(embedding=embedding)
        if training.X is None:
            return learnt, {}
        if _names(calibrator, LEFT_OUT) and getattr(calibrator, "uses_left_out", True):
            chosen = isinstance(self.embed, str) and self.embed == "auto"
            learnt = training.learn(embedding, score, chosen=chosen)
        seen = training.seen(learnt.embedding, score, wanted=_names(calibrator, SEEN))
        return learnt, {**learnt.extras, **seen}


def _takes_inputs(calibrator: Any) -> bool:
    """Whether its kernel is made of a model of its own, and asks for the inputs as they are."""
    return bool(getattr(getattr(calibrator, "kernel", None), "takes_inputs", False))


def _asks_distances(calibrator: Any) -> bool:
    return getattr(calibrator, "judges_nearness", True) and not _takes_inputs(calibrator)


def _names(calibrator: Any, parameters: Iterable[str]) -> bool:
    """Whether its ``fit`` takes any of these."""
    return any(has_fit_parameter(calibrator, name) for name in parameters)


def _check_folds(folds: Any) -> None:
    """``left_out_folds`` is None, 0, or a number of folds."""
    whole = isinstance(folds, Integral) and not isinstance(folds, bool)
    if folds is not None and not (whole and (folds == 0 or folds >= 2)):
        raise CalliperError(
            f"left_out_folds must be None, 0 (never refit) or a whole number of at least 2; got "
            f"{folds!r}."
        )

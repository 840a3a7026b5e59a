"""Model and method together: intervals around a model that is trained once.

``fit`` splits the data, trains, and calibrates on the part that the model has not seen;
``calibrate`` takes a model that is already fitted. Both end in the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.model_selection import GroupShuffleSplit, train_test_split
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from calliper._calibrated import Calibrated, calibrate, measured, refuse_seen, seeded
from calliper._dask import (
    LazyDistribution,
    LazyRows,
    is_collection,
    lazy_intervals,
    lazy_predictions,
    refuse_collection,
)
from calliper._kept import Field, Inline, Number, Part, Plain, Text
from calliper._notebook import card, floored, reporter
from calliper._row_checks import RowSketch, RowTrend, sketch_rows, warn_of_trend
from calliper._types import Coverage, FloatArray, IntArray
from calliper._validation import check_vector, check_window
from calliper.calibrators import Calibrator, FullRescaled, Grouped, as_calibrator, picture_of
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError, EmbeddingWarning, warn
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.models import (
    check_known_rows,
    check_new_rows,
    check_sample_weight,
    first_rows,
    fit_params_of,
    fit_router,
    fresh,
    is_frozen,
    predictions,
    routed,
    unchanged_if_refused,
)
from calliper.rows import PerRow, row_values
from calliper.scores import AbsoluteError, Score, as_score
from calliper.shift import ShiftReport
from calliper.space import (
    N_REFITS,
    RAW,
    UNTOUCHED,
    Embedding,
    ErrorModel,
    LeftOut,
    Training,
    fit_embedding,
    learn_errors,
    refuse_changing,
    warn_if_poor,
)

#: What is known of the assumption that the model has not seen the calibration rows.
CHECKED = "Checked when calibrating: no sign that the model was trained on these rows."
UNCHECKED = (
    "Not checked: whether the model was trained on these rows, since no training rows were given "
    "(calibrate with X_train and y_train)."
)


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
        The space where nearness is judged.

        ``"auto"`` looks at the fitted model: prediction and spread of the members for forests and
        bagging, how far the last stages move it for gradient boosting, standard deviation where
        the model states one, the penultimate layer of a network; for others standardised inputs
        and prediction (without training rows the prediction alone, for a linear model what each
        input adds). Where left-out errors are known, the error that they let expect is one
        coordinate more, in place of the inputs. Categories, text, dates and sparse columns are
        turned into numbers by training rows. A class of your own that looks like an ensemble is
        asked for its spread only if it predicts training rows as its members do together.

        ``"inputs"`` (or None) are the inputs, standardised by training rows where there are any.
        What works on the inputs themselves (``ForestProximity(forest)``, the basis of
        ``ConditionalCalibration``) gets them as they are.

        A transformer is fitted to training rows, a function or ``Layer`` is taken as it is.
        Nothing is learnt from calibration rows: they would be treated unlike a new point, which
        costs the guarantee.
    calibration_size : float or int, default 0.25
        Part (or number) of the rows that :meth:`fit` holds out for calibration; of the groups, if
        :meth:`fit` is given groups.
    shuffle : bool, default True
        Whether :meth:`fit` holds out rows at random. For rows in order of time choose False: the
        last rows are held out, and refits leave out runs of neighbouring rows.
    error_model : "auto", ErrorModel or None, default "auto"
        What is learnt from left-out errors beside nearness: where the model is biased, which moves
        the centre of the interval away from the prediction, and how far it errs on either side.
        ``"auto"`` does so for absolute errors with a calibrator that uses left-out errors, which
        the default does; ``ErrorModel(recentre=False)`` keeps the prediction inside its interval,
        None learns neither. Training rows alone decide, so the guarantee is the same.
    left_out_folds : int, optional
        Errors on training rows by models that have not seen them, for calibrators that ask: out
        of bag where the model has bags, else from so many refits. By default :meth:`fit` refits 5
        times if the calibrator asks, :meth:`calibrate` never; 0 never refits. A frozen model is
        never refitted; a refit that fails is pointed out by ``EmbeddingWarning``. A booster that
        stopped early is refitted with the ``eval_set`` of :meth:`fit`, else for as many rounds.
    random_state : int, RandomState or None
        Splits the data, and seeds a calibrator that has no ``random_state`` of its own.
    progress : callable or True, optional
        Is told the share of the trainings that are done, refits included. ``True`` shows it: a bar
        in a notebook, elsewhere a line on standard error.

    Attributes
    ----------
    estimator_ : the model whose predictions are the centre of the intervals
    calibrator_ : the fitted calibrator, where there is one
    calibrators_ : the fitted calibrator of each tail of the score; one for most scores
    embedding_ : the fitted map to the space where nearness is judged; its repr says which
    left_out_ : training rows as seen by models that were not trained on them, or None
    error_model_ : the fitted model of errors, or None
    void_ : why nothing is promised, in words, or None

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
    array([0.4, 2.7])
    """

    #: What a file keeps of a calibrated one; the model stays outside.
    keeps: ClassVar[Mapping[str, Field]] = {
        "calibrators": Part("calibrators", several=True),
        "space": Inline(Embedding),
        "score": Plain("score_function"),
        "void": Text(optional=True),
        "groups": Plain("groups"),
        "weights": Plain("weights"),
        "has_training": Number(bool),
        "trained_here": Number(bool),
        "sketch": Inline(RowSketch, optional=True),
        "left_out": Inline(LeftOut, optional=True),
        "trend": Inline(RowTrend, optional=True),
        "n_columns": Number(int, 0, optional=True),
        "names": Plain(),
    }

    calibrators_: tuple[Any, ...]
    embedding_: Embedding
    void_: str | None
    _per_row: PerRow
    _placed: tuple[Any, Any, bool]

    def __init__(
        self,
        estimator: Any,
        calibrator: Any = None,
        *,
        score_function: Score | None = None,
        embed: Any = "auto",
        calibration_size: float = 0.25,
        shuffle: bool = True,
        error_model: Any = "auto",
        left_out_folds: int | None = None,
        random_state: Any = None,
        progress: Any = None,
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.score_function = score_function
        self.embed = embed
        self.calibration_size = calibration_size
        self.shuffle = shuffle
        self.error_model = error_model
        self.left_out_folds = left_out_folds
        self.random_state = random_state
        self.progress = progress

    @unchanged_if_refused
    def fit(self, X: Any, y: Any, *, groups: Any = None, **fit_params: Any) -> Self:
        """Hold out a part, train a copy of the estimator on the rest, calibrate on the part.

        Parameters
        ----------
        X, y : rows and targets
        groups : (n,), column name or function of the rows, optional
            Rows of one group are held out together, in refits too. Intervals are then made from
            errors on groups that the model has not seen, but nothing is proved for new groups:
            rows of one group are not exchangeable with those of others. (For the promise in each
            group, known at calibration, see :meth:`calibrate`.)
        **fit_params
            Passed to ``fit`` of the estimator whenever it is trained (``sample_weight``,
            ``cat_features``, ``eval_set``, …); by requests, where scikit-learn's metadata routing
            is enabled. What has a value for each row is split with the rows. Nothing of it
            reaches the calibrator: calibration rows all weigh the same.
        """
        if not hasattr(self.estimator, "fit"):
            raise TypeError(
                f"fit needs an estimator that can be trained; got {self.estimator!r}. "
                f"If it already predicts, use calibrate(X, y) with data it has not seen."
            )
        _check_folds(self.left_out_folds)
        y = self._check_known(X, y)
        if len(y) < 2:
            raise CalliperError(
                f"fit needs at least 2 rows, one to train and one to calibrate; got n_samples = "
                f"{len(y)}."
            )
        if groups is not None:
            groups = row_values(groups, X, "groups")
        train, held_out = self._split(len(y), groups)
        check_sample_weight(fit_params, len(y))
        X, fit_params = indexable(X)[0], routed(self, fit_params)
        X_train, y_train = _safe_indexing(X, train), y[train]
        training = Training(
            X=X_train,
            y=y_train,
            n_refits=N_REFITS if self.left_out_folds is None else self.left_out_folds,
            random_state=self.random_state,
            shuffle=self.shuffle,
            groups=None if groups is None else _safe_indexing(groups, train),
            fit_params=fit_params_of(X, fit_params, train),
            progress=reporter(self.progress, "training"),
        )
        estimator = training.train(self.estimator, np.arange(len(train)))
        training.report(1 / (1 + training.n_refits))
        self._calibrate(estimator, _safe_indexing(X, held_out), y[held_out], training, held_out)
        training.report(1.0)
        if groups is not None:
            self.void_ = _few_groups(_safe_indexing(groups, held_out))
        self._trained = self.estimator, estimator, sketch_rows(X_train, y_train)
        return self

    @unchanged_if_refused
    def calibrate(
        self,
        X: Any,
        y: Any,
        *,
        X_train: Any = None,
        y_train: Any = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Self:
        """Calibrate a model that is already fitted, on rows that it has not seen.

        After :meth:`fit` that is the model trained there, so that newer rows take the place of
        those held out.

        ``X_train`` and ``y_train``, if given, are rows that the model *was* trained on (or other
        rows apart from ``X``): they standardise the inputs, and feed calibrators that learn from
        training errors or targets, such as ``MADSplit``. If they are calibration rows, too, that
        is refused, or pointed out by ``SharedRowsWarning`` if some are; nothing is promised then.

        ``groups`` asks for the promise in each group, by a calibrator of its own: labels, one a
        row, which :meth:`predict_interval` must then be given for new rows; or a column name or a
        function of the rows, which it remembers. (:meth:`fit` means something else by its groups;
        there ``calibrator=Grouped(FullRescaled(), groups="column")`` asks for this.)

        ``weights`` say how many times as often such inputs come among new rows, up to a constant:
        values, a column name, or a function of the rows such as a fitted
        :class:`calliper.shift.LikelihoodRatio`. The promise is then one for the new rows.
        """
        _check_folds(self.left_out_folds)
        per_row, lazy = PerRow(groups=groups, weights=weights), None
        if is_collection(X):
            lazy = LazyRows(X, y, per_row)
            X, y, per_row = lazy.X, lazy.y, lazy.per_row
        y = self._check_known(X, y, anew=False)
        refuse_collection(X_train, "X_train")
        if (X_train is None) and (y_train is not None):
            raise CalliperError("y_train was given without X_train: pass both.")
        if y_train is not None:
            check_consistent_length(X_train, y_train)
            y_train = self._check_targets(y_train, "y_train")
        elif self.left_out_folds:
            warn(
                f"left_out_folds={self.left_out_folds} asks for errors on training rows, and "
                f"calibrate was not given these: nothing is trained again. Pass X_train and "
                f"y_train, or leave left_out_folds out.",
                EmbeddingWarning,
            )
        untrained, model, rows = getattr(self, "_trained", (None, None, None))
        if untrained is not self.estimator:
            model, rows = self.estimator, None
        given = None if X_train is None else sketch_rows(X_train, y_train)
        void = refuse_seen(rows, X, y) or refuse_seen(given, X, y)
        training = Training(
            X=X_train,
            y=y_train,
            n_refits=self.left_out_folds or 0,
            random_state=self.random_state,
            shuffle=self.shuffle,
            progress=reporter(self.progress, "training"),
        )
        placed = getattr(self, "_placed", (None, None, False))
        same = placed[0] is model and placed[1] is self.embed and placed[2]
        before = self.embedding_ if same and X_train is None else None
        self._calibrate(model, X, y, training, per_row=per_row, lazy=lazy)
        self.void_ = void
        if before is not None:
            _warn_if_other(before, self.embedding_)
        return self

    @unchanged_if_refused
    def extend(
        self,
        X: Any,
        y: Any,
        *,
        window: int | None = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Self:
        """Add labelled rows to those calibrated on; the model and the space stay as they are.

        All is then as if calibrated on all rows at once, the locality that a rule of N gives too.
        One row more costs little with the K nearest, however many rows there are.

        Parameters
        ----------
        X, y : rows that the model has not seen, and their targets
        window : int, optional
            Keep so many rows, the latest, and drop those before: for data that drift.
        groups, weights : of these rows, if calibration was given such
        """
        (y_pred, Z), known = self._predicted(X, groups=groups, weights=weights)
        y = self._check_targets(y, "y")
        if len(y) != len(y_pred):
            raise CalliperError(f"X has {len(y_pred)} rows and y {len(y)}.")
        _, model, seen = getattr(self, "_trained", (None, None, None))
        # To tell copies from chance takes a few rows, and time.
        certain = len(y) >= 5 and model is self.embedding_.model
        void = refuse_seen(seen, X, y) if certain else None
        n = self._calibrated.calibrators[0].n_calibration_ + len(y)
        length = self.embedding_.length_scale(n if window is None else min(n, check_window(window)))
        known.pop("index")
        tails = measured(self.score_, Z, y, y_pred, **known)
        calibrated = self._calibrated.extended(tails, window=window, length_scale=length)
        self.calibrators_, self.void_ = calibrated.calibrators, self.void_ or void
        return self

    def predict(self, X: Any) -> FloatArray:
        """The model's prediction, (m,): the middle, if it predicts several quantiles."""
        self._check_calibrated()
        if is_collection(X):
            return lazy_predictions(self, X)  # type: ignore[no-any-return]
        check_new_rows(self, X)
        score = self._score()
        y_pred = predictions(self.estimator_, X, score.n_outputs)
        return y_pred if y_pred.ndim == 1 else np.asarray(score.centre(y_pred))

    def predict_interval(
        self,
        X: Any,
        coverage: Coverage = 0.9,
        *,
        bounds: tuple[float | None, float | None] | None = None,
        confidence: float | None = None,
        groups: Any = None,
        weights: Any = None,
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
        confidence : float, optional
            The level shall be reached given these very calibration rows, in at least this share
            of draws of them; for calibrators with a law of coverage, such as ``Split``.
        groups : (m,), column name or function of the rows, optional
            The group of each row, if :meth:`calibrate` was given groups.
        weights : (m,), column name or function of the rows, optional
            The weight of each row, if :meth:`calibrate` was given weights.
        """
        if is_collection(X):
            self._check_calibrated()
            how = {"bounds": bounds, "confidence": confidence, "groups": groups, "weights": weights}
            return lazy_intervals(self, X, coverage, **how)  # type: ignore[no-any-return]
        rows, known = self._predicted(X, groups=groups, weights=weights)
        known |= {"bounds": bounds, "confidence": confidence}
        return self._calibrated.intervals(*rows, coverage, **known)

    def predict_distribution(
        self, X: Any, *, bounds: Any = None, groups: Any = None, weights: Any = None
    ) -> Distribution:
        """The whole predictive distribution of each row, by the same calibration.

        See :class:`calliper.distribution.Distribution` for what it answers. For ``AbsoluteError``
        and calibrators with ``has_distribution``; arguments as in :meth:`predict_interval`.
        """
        if is_collection(X):
            self._check_calibrated()
            how = {"bounds": bounds, "groups": groups, "weights": weights}
            return LazyDistribution(self, X, how)  # type: ignore[return-value]
        rows, known = self._predicted(X, groups=groups, weights=weights)
        return self._calibrated.distribution(*rows, bounds=bounds, **known)

    def _predicted(
        self, X: Any, **per_row: Any
    ) -> tuple[tuple[FloatArray, FloatArray], dict[str, Any]]:
        """Predictions and features; and what is known of the rows besides, by name.

        That is labels, if they came in a frame, and groups and weights, if calibration had such.
        """
        self._check_calibrated()
        check_new_rows(self, X)
        per_row = self._per_row.new(X, **per_row)
        y_pred, Z = self.embedding_.predict_and_transform(X)
        index = getattr(X, "index", None) if hasattr(X, "columns") else None
        return (y_pred, Z), {"index": index, **per_row}

    def shift_report(self, X: Any, coverage: float = 0.9, *, weights: Any = None) -> ShiftReport:
        """What weights leave for these rows: effective calibration rows, infinite intervals.

        By group, ``calibrators_[0].calibrators_[group].shift_report(weights)`` tells.
        """
        self._check_calibrated()
        new = replace(self._per_row, groups=None).new(X, weights=weights)
        report: ShiftReport = self.calibrators_[0].shift_report(new.get("weights"), coverage)
        return report

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage; with two tails, by the union bound."""
        self._check_calibrated()
        return self._calibrated.guaranteed_coverage(coverage)

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        self._check_calibrated()
        promise = self._calibrated.guarantee(coverage, confidence)
        seen = UNCHECKED if self._unchecked else CHECKED
        return replace(promise, checks=f"{seen}\n{promise.checks}")

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

    def for_file(self) -> dict[str, Any]:
        """What a file holds of a calibrated one."""
        untrained, model, sketch = vars(self).get("_trained", (None, None, None))
        return {
            "calibrators": self.calibrators_,
            "space": self.embedding_,
            "score": self.score_,
            "void": self.void_,
            **vars(self._per_row),
            "has_training": self._placed[2],
            "trained_here": untrained is self.estimator and model is self.estimator_,
            "sketch": sketch,
            "left_out": self.left_out_,
            "trend": self._row_trend,
            "n_columns": vars(self).get("n_features_in_"),
            "names": [*vars(self).get("feature_names_in_", ())],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """What a file held, around the model that is given."""
        self.estimator_, self.embedding_ = self.estimator, state["space"]
        self.embedding_.model = self.estimator_
        self.calibrators_, self.score_, self.void_ = (
            state[name] for name in ("calibrators", "score", "void")
        )
        self.left_out_, self._row_trend = state["left_out"], state["trend"]
        self._per_row = PerRow(groups=state["groups"], weights=state["weights"])
        self._placed = (self.estimator_, self.embed, state["has_training"])
        self.error_model_ = self.embedding_.error_model
        if len(self.calibrators_) != self._n_tails():
            raise CalliperError("a score must have a calibrator for each of its tails.")
        if state["trained_here"]:
            self._trained = self.estimator, self.estimator_, state["sketch"]
        if state["n_columns"] is not None:
            self.n_features_in_ = state["n_columns"]
        if state["names"]:
            self.feature_names_in_ = np.array(state["names"], dtype=object)

    def _n_tails(self) -> int:
        """How many calibrators there are."""
        return int(self.score_.n_tails)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrators_")

    def __sklearn_clone__(self) -> Self:
        """As usual, but for estimators that cannot be cloned; these are copied."""
        around = copy(self)
        around.estimator = None
        cloned: Self = BaseEstimator.__sklearn_clone__(around)
        cloned.estimator = fresh(self.estimator)
        return cloned

    def _check_known(self, X: Any, y: Any, *, anew: bool = True) -> FloatArray:
        """Targets of rows, whose columns are remembered; ``anew`` if a model is to be trained."""
        return check_known_rows(self, X, y)

    def _check_targets(self, y: Any, name: str) -> FloatArray:
        """Targets as numbers."""
        return check_vector(y, name)

    def _check_calibrated(self) -> None:
        check_is_fitted(
            self,
            "calibrators_",
            msg="This %(name)s is not calibrated yet: call calibrate(X, y) with rows that the "
            "fitted model has not seen, or fit(X, y) to train a new model on a part of the rows.",
        )

    @property
    def calibrator_(self) -> Any:
        """The fitted calibrator; of a score with two tails there are two, in ``calibrators_``."""
        fitted: tuple[Any, ...] = getattr(self, "calibrators_", ())
        if len(fitted) != 1:
            raise AttributeError(
                f"there is no calibrator_: {len(fitted)} are fitted"
                f"{' (see calibrators_)' if fitted else ' (call calibrate or fit)'}."
            )
        return fitted[0]

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        words: str = super().__repr__(N_CHAR_MAX)
        return "\n  ".join([words, *self._state()])

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()
        if not self.__sklearn_is_fitted__():
            return diagram + card("", ["not calibrated yet: calibrate(X, y) or fit(X, y)"])
        state = card("", self._state(), picture_of(self.calibrators_[0]))
        return f"{diagram}{state}{self.guarantee(0.9)._repr_html_()}"

    def _state(self) -> list[str]:
        """What was calibrated, where and how near, and what is promised; nothing before."""
        if not hasattr(self, "calibrators_"):
            return []
        method = self.calibrators_[0]
        locality = method.locality_ if isinstance(method, FullRescaled) else None
        promise = self.guarantee(0.9)
        lines = [
            f"calibrated on {method.n_calibration_:,} rows by {promise.method}",
            f"near in {self.embedding_}" if method.judges_nearness else "",
            "" if locality is None else f"as local as {locality.describe()}",
            "" if self.left_out_ is None else f"left-out errors: {self.left_out_}",
            "" if self.error_model_ is None else self.error_model_.describe(),
            f"promised at 0.9: {floored(promise.proved)}"
            + (f" ({self.void_})" if self.void_ is not None else "")
            + (", unless rows are in order of time" if self._row_trend is not None else ""),
            UNCHECKED if self._unchecked and self.void_ is None else "",
        ]
        return [line for line in lines if line]

    @property
    def _unchecked(self) -> bool:
        """Whether neither ``fit`` nor X_train could tell what the model was trained on."""
        if getattr(self, "_trained", (None, None))[1] is self.estimator_:
            return is_frozen(self.estimator_)  # it was trained elsewhere, on whatever rows
        return not getattr(self, "_placed", (None, None, False))[2]

    @property
    def _calibrated(self) -> Calibrated:
        around = "" if self.error_model_ is None else self.error_model_.describe()
        return Calibrated(self.score_, self.calibrators_, self.void_, around)

    def _score(self) -> Any:
        """What the user calls an error."""
        return as_score(self.score_function)

    def _split(self, n: int, groups: Any) -> tuple[IntArray, IntArray]:
        """Rows to train on, and rows to hold out."""
        part: dict[str, Any] = {"test_size": self.calibration_size}
        if groups is None:
            if self.shuffle:
                part["random_state"] = self.random_state
            train, held_out = train_test_split(np.arange(n), shuffle=self.shuffle, **part)
            return train, held_out
        if not self.shuffle:
            raise CalliperError(
                "groups are held out at random, and shuffle=False asks for the last rows: leave "
                "out one of them, or split the rows yourself and use calibrate."
            )
        split = GroupShuffleSplit(1, random_state=self.random_state, **part)
        train, held_out = next(split.split(np.empty(n), groups=groups))
        return train, held_out

    def get_metadata_routing(self) -> MetadataRouter:
        """How fit parameters travel, for scikit-learn's metadata routing."""
        return fit_router(self)

    def _calibrate(
        self,
        estimator: Any,
        X: Any,
        y: FloatArray,
        training: Training,
        order: Any = None,
        per_row: PerRow = PerRow(),  # noqa: B008
        lazy: LazyRows | None = None,
    ) -> None:
        calibrator = FullRescaled() if self.calibrator is None else self.calibrator
        calibrator = seeded(as_calibrator(calibrator), self.random_state)
        if isinstance(calibrator, Grouped):  # what it wraps meets the model; groups come apart
            per_row = replace(per_row, groups=calibrator.asked(per_row.groups))
            calibrator = as_calibrator(calibrator.calibrator)
        given = per_row.known(X)
        embedding, score, errors, left_out = self._learn(estimator, calibrator, X, training)
        y_pred, Z = embedding.predict_and_transform(X)
        refuse_changing(embedding, X, y_pred, Z)
        if lazy is not None:  # what came so far are the first rows
            y, y_pred, Z, given = lazy.located(embedding)
            y = self._check_targets(y, "y")
        if _asks_distances(calibrator):
            warn_if_poor(embedding, Z)
        calibrated = calibrate(
            calibrator,
            score,
            measured(score, Z, y, y_pred, **given),
            training=training.seen(embedding, score, calibrator.uses),
            left_out=left_out,
            length_scale=embedding.length_scale(len(y)),
        )
        made = {
            "_row_trend": warn_of_trend(calibrated.errors(y, y_pred), order),
            "calibrators_": calibrated.calibrators,
            "void_": None,
            "_per_row": per_row.remembered(),
            "embedding_": embedding,
            "_placed": (estimator, self.embed, training.X is not None),
            "_probe": first_rows(X),
            "estimator_": estimator,
            "score_": score,
            "left_out_": left_out,
            "error_model_": errors,
        }
        # In one step: one that is interrupted in between would mix two calibrations.
        self.__dict__.update(made)

    def _learn(
        self, estimator: Any, calibrator: Calibrator, X: Any, training: Training
    ) -> tuple[Embedding, Any, ErrorModel | None, LeftOut | None]:
        """The space, the score, and what left-out rows teach if the calibrator uses them."""
        score = self._score()
        embedding = fit_embedding(
            self.embed,
            training.X,
            X,
            model=estimator,
            n_outputs=score.n_outputs,
            units=score.units,
            y_train=training.y,
            raw=_raw(calibrator),
            nearness=calibrator.judges_nearness,
        )
        asks = "left_out" in calibrator.uses
        errors = self._checked_error_model(score, asks=asks)
        if training.X is None or not (asks or errors.adjusts):
            return embedding, score, None, None
        chosen = isinstance(self.embed, str) and self.embed == "auto" and asks
        return learn_errors(training, embedding, score, errors, chosen=chosen)

    def _checked_error_model(self, score: Any, *, asks: bool) -> ErrorModel:
        """What to learn from left-out errors; ``asks`` says whether the calibrator does."""
        given, absolute = self.error_model, isinstance(score, AbsoluteError)
        if isinstance(given, str) and given == "auto":
            return ErrorModel(recentre=asks and absolute, units=asks and absolute)
        if given is None:
            return ErrorModel(recentre=False, units=False)
        if not isinstance(given, ErrorModel):
            raise TypeError(f"error_model must be 'auto', None or an ErrorModel; got {given!r}.")
        if given.adjusts and not absolute:
            raise CalliperError(
                f"an ErrorModel gives each side its own unit of the absolute error; the score "
                f"function is {score!r}. Leave out one of them."
            )
        return given


def _few_groups(held_out: Any) -> str:
    """Why rows of groups promise nothing for rows of new ones."""
    n, n_groups = len(held_out), len({str(group) for group in held_out})
    return (
        f"The {n:,} calibration rows come in {n_groups:,} groups, and rows of one group are alike: "
        f"they are not exchangeable with rows of new groups, for which coverage may be lower."
    )


def _warn_if_other(before: Embedding, now: Embedding) -> None:
    if before.space.name != now.space.name:
        warn(
            f"Without X_train nearness is now judged in another space: {now}, where it was "
            f"{before}. Pass X_train and y_train, the rows that the model was trained on, to "
            f"keep it.",
            EmbeddingWarning,
        )


def _raw(calibrator: Any) -> Any:
    """The inputs as they are, if it asks for them, or its kernel, made of a model of its own."""
    if calibrator.takes_inputs:
        return UNTOUCHED
    return RAW if calibrator.kernel is not None and calibrator.kernel.takes_inputs else None


def _asks_distances(calibrator: Any) -> bool:
    return calibrator.judges_nearness and _raw(calibrator) is None


def _check_folds(folds: Any) -> None:
    """``left_out_folds`` is None, 0, or a number of folds."""
    whole = isinstance(folds, Integral) and not isinstance(folds, bool)
    if folds is not None and not (whole and (folds == 0 or folds >= 2)):
        raise CalliperError(
            f"left_out_folds must be None, 0 (never refit) or a whole number of at least 2; got "
            f"{folds!r}."
        )

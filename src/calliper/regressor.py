"""Model and method together: intervals around a model that is trained once.

``fit`` splits the data, trains, and calibrates on the part that the model has not seen;
``calibrate`` takes a model that is already fitted. Both end in the same state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, indexable

from calliper import _validation as valid
from calliper import calibration
from calliper._answering import Calibration, TrainedHere
from calliper._estimator import CalibratedRegressor
from calliper._row_checks import sketch_rows, warn_of_times
from calliper._types import AgeingWeights, Coverage, FloatArray
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.models import predictions, takes_sparse
from calliper.rows import same_rows
from calliper.scores import Score
from calliper.space import Training, train_apart

#: What to do with rows in order of time: where some are held out, and where some are learnt from.
IN_TIME = (
    "shuffle=False holds out the last rows instead. shuffle=True says that the order of rows does "
    "not matter."
)
DEALT_IN_TIME = (
    "with shuffle=False the model's errors are learnt from the older rows and the later ones "
    "calibrate. shuffle=True says that the order does not matter."
)


class FrontDoor(CalibratedRegressor):
    """How a calibration comes about, whether there is one target or several."""

    estimator: Any
    shuffle: bool | None
    gap: int
    refits: int | None

    @valid.unchanged_if_refused
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, split_groups: Any = None, **fit_params: Any
    ) -> Self:
        """Train a copy of the estimator on part of the rows and calibrate on the others.

        Parameters
        ----------
        X, y : rows and targets
        groups : (n,), column name or function of the rows, optional
            The guarantee then holds in each group, as in :meth:`calibrate`.
        split_groups : (n,), column name or function of the rows, optional
            Rows of one group are held out together, in refits too. Intervals are then made from
            errors on groups that the model has not seen, but nothing is proved for new groups, as
            ``SplitGroupsWarning`` says: rows of one group are not exchangeable with those of
            others.
        **fit_params
            Passed to ``fit`` of the estimator whenever it is trained (``sample_weight``,
            ``cat_features``, ``eval_set``, …); by requests, where scikit-learn's metadata routing
            is enabled. Values for each row are split with the rows. None of it reaches the
            calibrator: calibration rows all weigh the same.
        """
        apart = {"split_groups": split_groups, "sample_weight": fit_params.get("sample_weight")}
        _, groups, split_groups, _ = same_rows(X, "X", y=y, groups=groups, **apart)
        known = self._check_known(X, y)
        warn_of_times(X, y, self.shuffle, "fit holds out", IN_TIME)
        together = None
        if split_groups is not None:
            together = valid.row_values(split_groups, X, "split_groups")
        of_rows = valid.remembered(groups) is not groups  # values, one for each row
        if of_rows:
            groups = valid.row_values(groups, X, "groups")
        model, held_out, training = train_apart(self, X, known, together, fit_params)
        per_row = valid.PerRow(groups=groups[held_out] if of_rows else groups)
        rows = _safe_indexing(indexable(X)[0], held_out)
        how = {"order": held_out, "per_row": per_row}
        made = self._calibrated(model, rows, known[held_out], training, **how)
        training.report(1.0)
        why = None if together is None else calibration.warn_of_groups(together[held_out])
        sketch = sketch_rows(training.X, training.y)
        self._keep(replace(made, no_guarantee=why), TrainedHere(self.estimator, model, sketch))
        calibration.warn_of_unused(made, training, self.refits, given=False)
        return self

    @valid.unchanged_if_refused
    def calibrate(
        self,
        X: Any,
        y: Any = None,
        *,
        X_train: Any = None,
        y_train: Any = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Self:
        """Calibrate a model that is already fitted, on rows that it has not seen.

        After :meth:`fit` that is the model trained there, so that newer rows replace those held
        out.

        Parameters
        ----------
        X : rows
            An array, a frame, a sparse matrix, a tensor, or a list of what the model takes; for a
            network also a dict of arrays or tensors, or a ``DataLoader`` that does not shuffle,
            whose batches are (inputs, targets), without ``y``.
        y : (n,) targets
        X_train, y_train : rows that the model *was* trained on, or others not in X, optional
            They standardise the inputs, and are for calibrators that learn from training errors or
            targets, such as ``MADSplit``; ``UnusedWarning`` says if they change nothing. If all
            calibration rows are among them, that is refused; if some are, ``SharedRowsWarning``
            says that there is no guarantee.
        groups : (n,), column name or function of the rows, optional
            The guarantee then holds in each group, by a calibrator for each. A column name or a
            function is remembered; labels must be given to :meth:`predict_interval`, too.
        weights : (n,), column name or function of the rows, optional
            How much more often a row's inputs occur among new rows, up to a constant: for example a
            fitted :class:`calliper.shift.LikelihoodRatio`. The guarantee is then for new rows.
            ``calliper.shift.Recency(half_life)`` gives older rows less weight.
        """
        _, groups, weights = same_rows(X, "X", y=y, groups=groups, weights=weights)
        X, y, per_row, lazy = valid.rows_at_hand(X, y, groups, weights, self.estimator)
        before: Calibration | None = vars(self).get("calibration_")
        trained, times = None if before is None else before.trained, (X, y)
        again = trained is not None and trained.estimator is self.estimator
        y = self._check_known(X, y, again=again)
        model, training, trained, why = calibration.given_model(
            self, trained, X, y, X_train, y_train
        )
        if isinstance(weights, AgeingWeights):
            why = why or weights.explain()
        made = self._calibrated(model, X, y, training, per_row=per_row, lazy=lazy)
        self._keep(replace(made, no_guarantee=why), trained)
        if made.n_taught:
            warn_of_times(*times, self.shuffle, "calibrate splits", DEALT_IN_TIME)
        calibration.warn_after_calibrate(before, made, training, self)
        return self

    @valid.unchanged_if_refused
    def extend(
        self,
        X: Any,
        y: Any,
        *,
        window: int | None = None,
        groups: Any = None,
        weights: Any = None,
    ) -> Self:
        """Add labelled rows to the calibration rows; the model and the space stay as they are.

        The result is as if calibrated on all rows at once, including the locality that a rule of N
        gives, but nothing is learnt again: rows from which the model's errors were learnt do not
        calibrate, and the slack for rounding stays. With nearest neighbours, adding a row is cheap
        however many rows there are.

        Parameters
        ----------
        X, y : rows that the model has not seen, and their targets
        window : int, optional
            Keep this many of the latest rows and drop older ones: for data that drift.
        groups, weights : of these rows, if calibration was given them
        """
        self._check_calibrated()
        _, groups, weights = same_rows(X, "X", y=y, groups=groups, weights=weights)
        X, y = valid.gathered(X, y, self.estimator)
        self._extend(X, self._check_targets(y), window, groups, weights)
        return self

    @abstractmethod
    def _check_known(self, X: Any, y: Any, *, again: bool = False) -> FloatArray:
        """Checked targets; ``again`` if the model is that of ``fit``. Remembers columns of X."""

    @abstractmethod
    def _check_targets(self, y: Any, name: str = "y") -> FloatArray:
        """Checked targets, called by their name."""

    @abstractmethod
    def _calibrated(
        self, model: Any, X: Any, y: FloatArray, training: Training, **how: Any
    ) -> Calibration:
        """What calibration makes; ``how`` is what ``calibrate_model`` takes."""

    @abstractmethod
    def _extend(self, X: Any, y: FloatArray, window: Any, groups: Any, weights: Any) -> None:
        """Add rows with checked targets."""

    def _keep(self, made: Calibration, trained: TrainedHere | None) -> None:
        """Answer by this from now on."""
        self.calibration_ = replace(made, trained=trained)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.estimator)
        return tags

    def _check_calibrated(self, first: str = "") -> None:
        if "calibration_" not in vars(self):
            raise NotFittedError(
                f"{first}This {type(self).__name__} is not calibrated yet: call calibrate(X, y) "
                f"with rows that the fitted model has not seen, or fit(X, y) to train a new model "
                f"on some rows and calibrate on the rest."
            )


@dataclass(eq=False, repr=False)
class ConformalRegressor(FrontDoor):
    """Prediction intervals around any regression model, wider where its errors are larger.

    Parameters
    ----------
    estimator : regressor or callable
        A scikit-learn regressor, fitted (for :meth:`calibrate`) or not (for :meth:`fit`), or any
        function from inputs to predictions (for :meth:`calibrate`). Pass fitted models of one
        quantile each as ``{0.05: low, 0.5: middle, 0.95: high}``, or as a list if their
        parameters say which quantile.
    calibrator : calibrator, default FullRescaled()
        The method that turns calibration errors into radii. By default a rule chooses the kernel
        and how much its local scale is mixed with the global one, from left-out errors where they
        are known and never from calibration errors; see :class:`FullRescaled`.
    score_function : score, default AbsoluteError()
        How an error is measured. ``SignedError`` gives one-sided bounds or two radii,
        ``QuantileError`` takes a model of quantiles (with ``Split``, that is CQR). For known kinds
        of models that predict three quantiles or more, or a distribution, ``DistributionError``
        is the default. (The name ``score`` is taken by scikit-learn's method.)
    embed : "auto", "inputs", "prediction", layer name, transformer or callable, default "auto"
        The space where nearness is judged.

        ``"auto"`` looks at the fitted model: prediction and spread of the members for forests and
        bagging, how far the last stages move it for gradient boosting, standard deviation where
        the model states one, the penultimate layer of a network; for others standardised inputs
        and prediction (without training rows the prediction alone, for a linear model what each
        input adds). Where left-out errors are known, the expected error is a coordinate instead
        of the inputs. Categories, text, dates and sparse columns are turned into numbers
        by training rows. The spread of an ensemble class of your own is used only if the mean of
        its members predicts training rows as the ensemble does.

        ``"inputs"`` (or None) are the inputs, standardised by training rows where there are any.
        Methods that work on the inputs themselves (``ForestProximity(forest)``, the basis of
        ``ConditionalCalibration``) get them unchanged.

        Any other text names a layer of a PyTorch module, as ``module.named_modules()`` does. A
        transformer is fitted to training rows; a function, module or ``Layer`` is used as it is.
        Nothing is learnt from calibration rows, because that would void the guarantee.
    calibration_size : float or int, default 0.25
        Share (or number) of the rows that :meth:`fit` holds out for calibration; of the groups,
        if :meth:`fit` is given ``split_groups``.
    shuffle : bool, optional
        Whether :meth:`fit` holds out rows at random. For rows in order of time choose False: the
        last rows are held out, and refits leave out blocks of consecutive rows. By default rows
        are drawn at random, with a ``RowOrderWarning`` if they carry times in order; True says
        that the order does not matter.
    gap : int, default 0
        With ``shuffle=False``, the number of rows that are left out between training and held-out
        rows, around the blocks that refits leave out, and between the rows that are learnt from
        and those that calibrate: for rows that overlap in time, such as targets of the next 24
        hours.
    error_model : "auto", ErrorModel or None, default "auto"
        What is learnt from left-out errors besides nearness: where the model is biased, which
        moves the centre of the interval away from the prediction, and how large errors are on
        either side. ``"auto"`` learns both for absolute errors, and for models of distributions,
        with a calibrator that uses left-out errors, as the default does;
        ``ErrorModel(recentre=False)`` keeps the prediction inside its interval, None learns
        neither. Rows that calibrate are not used, so the guarantee is the same.
    learning_part : "auto", float, int or None, default "auto"
        Calibration rows from which to learn how the model errs, where no left-out errors of
        training rows are known; the others calibrate. A share, a number, or None for no row. They
        are drawn at random by ``random_state``; with ``shuffle=False`` they are the first.
        ``"auto"``, for calibrators that use left-out errors, splits 300 rows or more: at least 200
        rows and 35 % of all calibrate, and at most 8,000 are learnt from. For a model of
        distributions 40 % are learnt from if there are 100 to 300 rows. Each group is split by
        itself. A level that only all rows together can support uses plain split on all rows,
        with a warning.
    refits : int, optional
        Refits for out-of-fold errors on training rows, for calibrators that use them; a model
        with bags has out-of-bag errors instead. By default :meth:`fit` refits 5 times and
        :meth:`calibrate` never; 0 never refits. A frozen model is never refitted. A refit that
        fails gives an ``EmbeddingWarning``, one that is requested but impossible an
        ``UnusedWarning``. A booster that stopped early is refitted with the ``eval_set`` of
        :meth:`fit`, else for as many rounds.
    random_state : int, RandomState or None
        Splits the data, and seeds a calibrator that has no ``random_state`` of its own.
    progress : callable or True, optional
        Is called with the share of training that is done, refits included. ``True`` shows it: a
        bar in a notebook, elsewhere a line on standard error.

    Attributes
    ----------
    calibration_ : what :meth:`fit` or :meth:`calibrate` made; the other attributes are read from it
    estimator_ : the model whose predictions are the centre of the intervals
    calibrator_ : the fitted calibrator, where there is one
    calibrators_ : the fitted calibrator of each tail of the score; one for most scores
    embedding_ : the fitted map to the space where nearness is judged; its repr says which
    left_out_ : training rows with out-of-fold or out-of-bag predictions, or None
    error_model_ : the fitted model of errors, or None
    no_guarantee_ : why there is no guarantee, in words, or None
    score_ : how an error is measured

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

    estimator: Any
    calibrator: Any = None
    _: KW_ONLY
    score_function: Score | None = None
    embed: Any = "auto"
    calibration_size: float = 0.25
    shuffle: bool | None = None
    gap: int = 0
    error_model: Any = "auto"
    learning_part: float | str | None = "auto"
    refits: int | None = None
    random_state: Any = None
    progress: Any = None

    def restore(self, state: dict[str, Any]) -> None:
        """What a file held, around the model that is given."""
        n, tails = len(state["calibrators"]), state["score"].n_tails
        if n != tails:
            raise CalliperError(f"the score takes {tails} calibrators, one for each tail; got {n}.")
        super().restore(state)

    def _check_known(self, X: Any, y: Any, *, again: bool = False) -> FloatArray:
        return valid.check_known_rows(self, X, y)

    def _check_targets(self, y: Any, name: str = "y") -> FloatArray:
        return valid.check_vector(y, name)

    def _calibrated(
        self, model: Any, X: Any, y: FloatArray, training: Training, **how: Any
    ) -> Calibration:
        return calibration.calibrate_model(self, model, X, y, training, **how)

    def _extend(self, X: Any, y: FloatArray, window: Any, groups: Any, weights: Any) -> None:
        y_pred, Z, per_row = self._predicted(X, groups, weights)
        if len(y) != len(y_pred):
            raise CalliperError(f"X has {len(y_pred)} rows and y {len(y)}.")
        del per_row["index"]
        made = self.calibration_
        self.calibration_ = calibration.extended(made, X, y, y_pred, Z, window=window, **per_row)

    @valid.handled
    def predict(self, X: Any) -> FloatArray:
        """The model's prediction, (m,): the middle, if it predicts several quantiles."""
        self._check_calibrated()
        valid.check_new_rows(self, X)
        made = self.calibration_
        y_pred = predictions(made.space.model, X, made.space.n_outputs)
        if y_pred.ndim == 1:
            return y_pred
        _, score = calibration.asked_as(made.model, made.chosen["score_function"])
        return np.asarray(score.centre(y_pred))

    @valid.handled
    def predict_interval(
        self,
        X: Any,
        coverage: Coverage = valid.USUAL_COVERAGE,
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
            coverage. ``None`` or an infinity leaves a side open. Refused if calibration targets
            lie outside.
        confidence : float, optional
            The share of calibration sets for which the coverage holds; for calibrators with a law
            of coverage, such as ``Split``. Give ``coverage`` as well.
        groups : (m,), column name or function of the rows, optional
            The group of each row, if :meth:`calibrate` was given groups.
        weights : (m,), column name or function of the rows, optional
            The weight of each row, if :meth:`calibrate` was given weights.
        """
        y_pred, Z, per_row = self._predicted(X, groups, weights)
        return self.calibration_.intervals(
            y_pred, Z, coverage, bounds=bounds, confidence=confidence, X=X, **per_row
        )

    def ranking(
        self, X: Any, y: FloatArray, *, groups: Any = None, weights: Any = None
    ) -> tuple[FloatArray | None, Callable[[FloatArray], Any]]:
        """Ranks of the scores, and which targets the intervals of some levels hold, (m, L).

        The model predicts once. Ranks are shares of the thresholds, (m,); None if these differ
        between rows.
        """
        y_pred, Z, per_row = self._predicted(X, groups, weights)
        made = self.calibration_
        alike = groups is None and weights is None
        return (
            made.share_below(y, y_pred, Z) if alike else None,
            lambda levels: made.intervals(y_pred, Z, levels, X=X, **per_row).contains(y),
        )

    @valid.handled
    def predict_distribution(
        self, X: Any, *, bounds: Any = None, groups: Any = None, weights: Any = None
    ) -> Distribution:
        """The whole predictive distribution of each row, by the same calibration.

        See :class:`calliper.distribution.Distribution` for what it answers. For ``AbsoluteError``
        and calibrators with ``has_distribution``; arguments as in :meth:`predict_interval`.
        """
        y_pred, Z, per_row = self._predicted(X, groups, weights)
        return self.calibration_.distribution(y_pred, Z, bounds=bounds, **per_row)

    def _predicted(
        self, X: Any, groups: Any, weights: Any
    ) -> tuple[FloatArray, FloatArray, dict[str, Any]]:
        """Predictions and features; and labels, groups and weights of the rows, by name."""
        self._check_calibrated()
        valid.check_new_rows(self, X)
        if groups is not None or weights is not None:
            groups, weights = same_rows(X, "X", groups=groups, weights=weights)
        per_row = self.calibration_.per_row.new(X, groups=groups, weights=weights)
        y_pred, Z = self.calibration_.space.predict_and_transform(X)
        return y_pred, Z, {"index": valid.labels_of(X), **per_row}

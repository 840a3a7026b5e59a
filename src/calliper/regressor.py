"""Model and method together: intervals around a model that is trained once.

``fit`` splits the data, trains, and calibrates on the part that the model has not seen;
``calibrate`` takes a model that is already fitted. Both end in the same state.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_consistent_length

from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_known_rows,
    check_new_rows,
    check_vector,
    gathered,
    handled,
    unchanged_if_refused,
)
from calliper.calibration import FrontDoor, calibrate_given, fit_apart, given_training, rows_at_hand
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.models import predictions
from calliper.rows import labels_of, same_rows
from calliper.scores import Score, as_score


class ConformalRegressor(FrontDoor):
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
    embed : "auto", "inputs", "prediction", layer name, transformer or callable, default "auto"
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

        Any other text names a layer of a PyTorch module, as ``module.named_modules()`` does. A
        transformer is fitted to training rows, a function or ``Layer`` is taken as it is.
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
    calibration_ : what :meth:`fit` or :meth:`calibrate` made; the other attributes are of it
    estimator_ : the model whose predictions are the centre of the intervals
    calibrator_ : the fitted calibrator, where there is one
    calibrators_ : the fitted calibrator of each tail of the score; one for most scores
    embedding_ : the fitted map to the space where nearness is judged; its repr says which
    left_out_ : training rows as seen by models that were not trained on them, or None
    error_model_ : the fitted model of errors, or None
    no_guarantee_ : why nothing is promised, in words, or None
    score_ : what is called an error

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

    def restore(self, state: dict[str, Any]) -> None:
        """What a file held, around the model that is given."""
        n, tails = len(state["calibrators"]), state["score"].n_tails
        if n != tails:
            raise CalliperError(f"the score takes {tails} calibrators, one for each tail; got {n}.")
        super().restore(state)

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
        known = {"sample_weight": fit_params.get("sample_weight")}
        y, groups, _ = same_rows(X, "X", y=y, groups=groups, **known)
        y = check_known_rows(self, X, y)
        self.calibration_ = fit_apart(self, X, y, groups, fit_params)
        return self

    @unchanged_if_refused
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

        Rows are an array, a frame, a sparse matrix, a tensor, or a list of what the model takes;
        for a network also a dict of arrays or tensors, or a ``DataLoader`` that does not shuffle,
        whose batches (inputs, targets) leave ``y`` out.

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
        y, groups, weights = same_rows(X, "X", y=y, groups=groups, weights=weights)
        X, y, per_row, lazy = rows_at_hand(X, y, groups, weights)
        y = check_known_rows(self, X, y)
        X_train, y_train = gathered(X_train, y_train)
        if y_train is not None and X_train is not None:
            (y_train,) = same_rows(X_train, "X_train", y_train=y_train)
            check_consistent_length(X_train, y_train)
            y_train = check_vector(y_train, "y_train")
        training = given_training(self, X_train, y_train)
        before = vars(self).get("calibration_")
        self.calibration_ = calibrate_given(self, before, X, y, training, per_row, lazy)
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
        self._check_calibrated()
        y, groups, weights = same_rows(X, "X", y=y, groups=groups, weights=weights)
        X, y = gathered(X, y)
        self._extend(X, check_vector(y, "y"), window, groups, weights)
        return self

    def _extend(self, X: Any, y: FloatArray, window: Any, groups: Any, weights: Any) -> None:
        """Add rows with checked targets."""
        y_pred, Z, per_row = self._predicted(X, groups, weights)
        if len(y) != len(y_pred):
            raise CalliperError(f"X has {len(y_pred)} rows and y {len(y)}.")
        del per_row["index"]
        self.calibration_ = self.calibration_.extended(X, y, y_pred, Z, window=window, **per_row)

    @handled
    def predict(self, X: Any) -> FloatArray:
        """The model's prediction, (m,): the middle, if it predicts several quantiles."""
        self._check_calibrated()
        check_new_rows(self, X)
        score = as_score(self.calibration_.chosen["score_function"])
        y_pred = predictions(self.estimator_, X, score.n_outputs)
        return y_pred if y_pred.ndim == 1 else np.asarray(score.centre(y_pred))

    @handled
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
        y_pred, Z, per_row = self._predicted(X, groups, weights)
        return self.calibration_.intervals(
            y_pred, Z, coverage, bounds=bounds, confidence=confidence, **per_row
        )

    @handled
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
        check_new_rows(self, X)
        groups, weights = same_rows(X, "X", groups=groups, weights=weights)
        per_row = self.calibration_.per_row.new(X, groups=groups, weights=weights)
        y_pred, Z = self.calibration_.space.predict_and_transform(X)
        return y_pred, Z, {"index": labels_of(X), **per_row}

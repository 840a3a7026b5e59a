"""Model and method together: intervals around a model that is trained once.

``fit`` splits the data, trains, and calibrates on the part that the model has not seen;
``calibrate`` takes a model that is already fitted. Both end in the same state. Regressors of one
target and of several come to a calibration by the functions here; each says how it checks targets
(``_check_known``, ``_check_targets``) and what calibration makes of them (``_calibrated``).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from calliper import _validation as valid
from calliper._answering import Answers, Calibration, TrainedHere, check_calibrated
from calliper._estimator import CalibratedRegressor
from calliper._notebook import reporter
from calliper._row_checks import SEEN_IN_TRAINING, refuse_seen, sketch_rows
from calliper._types import AgeingWeights, FloatArray
from calliper.calibration import calibrate_model, extended, warn_of_groups
from calliper.exceptions import CalliperError, EmbeddingWarning, UnusedWarning, warn
from calliper.models import family_of, open_model, predictions, takes_sparse
from calliper.rows import (
    PerRow,
    check_known_rows,
    first_rows,
    gathered,
    remembered,
    row_values,
    rows_at_hand,
    same_rows,
    warn_of_times,
)
from calliper.scores import DistributionError, Score
from calliper.space import (
    Training,
    knows_left_out,
    learnt_from_training,
    train_apart,
    why_no_refit,
)

#: What to do with rows in order of time: where some are held out, and where some are learnt from.
IN_TIME = (
    "shuffle=False holds out the last rows instead. shuffle=True says that the order of rows does "
    "not matter."
)
DEALT_IN_TIME = (
    "with shuffle=False the model's errors are learnt from the older rows and the later ones "
    "calibrate. shuffle=True says that the order does not matter."
)


@dataclass(eq=False, repr=False)
class ConformalRegressor(CalibratedRegressor, Answers):
    """Prediction intervals for any regression model, wider where its errors are larger.

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
        distributions it splits 100 rows or more; of up to 500, at least 120 and 40 % calibrate, but
        no more than 60 %. Each group is split by itself. A level that only all rows together can
        support uses plain split on all rows, with a warning.
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
        self.calibration_ = trained_and_calibrated(self, X, y, groups, split_groups, fit_params)
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
        self.calibration_ = calibrated(self, X, y, X_train, y_train, groups, weights)
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
        X, y, groups, weights = rows_to_add(self, X, y, groups, weights)
        self._extend(X, y, window, groups, weights)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.estimator)
        return tags

    def _extend(self, X: Any, y: FloatArray, window: Any, groups: Any, weights: Any) -> None:
        """Add rows with checked targets."""
        y_pred, Z, per_row = self._predicted(X, groups, weights)
        if len(y) != len(y_pred):
            raise CalliperError(f"X has {len(y_pred)} rows and y {len(y)}.")
        del per_row["index"]
        self.calibration_ = extended(self.calibration_, X, y, y_pred, Z, window=window, **per_row)

    def _check_known(self, X: Any, y: Any, *, again: bool = False) -> FloatArray:
        """Checked targets; ``again`` if the model is that of ``fit``. Remembers columns of X."""
        return check_known_rows(self, X, y)

    def _check_targets(self, y: Any, name: str = "y") -> FloatArray:
        """Checked targets, called by their name."""
        return valid.check_vector(y, name)

    def _calibrated(
        self, model: Any, X: Any, y: FloatArray, training: Training, **how: Any
    ) -> Calibration:
        """What calibration makes; ``how`` is what ``calibrate_model`` takes."""
        return calibrate_model(self, model, X, y, training, **how)


def trained_and_calibrated(
    front: Any, X: Any, y: Any, groups: Any, split_groups: Any, fit_params: dict[str, Any]
) -> Calibration:
    """What ``fit`` of a regressor makes; arguments as there."""
    apart = {"split_groups": split_groups, "sample_weight": fit_params.get("sample_weight")}
    _, groups, split_groups, _ = same_rows(X, "X", y=y, groups=groups, **apart)
    known = front._check_known(X, y)
    warn_of_times(X, y, front.shuffle, "fit holds out", IN_TIME)
    together = None if split_groups is None else row_values(split_groups, X, "split_groups")
    of_rows = remembered(groups) is not groups  # values, one for each row
    if of_rows:
        groups = row_values(groups, X, "groups")
    model, held_out, training = train_apart(front, X, known, together, fit_params)
    per_row = PerRow(groups=groups[held_out] if of_rows else groups)
    rows = _safe_indexing(indexable(X)[0], held_out)
    how = {"order": held_out, "per_row": per_row}
    made: Calibration = front._calibrated(model, rows, known[held_out], training, **how)
    training.report(1.0)
    why = None if together is None else warn_of_groups(together[held_out])
    _warn_of_unused(made, training, front.refits, given=False)
    trained = TrainedHere(front.estimator, model, sketch_rows(training.X, training.y))
    return replace(made, no_guarantee=why, trained=trained)


def calibrated(
    front: Any, X: Any, y: Any, X_train: Any, y_train: Any, groups: Any, weights: Any
) -> Calibration:
    """What ``calibrate`` of a regressor makes; arguments as there."""
    _, groups, weights = same_rows(X, "X", y=y, groups=groups, weights=weights)
    X, y, per_row, lazy = rows_at_hand(X, y, groups, weights, front.estimator)
    before: Calibration | None = vars(front).get("calibration_")
    trained, times = None if before is None else before.trained, (X, y)
    again = trained is not None and trained.estimator is front.estimator
    y = front._check_known(X, y, again=again)
    model, training, trained, why = _given_model(front, trained, X, y, X_train, y_train)
    if isinstance(weights, AgeingWeights):
        why = why or weights.explain()
    made: Calibration = front._calibrated(model, X, y, training, per_row=per_row, lazy=lazy)
    if made.n_taught:
        warn_of_times(*times, front.shuffle, "calibrate splits", DEALT_IN_TIME)
    _warn_after_calibrate(before, made, training, front)
    return replace(made, no_guarantee=why, trained=trained)


def rows_to_add(
    front: Any, X: Any, y: Any, groups: Any, weights: Any
) -> tuple[Any, FloatArray, Any, Any]:
    """Rows, checked targets, groups and weights that ``extend`` of a regressor was given."""
    check_calibrated(front)
    _, groups, weights = same_rows(X, "X", y=y, groups=groups, weights=weights)
    X, y = gathered(X, y, front.estimator)
    return X, front._check_targets(y), groups, weights


def _given_training(front: Any, X_train: Any, y_train: Any) -> Training:
    """Training rows that ``calibrate`` was given, and how the model may be trained again."""
    if X_train is not None:
        X_train, y_train = gathered(X_train, y_train, front.estimator)
        if y_train is not None:
            same_rows(X_train, "X_train", y_train=y_train)
            check_consistent_length(X_train, y_train)
            y_train = front._check_targets(y_train, "y_train")
        valid.refuse_collection(X_train, "X_train")
    folds, gap = valid.check_parts(front)
    if X_train is None and y_train is not None:
        raise CalliperError("y_train was given without X_train: pass both.")
    if y_train is None and folds:
        warn(
            f"refits={folds} needs training rows, and calibrate got none: the model is not "
            "refitted. Pass X_train and y_train, or leave refits out.",
            UnusedWarning,
        )
    return Training(
        X=X_train,
        y=y_train,
        n_refits=folds or 0,
        random_state=front.random_state,
        shuffle=front.shuffle is None or front.shuffle,
        gap=gap,
        progress=reporter(front.progress, "training") if folds else None,
    )


def _given_model(
    front: Any, trained: TrainedHere | None, X: Any, y: FloatArray, X_train: Any, y_train: Any
) -> tuple[Any, Training, TrainedHere | None, str | None]:
    """The estimator, or what ``fit`` trained of it; its training rows, as far as they are known.

    Last, why nothing is promised on the calibration rows X. Refuses a model that is not fitted, and
    rows that it was trained on.
    """
    training = _given_training(front, X_train, y_train)
    model, why = front.estimator, None
    here = trained is not None and trained.estimator is model
    if trained is not None and here:
        model, why = trained.model, refuse_seen(trained.rows, X, y)
    if training.X is not None:
        rows = sketch_rows(training.X, training.y)
        why = why or refuse_seen(rows, X, y)
        trained = trained if here else TrainedHere(None, model, rows)
    _refuse_unfitted(model, X)
    opened = open_model(model)
    if not opened.targets and family_of(opened.core).was_trained_on(opened.core, y):
        raise CalliperError(
            f"The model was trained on these calibration rows: its trees hold the means of their "
            f"targets. {SEEN_IN_TRAINING}"
        )
    return model, training, trained, why


def _refuse_unfitted(model: Any, X: Any) -> None:
    """Say that a model is not fitted, or a class, before anything is said of its space."""
    if isinstance(model, type):
        raise TypeError(
            f"estimator must be a fitted model; got the class {model.__name__}: pass an instance."
        )
    with suppress(NotFittedError):
        if isinstance(model, BaseEstimator):
            check_is_fitted(model)
            return
    try:
        predictions(model, first_rows(X))
    except NotFittedError as error:
        raise NotFittedError(
            f"{error} calibrate needs a model that is already fitted; fit(X, y) trains a copy of "
            f"it on some of the rows and calibrates on the rest."
        ) from error
    except Exception:  # reported better where the space is made
        return


def _warn_if_other(before: Calibration | None, now: Calibration) -> None:
    """Say that without training rows nearness is judged in another space than before."""
    if before is None or not before.has_training or now.has_training:
        return
    same = before.model is now.model and before.chosen["embed"] is now.chosen["embed"]
    if same and before.space.space.name != now.space.space.name:
        warn(
            f"Without X_train nearness is now judged in another space: {now.space} instead of "
            f"{before.space}. Pass X_train and y_train, the rows that the model was trained on, "
            "to keep it.",
            EmbeddingWarning,
        )


def _warn_after_calibrate(
    before: Calibration | None, now: Calibration, training: Training, front: Any
) -> None:
    """Point out what was given and changes nothing, and another space than before."""
    no_parts = not now.n_taught and (now.left_out is None or now.left_out.source == "out of bag")
    if front.gap and no_parts:
        warn(
            f"gap={front.gap} is not used: all rows calibrate and nothing is refitted, so there "
            f"are no parts to leave it between.",
            UnusedWarning,
        )
    _warn_if_other(before, now)
    _warn_of_unused(now, training, front.refits, given=True)


def _warn_of_unused(made: Calibration, training: Training, folds: Any, *, given: bool) -> None:
    """Point out training rows that were ``given``, and refits, that change nothing."""
    if training.X is None:
        return
    uses, why = made.calibrators[0].uses, why_no_refit(made.model)
    learns = "left_out" in uses and not {"training", "errors"} & {*uses.needs}
    embed = made.chosen["embed"]  # a map of the user's may be fitted to training rows
    mapped = not isinstance(embed, str) or embed == "inputs"
    sloped = isinstance(made.score, DistributionError) and made.score.slope is not None
    changes_nothing = learns and not (mapped or sloped or learnt_from_training(made.space.space))
    only_checked = "only checked for rows that are also calibration rows"
    if training.y is None:
        if not changes_nothing:
            return
        unused = (
            f"X_train was given without y_train: it is {only_checked}. Pass y_train, too, to learn "
            f"from training rows how the model errs."
        )
    elif made.left_out is not None and not made.n_taught:
        return
    elif folds and why is not None:
        unused = (
            f"refits={folds} cannot train the model again, since it {why}. Pass an "
            f"estimator with fit, or leave refits out."
        )
    elif folds and "left_out" not in uses and made.score.units is None:
        unused = (
            f"refits={folds} is not used: {type(made.calibrators[0]).__name__} uses no "
            f"left-out errors. Leave it out, or use FullRescaled()."
        )
    elif given and not folds and changes_nothing:
        more = (
            f"the model {why}" if why else "refits=5 trains the model five more times to find them"
        )
        if knows_left_out(made.space.space):
            more = (
                "a bootstrapped model has them if X_train and y_train are the rows that it was "
                f"trained on, in that order; otherwise {more}"
            )
        unused = (
            f"X_train and y_train are {only_checked}, and change nothing else. Widths are learnt "
            f"from errors on rows that were left out of training: {more}."
        )
    else:
        return
    warn(unused, UnusedWarning)

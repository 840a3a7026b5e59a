"""Model and method together: intervals around a model that is trained once.

``fit`` splits the data, trains, and calibrates on the part that the model has not seen;
``calibrate`` takes a model that is already fitted. Both end in the same state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from calliper._kept import COLUMN_FIELDS, Field, Inline, Number, Part, Plain, Text
from calliper._notebook import card, reporter
from calliper._row_checks import (
    SEEN_IN_TRAINING,
    RowSketch,
    RowTrend,
    refuse_seen,
    sketch_rows,
    warn_of_times,
)
from calliper._types import AgeingWeights, Coverage, FloatArray
from calliper._validation import (
    USUAL_COVERAGE,
    PerRow,
    check_folds,
    check_known_rows,
    check_new_rows,
    check_vector,
    columns_for_file,
    first_rows,
    gathered,
    handled,
    handler_of_collection,
    refuse_collection,
    refuse_level_words,
    refuse_lone_confidence,
    remembered,
    restore_columns,
    row_values,
    unchanged_if_refused,
)
from calliper.calibration import Calibration, TrainedHere, asked_as, calibrate_model, chosen_of
from calliper.calibrators import Calibrator, FullRescaled, picture_of
from calliper.distribution import Distribution
from calliper.exceptions import (
    CalliperError,
    EmbeddingWarning,
    SplitGroupsWarning,
    UnusedWarning,
    warn,
)
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.models import family_of, fit_router, fresh, open_model, predictions, takes_sparse
from calliper.rows import labels_of, same_rows
from calliper.scores import AbsoluteError, DistributionError, ScaledError, Score
from calliper.shift import ShiftReport
from calliper.space import (
    Embedding,
    LeftOut,
    Training,
    checked_gap,
    knows_left_out,
    learnt_from_training,
    train_apart,
    why_no_refit,
)

#: What to do with rows in order of time: where some are held out, and where some teach.
IN_TIME = (
    "shuffle=False holds out the last rows instead. shuffle=True says that the order of rows does "
    "not matter."
)
DEALT_IN_TIME = (
    "with shuffle=False the older rows teach how the model errs and the later ones calibrate. "
    "shuffle=True says that the order does not matter."
)


class Made:
    """What calibration made, by its name there; before that, an error that says what to do."""

    def __init__(self, name: str, doc: str) -> None:
        self.name, self.__doc__ = name, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.own_name = name

    def __get__(self, front: Any, owner: type) -> Any:
        if front is None:
            return self
        front._check_calibrated(f"There is no {self.own_name} yet. ")
        return getattr(front.calibration_, self.name)


class FrontDoor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Parameters as scikit-learn knows them, and what follows from ``calibration_`` alone."""

    #: What a file keeps of a calibrated one; the model stays outside.
    keeps: ClassVar[Mapping[str, Field]] = {
        "calibrators": Part("calibrators", several=True),
        "space": Inline(Embedding),
        "score": Plain("score_function"),
        "no_guarantee": Text(optional=True),
        "groups": Plain("groups"),
        "weights": Plain("weights"),
        "has_training": Number(bool),
        "slack": Number(least=0, optional=True),
        "sketch": Inline(RowSketch, optional=True),
        "left_out": Inline(LeftOut, optional=True),
        "n_taught": Number(int, 0),
        "on_all": Part("calibrators", optional=True),
        "trend": Inline(RowTrend, optional=True),
        **COLUMN_FIELDS,
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds of a calibrated one."""
        made = self.calibration_
        here = made.trained is not None and made.trained.model is made.model
        return {
            "calibrators": made.calibrators,
            "space": made.space,
            "score": made.score,
            "no_guarantee": made.no_guarantee,
            "groups": made.per_row.groups,
            "weights": made.per_row.weights,
            "has_training": made.has_training,
            "slack": made.slack,
            "sketch": made.trained.rows if here and made.trained is not None else None,
            "left_out": made.left_out,
            "n_taught": made.n_taught,
            "on_all": None if made.on_all is None else made.on_all.calibrators[0],
            "trend": made.row_trend,
            **columns_for_file(self),
            **{name: value for name, value in made.chosen.items() if name in vars(self)},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """What a file held, around the model that is given."""
        model, space, sketch = self.estimator, state["space"], state["sketch"]
        on_all = state["on_all"]
        learnt = isinstance(state["score"], ScaledError)  # of errors around what the model predicts
        space.model, _ = asked_as(
            model, vars(self).get("score_function") if learnt else state["score"]
        )
        self.calibration_ = Calibration(
            score=state["score"],
            calibrators=state["calibrators"],
            no_guarantee=state["no_guarantee"],
            model=model,
            space=space,
            left_out=state["left_out"],
            n_taught=state["n_taught"],
            on_all=None if on_all is None else Calibration(AbsoluteError(), (on_all,)),
            error_model=space.error_model,
            per_row=PerRow(groups=state["groups"], weights=state["weights"]),
            row_trend=state["trend"],
            chosen=chosen_of(self),
            has_training=state["has_training"],
            slack=state["slack"],
            trained=None if sketch is None else TrainedHere(model, model, sketch),
        )
        restore_columns(self, state)

    estimator: Any
    calibrator: Any
    embed: Any
    calibration_: Calibration
    calibration_size: float
    shuffle: bool | None
    gap: int
    left_out_folds: int | None
    random_state: Any
    progress: Any
    estimator_ = Made("model", "The model that predicts.")
    calibrators_ = Made("calibrators", "One for each tail.")
    embedding_ = Made("space", "Where nearness is judged.")
    score_ = Made("score", "What is called an error.")
    left_out_ = Made("left_out", "Left-out rows, or None.")
    error_model_ = Made("error_model", "Of errors, or None.")
    no_guarantee_ = Made("no_guarantee", "Why nothing is promised, or None.")

    def __new__(cls, *given: Any, **known: Any) -> Self:  # noqa: D102
        refuse_level_words(cls, known)
        made: Self = super().__new__(cls)
        return made

    @unchanged_if_refused
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, split_groups: Any = None, **fit_params: Any
    ) -> Self:
        """Hold out a part, train a copy of the estimator on the rest, calibrate on the part.

        Parameters
        ----------
        X, y : rows and targets
        groups : (n,), column name or function of the rows, optional
            Asks for the promise in each group, as in :meth:`calibrate`.
        split_groups : (n,), column name or function of the rows, optional
            Rows of one such group stay together: they are held out together, in refits too.
            Intervals are then made from errors on groups that the model has not seen, but nothing
            is proved for new groups, as ``SplitGroupsWarning`` says: rows of one group are not
            exchangeable with those of others.
        **fit_params
            Passed to ``fit`` of the estimator whenever it is trained (``sample_weight``,
            ``cat_features``, ``eval_set``, …); by requests, where scikit-learn's metadata routing
            is enabled. What has a value for each row is split with the rows. Nothing of it
            reaches the calibrator: calibration rows all weigh the same.
        """
        apart = {"split_groups": split_groups, "sample_weight": fit_params.get("sample_weight")}
        _, groups, split_groups, _ = same_rows(X, "X", y=y, groups=groups, **apart)
        known = self._check_known(X, y)
        warn_of_times(X, y, self.shuffle, "fit holds out", IN_TIME)
        together = None if split_groups is None else row_values(split_groups, X, "split_groups")
        if groups is not None and remembered(groups) is not groups:
            groups = row_values(groups, X, "groups")
        model, held_out, training = train_apart(self, X, known, together, fit_params)
        if remembered(groups) is not groups:
            groups = groups[held_out]
        rows = _safe_indexing(indexable(X)[0], held_out)
        made = self._calibrated(
            model, rows, known[held_out], training, order=held_out, per_row=PerRow(groups=groups)
        )
        training.report(1.0)
        no_guarantee = None if together is None else few_groups(together[held_out])
        trained = TrainedHere(self.estimator, model, sketch_rows(training.X, training.y))
        self._keep(made, model, no_guarantee, trained)
        self._say_unused(training, given=False)
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
        training errors or targets, such as ``MADSplit``. Where they change nothing,
        ``UnusedWarning`` says what would. If they are calibration rows, too, that
        is refused, or pointed out by ``SharedRowsWarning`` if some are; nothing is promised then.

        ``groups`` asks for the promise in each group, by a calibrator of its own: labels, one a
        row, which :meth:`predict_interval` must then be given for new rows; or a column name or a
        function of the rows, which it remembers.

        ``weights`` say how many times as often such inputs come among new rows, up to a constant:
        values, a column name, or a function of the rows such as a fitted
        :class:`calliper.shift.LikelihoodRatio`. The promise is then one for the new rows.
        ``calliper.shift.Recency(half_life)`` lets rows in order of time count less with age.
        """
        _, groups, weights = same_rows(X, "X", y=y, groups=groups, weights=weights)
        X, y, per_row, lazy = rows_at_hand(X, y, groups, weights, self.estimator)
        before: Calibration | None = vars(self).get("calibration_")
        trained = None if before is None else before.trained
        here = trained is not None and trained.estimator is self.estimator
        times = X, y
        y = self._check_known(X, y, again=here)
        X_train, y_train = gathered(X_train, y_train, self.estimator)
        if X_train is not None and y_train is not None:
            same_rows(X_train, "X_train", y_train=y_train)
            check_consistent_length(X_train, y_train)
            y_train = self._check_targets(y_train, "y_train")
        training = given_training(self, X_train, y_train)
        model, no_guarantee = known_model(self.estimator, trained, X, y, training)
        if isinstance(weights, AgeingWeights):
            no_guarantee = no_guarantee or weights.explain()
        refuse_unfitted(model, X)
        refuse_remembered(model, y)
        made = self._calibrated(model, X, y, training, per_row=per_row, lazy=lazy)
        self._keep(made, model, no_guarantee, trained)
        left_out = self.calibration_.left_out
        if self.calibration_.n_taught:
            warn_of_times(*times, self.shuffle, "calibrate deals", DEALT_IN_TIME)
        elif self.gap and (left_out is None or left_out.source == "out of bag"):
            warn(
                f"gap={self.gap} is not used: all rows calibrate and nothing is refitted, so there "
                f"are no parts to leave it between.",
                UnusedWarning,
            )
        warn_if_other(before, self.calibration_)
        self._say_unused(training, given=True)
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

        All is then as if calibrated on all rows at once, the locality that a rule of N gives too,
        but rows that taught how the model errs still do that alone, and nothing is learnt anew;
        what rounding of the model adds to a radius stays. One row more costs little with the K
        nearest, however many rows there are.

        Parameters
        ----------
        X, y : rows that the model has not seen, and their targets
        window : int, optional
            Keep so many rows, the latest, and drop those before: for data that drift.
        groups, weights : of these rows, if calibration was given such
        """
        self._check_calibrated()
        _, groups, weights = same_rows(X, "X", y=y, groups=groups, weights=weights)
        X, y = gathered(X, y, self.estimator)
        self._extend(X, self._check_targets(y), window, groups, weights)
        return self

    @abstractmethod
    def _check_known(self, X: Any, y: Any, *, again: bool = False) -> FloatArray:
        """Checked targets; ``again`` if the model is that of ``fit``. Remembers columns of X."""

    @abstractmethod
    def _check_targets(self, y: Any, name: str = "y") -> FloatArray:
        """Checked targets, called by their name."""

    @abstractmethod
    def _calibrated(self, model: Any, X: Any, y: FloatArray, training: Training, **how: Any) -> Any:
        """What calibration makes, for ``_keep``; ``how``: calibrate_model."""

    @abstractmethod
    def _keep(
        self, made: Any, model: Any, no_guarantee: str | None, trained: TrainedHere | None
    ) -> None:
        """Answer by this from now on."""

    @abstractmethod
    def _extend(self, X: Any, y: FloatArray, window: Any, groups: Any, weights: Any) -> None:
        """Add rows with checked targets."""

    def _say_unused(self, training: Training, *, given: bool) -> None:
        """Point out training rows that were ``given``, and refits, that change nothing."""
        if training.X is None:
            return
        made, folds = self.calibration_, self.left_out_folds
        uses, why = made.calibrators[0].uses, why_no_refit(made.model)
        learns = "left_out" in uses and not {"training", "errors"} & {*uses.needs}
        embed = made.chosen["embed"]  # a map of the user's may be fitted to training rows
        mapped = not isinstance(embed, str) or embed == "inputs"
        sloped = isinstance(made.score, DistributionError) and made.score.slope is not None
        standardised = mapped or sloped or learnt_from_training(made.space.space)
        if training.y is None and learns and not standardised:
            warn(
                "X_train was given without y_train: it is only checked for rows that are also "
                "calibration rows. Pass y_train, too, to learn from training rows how the model "
                "errs.",
                UnusedWarning,
            )
        if training.y is None or (made.left_out is not None and not made.n_taught):
            return
        if folds and why is not None:
            warn(
                f"left_out_folds={folds} asks to train the model again, and it {why}: nothing is "
                f"trained again. Pass an estimator with fit, or leave left_out_folds out.",
                UnusedWarning,
            )
        elif folds and "left_out" not in uses and made.score.units is None:
            name = type(made.calibrators[0]).__name__
            warn(
                f"left_out_folds={folds} asks for left-out errors, and {name} uses none: nothing "
                f"is trained again. Leave it out, or use FullRescaled().",
                UnusedWarning,
            )
        elif given and not folds and learns and not standardised:
            more = f"the model {why}" if why else "left_out_folds=5 finds them by 5 refits"
            if knows_left_out(made.space.space):
                more = (
                    "a bootstrapped model has them if X_train and y_train are the rows that it was "
                    f"trained on, in that order; else {more}"
                )
            warn(
                f"X_train and y_train are only checked for rows that are also calibration rows, "
                f"and change nothing else. To learn widths from them takes errors on rows that "
                f"were left out of training: {more}.",
                UnusedWarning,
            )

    def shift_report(self, X: Any, coverage: float = 0.9, *, weights: Any = None) -> ShiftReport:
        """What weights leave for these rows: effective calibration rows, infinite intervals.

        By group, ``calibrators_[0].calibrators_[group].shift_report(weights)`` tells.
        """
        self._check_calibrated()
        (weights,) = same_rows(X, "X", weights=weights)
        new = replace(self.calibration_.per_row, groups=None).new(X, weights=weights)
        report: ShiftReport = self.calibrators_[0].shift_report(new["weights"], coverage)
        return report

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage; with two tails, by the union bound."""
        self._check_calibrated()
        return self._promising.guaranteed_coverage(coverage)

    def guarantee(
        self, coverage: float = USUAL_COVERAGE, confidence: float | None = None
    ) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        self._check_calibrated()
        refuse_lone_confidence(coverage, confidence)
        promise = self._promising.guarantee(coverage, confidence)
        checks = [*self.calibration_.checks(promise.coverage), promise.checks]
        return replace(promise, checks="\n".join(checks))

    @property
    def _promising(self) -> Calibration:
        """What the promise is read from."""
        return self.calibration_

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.estimator)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "calibration_" in vars(self)

    def __sklearn_clone__(self) -> Self:
        """As usual, except that estimators that cannot be cloned are copied."""
        around = copy(self)
        around.estimator = None
        cloned: Self = BaseEstimator.__sklearn_clone__(around)
        cloned.estimator = fresh(self.estimator)
        return cloned

    def _check_calibrated(self, first: str = "") -> None:
        check_is_fitted(
            self,
            msg=f"{first}This %(name)s is not calibrated yet: call calibrate(X, y) with rows that "
            "the fitted model has not seen, or fit(X, y) to train a new model on a part of them.",
        )

    @property
    def calibrator_(self) -> Calibrator:
        """The fitted calibrator; of a score with two tails there are two, in ``calibrators_``."""
        self._check_calibrated("There is no calibrator_ yet. ")
        if len(self.calibrators_) != 1:
            n = len(self.calibrators_)
            raise AttributeError(f"there is no calibrator_: {n} are fitted (see calibrators_).")
        fitted: Calibrator = self.calibrators_[0]
        return fitted

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
        """What was calibrated, and what is promised; nothing before."""
        fitted = self.__sklearn_is_fitted__()
        return self.calibration_.describe(self.guarantee(0.9)) if fitted else []

    def get_metadata_routing(self) -> MetadataRouter:
        """How fit parameters travel, for scikit-learn's metadata routing."""
        return fit_router(self)


class ConformalRegressor(FrontDoor):
    """Prediction intervals around any regression model, as wide as the model errs *there*.

    Parameters
    ----------
    estimator : regressor or callable
        A scikit-learn regressor, fitted (for :meth:`calibrate`) or not (for :meth:`fit`), or any
        function from inputs to predictions (for :meth:`calibrate`). Fitted models of one quantile
        each come as ``{0.05: low, 0.5: middle, 0.95: high}``, or as a list if their parameters
        say which.
    calibrator : calibrator, default FullRescaled()
        The method that turns calibration errors into radii. By default the kernel and how much its
        local scale is mixed with the global one are chosen by a rule, from left-out errors where
        they are known and never from calibration errors; see :class:`FullRescaled`.
    score_function : score, default AbsoluteError()
        What is called an error; ``SignedError`` gives one-sided bounds or two radii,
        ``QuantileError`` takes a model of quantiles (with ``Split``, that is CQR). A model that
        predicts three quantiles or more, or a distribution, has ``DistributionError`` by default
        where that is known of its kind. (Plain ``score`` is taken: it is scikit-learn's method
        that rates the predictions.)
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
        transformer is fitted to training rows, a function, module or ``Layer`` is taken as it is.
        Nothing is learnt from calibration rows: they would be treated unlike a new point, which
        costs the guarantee.
    calibration_size : float or int, default 0.25
        Part (or number) of the rows that :meth:`fit` holds out for calibration; of the groups, if
        :meth:`fit` is given ``split_groups``.
    shuffle : bool, optional
        Whether :meth:`fit` holds out rows at random. For rows in order of time choose False: the
        last rows are held out, and refits leave out runs of neighbouring rows. By default they
        are drawn at random, and ``RowOrderWarning`` tells if they carry times in order; True says
        that the order does not matter.
    gap : int, default 0
        With ``shuffle=False``, so many rows are used for nothing between those that train and
        those held out, beside runs that refits leave out, and between those that teach and those
        that calibrate: for rows that overlap in time, such as targets of the next 24 hours.
    error_model : "auto", ErrorModel or None, default "auto"
        What is learnt from left-out errors beside nearness: where the model is biased, which moves
        the centre of the interval away from the prediction, and how far it errs on either side.
        ``"auto"`` does so for absolute errors, and for models of distributions, with a calibrator
        that uses left-out errors, which the default does; ``ErrorModel(recentre=False)`` keeps the
        prediction inside its interval, None learns neither. No row that calibrates
        decides, so the guarantee is the same.
    learning_part : "auto", float, int or None, default "auto"
        Calibration rows that teach how the model errs where no left-out errors of training rows
        are known; the others calibrate. Rows are dealt at random by ``random_state``, or the first
        teach with ``shuffle=False``. A share, a number, or None for no row. ``"auto"`` keeps 200
        rows and 35 % of all at least, lets 8,000 teach at most, and deals no fewer than 300, for
        calibrators that use left-out errors, which the default does; of a model of distributions
        40 % teach from 100 rows on. With groups each is dealt by itself. A level that all
        rows can serve and the kept ones cannot is answered by plain split on all rows, with a
        warning.
    left_out_folds : int, optional
        Errors on training rows by models that have not seen them, for calibrators that ask: out
        of bag where the model has bags, else from so many refits. By default :meth:`fit` refits 5
        times if the calibrator asks, :meth:`calibrate` never; 0 never refits. A frozen model is
        never refitted; a refit that fails is pointed out by ``EmbeddingWarning``, one that was
        asked for and cannot be by ``UnusedWarning``. A booster that
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
        shuffle: bool | None = None,
        gap: int = 0,
        error_model: Any = "auto",
        learning_part: float | str | None = "auto",
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
        self.gap = gap
        self.error_model = error_model
        self.learning_part = learning_part
        self.left_out_folds = left_out_folds
        self.random_state = random_state
        self.progress = progress

    def restore(self, state: dict[str, Any]) -> None:
        """What a file held, around the model that is given."""
        n, tails = len(state["calibrators"]), state["score"].n_tails
        if n != tails:
            raise CalliperError(f"the score takes {tails} calibrators, one for each tail; got {n}.")
        super().restore(state)

    def _check_known(self, X: Any, y: Any, *, again: bool = False) -> FloatArray:
        return check_known_rows(self, X, y)

    def _check_targets(self, y: Any, name: str = "y") -> FloatArray:
        return check_vector(y, name)

    def _calibrated(
        self, model: Any, X: Any, y: FloatArray, training: Training, **how: Any
    ) -> Calibration:
        return calibrate_model(self, model, X, y, training, **how)

    def _keep(
        self,
        made: Calibration,
        model: Any,
        no_guarantee: str | None,
        trained: TrainedHere | None,
    ) -> None:
        self.calibration_ = replace(made, no_guarantee=no_guarantee, trained=trained)

    def _extend(self, X: Any, y: FloatArray, window: Any, groups: Any, weights: Any) -> None:
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
        made = self.calibration_
        y_pred = predictions(made.space.model, X, made.space.n_outputs)
        if y_pred.ndim == 1:
            return y_pred
        _, score = asked_as(made.model, made.chosen["score_function"])
        return np.asarray(score.centre(y_pred))

    @handled
    def predict_interval(
        self,
        X: Any,
        coverage: Coverage = USUAL_COVERAGE,
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
            of draws of them; for calibrators with a law of coverage, such as ``Split``. Say the
            level beside it.
        groups : (m,), column name or function of the rows, optional
            The group of each row, if :meth:`calibrate` was given groups.
        weights : (m,), column name or function of the rows, optional
            The weight of each row, if :meth:`calibrate` was given weights.
        """
        refuse_lone_confidence(coverage, confidence)
        y_pred, Z, per_row = self._predicted(X, groups, weights)
        return self.calibration_.intervals(
            y_pred, Z, coverage, bounds=bounds, confidence=confidence, X=X, **per_row
        )

    def share_below(self, X: Any, y: FloatArray) -> FloatArray | None:
        """Share of thresholds below the score of each row, (m,); None where they are not alike."""
        y_pred, Z, _ = self._predicted(X, None, None)
        return self.calibration_.share_below(y, y_pred, Z)

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


def known_model(
    estimator: Any, trained: TrainedHere | None, X: Any, y: FloatArray, training: Training
) -> tuple[Any, str | None]:
    """The estimator, or what ``fit`` trained of it; and why nothing is promised on these rows."""
    model, why = estimator, None
    if trained is not None and trained.estimator is estimator:
        model, why = trained.model, refuse_seen(trained.rows, X, y)
    if training.X is not None:
        why = why or refuse_seen(sketch_rows(training.X, training.y), X, y)
    return model, why


def refuse_remembered(model: Any, y: FloatArray) -> None:
    """Refuse calibration rows that the model itself knows as those that it was trained on."""
    opened = open_model(model)
    if not opened.targets and family_of(opened.core).was_trained_on(opened.core, y):
        raise CalliperError(
            f"The model was trained on these calibration rows: its trees hold the means of their "
            f"targets. {SEEN_IN_TRAINING}"
        )


def rows_at_hand(
    X: Any, y: Any, groups: Any, weights: Any, model: Any = None
) -> tuple[Any, Any, PerRow, Any]:
    """Calibration rows, targets and what tells groups and weights; the first rows of a collection.

    Last, what places all rows of a collection; None where all rows are at hand.
    """
    per_row, handler = PerRow(groups=groups, weights=weights), handler_of_collection(X)
    if handler is None:
        return *gathered(X, y, model), per_row, None
    lazy = handler.LazyRows(X, y, per_row)
    return lazy.X, lazy.y, lazy.per_row, lazy


def warn_if_other(before: Calibration | None, now: Calibration) -> None:
    """Say that without training rows nearness is judged in another space than before."""
    if before is None or not before.has_training or now.has_training:
        return
    same = before.model is now.model and before.chosen["embed"] is now.chosen["embed"]
    if same and before.space.space.name != now.space.space.name:
        warn(
            f"Without X_train nearness is now judged in another space: {now.space}, where it was "
            f"{before.space}. Pass X_train and y_train, the rows that the model was trained on, to "
            f"keep it.",
            EmbeddingWarning,
        )


def few_groups(held_out: Any) -> str:
    """Why rows of groups promise nothing for rows of new ones, with a warning that says so."""
    n, n_groups = len(held_out), len({str(group) for group in held_out})
    why = (
        f"The {n:,} calibration rows come in {n_groups:,} groups, and rows of one group are alike: "
        f"they are not exchangeable with rows of new groups, for which coverage may be lower."
    )
    warn(
        f"Nothing is promised with split_groups=. {why} For a promise in each known group, pass "
        f"groups= and leave split_groups out.",
        SplitGroupsWarning,
    )
    return why


def refuse_unfitted(model: Any, X: Any) -> None:
    """Say that a model is not fitted, or a class, before anything is said of its space."""
    if isinstance(model, type):
        raise TypeError(
            f"estimator must be a fitted model; got the class {model.__name__}: pass an instance."
        )
    try:
        predictions(model, first_rows(X))
    except NotFittedError as error:
        raise NotFittedError(
            f"{error} calibrate takes a model that is fitted already; fit(X, y) trains a copy of "
            f"it on a part of the rows and calibrates on the others."
        ) from error
    except Exception:  # which is told better where the space is made
        return


def given_training(front: Any, X_train: Any, y_train: Any) -> Training:
    """Training rows that ``calibrate`` was given, and how the model may be trained again."""
    check_folds(front.left_out_folds)
    if X_train is not None:
        refuse_collection(X_train, "X_train")
    elif y_train is not None:
        raise CalliperError("y_train was given without X_train: pass both.")
    if y_train is None and front.left_out_folds:
        warn(
            f"left_out_folds={front.left_out_folds} asks for errors on training rows, and "
            f"calibrate was not given these: nothing is trained again. Pass X_train and "
            f"y_train, or leave left_out_folds out.",
            UnusedWarning,
        )
    return Training(
        X=X_train,
        y=y_train,
        n_refits=front.left_out_folds or 0,
        random_state=front.random_state,
        shuffle=front.shuffle is None or front.shuffle,
        gap=checked_gap(front),
        progress=reporter(front.progress, "training") if front.left_out_folds else None,
    )

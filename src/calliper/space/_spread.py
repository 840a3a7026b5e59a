"""Prediction and spread: the numbers in which the error of most models lives.

A model that is made of many, or that states a standard deviation, knows better than its inputs
where it is unsure. Coordinates, for prediction m, spread v, unit u and weight w:

    m / u,   w · log(v / u + floor).

Errors grow in proportion to the spread, hence the logarithm; u is about the standard deviation of
the targets that the model was trained on, so that nothing depends on the unit of y. The logarithm
is *not* divided by its own deviation: where a spread hardly varies it has little to say, and should
not decide who is near (docs/nearness.md has the figures). u is told by a model that was fitted to
squared errors, else it is that of the training targets, else what the model lets guess, else the
deviation of its predictions of training rows. Known to none, the spread alone is the place.

Where models keep their spread:

- Forests, extra trees, bagging, votes: the prediction is a mean, the members' spread beside it.
  One pass over the members gives both: sums of d_b and d_b², d_b what member b predicts beyond the
  first member. The spread divides by B − 1, so that a spread over the members that have not seen a
  row (``_left_out.py``) can be compared with one over all.
- Gradient boosting: trees correct one another, so their spread says nothing; the path of their sum
  does. Where the later half of the stages still pushes the prediction to and fro, residuals were
  large and contradictory: the spread is Σ |step| over that half. Trees of scikit-learn's
  ``GradientBoostingRegressor`` also keep how much the residuals varied in each leaf; the root mean
  of that variance, over the same trees, is a second spread. XGBoost, LightGBM and CatBoost are
  asked in ``_boosters.py``.
- Gaussian processes, Bayesian regression: a standard deviation is stated with the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import validate_data

from calliper._kept import Keeps, Known, Number, Opened
from calliper._models import OpenedModel, predictions, predicts_as
from calliper._types import FloatArray
from calliper._validation import n_rows
from calliper.space._spaces import SPACES, Predict
from calliper.space._walk import Grove

#: A member: from the rows of the ensemble to its predictions, (m,).
Member = Callable[[Any], FloatArray]

#: Part of the unit below which steps and residuals are all alike: they are smaller than spreads.
STEP_FLOOR = 0.003
#: Predictions of members below which no threads are started: they would cost more than they save.
FEWEST_IN_THREADS = 50_000


def _itself(core: Any) -> Any:
    """The core: it can be asked as it is."""
    return core


def _no_deviation(core: Any) -> float | None:
    """None: the model has kept nothing that says how much its targets vary."""
    return None


#: Where spreads are kept, by the names that files have for that; added to where they are.
NAMED_SOURCES: dict[str, Any] = {}


class UnreadableError(Exception):
    """A model looks as if it kept a spread, and does not; says why, to follow "since"."""


@dataclass(frozen=True, kw_only=True)
class SpreadSource:
    """Where a kind of model keeps its spread: plain functions of the fitted core.

    Attributes
    ----------
    suits : whether the core is of this kind, by the look of it
    known : whether the core's class is known to predict what ``measure`` says that it does
    read : what the functions below are given in place of the core, made once; it must pickle.
        ``UnreadableError`` says why there is nothing to be read
    measure : prediction (m,) and spreads (k, m) of prepared rows, in the unit of y, in one pass
    describe : what the spread is, in words
    unit : standard deviation of the targets that the core was trained on; None if not kept
    guess : about that deviation, for losses other than the square; mostly less
    weights : of the logarithm of each spread, the prediction having 1
    in_unit : whether each spread is in the unit of y, or has none
    floor : part of the unit below which spreads are all alike; near 0 logarithms show rounding
    """

    suits: Callable[[Any], bool]
    known: Callable[[Any], bool]
    read: Callable[[Any], Any] = _itself
    measure: Callable[[Any, Any], tuple[FloatArray, FloatArray]]
    describe: Callable[[Any], str]
    unit: Callable[[Any], float | None] = _no_deviation
    guess: Callable[[Any], float | None] = _no_deviation
    weights: tuple[float, ...] = (2.0,)
    in_unit: tuple[bool, ...] = (True, True)
    floor: float = 0.01


@dataclass(frozen=True, kw_only=True)
class PredictionAndSpread(Keeps):
    """The space of a model that has a spread.

    Attributes
    ----------
    opened : the model
    source : where it keeps its spread
    read : what the source has read from the model
    unit : about the standard deviation of its targets; None if it is not known
    predicts : whether the source's prediction is the model's own; else the model is asked
    """

    opened: OpenedModel
    source: SpreadSource
    read: Any
    unit: float | None
    predicts: bool = True

    keeps = {
        "opened": Opened(),
        "source": Known(NAMED_SOURCES),
        "unit": Number(least=np.finfo(float).tiny, optional=True),
        "predicts": Number(bool),
    }

    @classmethod
    def again(cls, state: dict[str, Any]) -> PredictionAndSpread:
        """What the source reads of the model is read again."""
        return cls(**state, read=state["source"].read(state["opened"].core))

    @property
    def name(self) -> str:
        """What the coordinates are, in words."""
        spread = self.source.describe(self.read)
        known = [] if self.unit is None else ["prediction"]
        return " and ".join([*known, *([spread] if spread else [])])

    @property
    def has_unit(self) -> bool:
        """Whether coordinates are in absolute units, the same for every model."""
        return self.unit is not None

    def locate(self, X: Any, predict: Predict) -> tuple[FloatArray | None, FloatArray]:
        """Predictions and coordinates, in one pass over a model whose code is known."""
        return self.place(self.opened.prepare(X), X, predict)

    def place(self, rows: Any, X: Any, predict: Predict) -> tuple[FloatArray, FloatArray]:
        """Predictions and coordinates of ``X``, of which ``rows`` are prepared for the core."""
        mean, spreads = self.source.measure(self.read, rows)
        y_pred = self.opened.finish(mean) if self.predicts else predict(X)
        return y_pred, self.coordinates(mean, spreads)

    def coordinates(self, mean: FloatArray, spreads: FloatArray) -> FloatArray:
        """All numbers on one scale, (m, 1 + k); without a unit the first spread alone, (m, 1)."""
        if self.unit is None:
            return np.asarray(spreads[0][:, None])
        weights = np.array(self.source.weights[: len(spreads)])
        units = np.where(self.source.in_unit[: len(spreads)], self.unit, 1.0)
        logarithms = weights[:, None] * np.log(spreads / units[:, None] + self.source.floor)
        return np.asarray(np.column_stack([mean / self.unit, *logarithms]))

    def with_model(self, opened: OpenedModel) -> PredictionAndSpread:
        """The other model's numbers, in the unit of this one."""
        return replace(self, opened=opened, read=self.source.read(opened.core))


def spread_space(
    opened: OpenedModel, source: SpreadSource, X_train: Any, y_train: FloatArray | None
) -> PredictionAndSpread:
    """The space, with its unit from the model, else from training rows, else without."""
    read = source.read(opened.core)
    unit = source.unit(read)
    if unit is None and y_train is not None:
        unit = float(opened.core_targets(y_train).std())
    if unit is None:
        unit = source.guess(read)
    if unit is None and X_train is not None:
        unit = float(source.measure(read, opened.prepare(X_train))[0].std())
    usable = unit is not None and np.isfinite(unit) and unit > 0
    return PredictionAndSpread(
        opened=opened,
        source=source,
        read=read,
        unit=unit if usable else None,
        predicts=source.known(opened.core),
    )


def _averages_members(core: Any) -> bool:
    """Whether it holds fitted members whose plain mean could be its prediction."""
    members = getattr(core, "estimators_", None)
    if not isinstance(members, list) or len(members) < 2:
        return False  # one member has no spread
    weighted = hasattr(core, "estimator_weights_") or hasattr(core, "final_estimator_")
    return not weighted and all(hasattr(member, "predict") for member in members)


def _is_plain_mean(core: Any) -> bool:
    """Whether its class is known to predict the plain mean of its members."""
    from sklearn.ensemble import (
        BaggingRegressor,
        ExtraTreesRegressor,
        RandomForestRegressor,
        VotingRegressor,
    )

    known = RandomForestRegressor, ExtraTreesRegressor, BaggingRegressor, VotingRegressor
    return predicts_as(core, *known) and getattr(core, "weights", None) is None


class Members:
    """What a mean is made of, read once: the members, and how rows are checked for them.

    Parameters
    ----------
    core : the fitted ensemble
    """

    def __init__(self, core: Any) -> None:
        self.core = core
        columns = getattr(core, "estimators_features_", None)
        own = _with_columns(core.estimators_, columns)
        self.picks_columns = columns is not None
        self.all_trees = all(_is_tree(member) for member in core.estimators_)
        self.grove: Grove | None = None
        self.members: list[Member] = [_AnyMember(*each) for each in own]
        if self.all_trees and isinstance(core, BaseEstimator):
            self.members = [_TreeMember(member.tree_, given) for member, given in own]
            self.grove = Grove([member.tree_ for member, _ in own], [given for _, given in own])
            self.finite = "allow-nan" if get_tags(core).input_tags.allow_nan else True

    def rows(self, X: Any) -> Any:
        """Rows as the members take them, converted once for all."""
        if self.grove is None and not self.picks_columns:
            return X
        kind, finite = (None, False) if self.grove is None else (np.float32, self.finite)
        return validate_data(
            self.core, X, reset=False, dtype=kind, accept_sparse="csr", ensure_all_finite=finite
        )


def _mean_and_spread(read: Members, X: Any) -> tuple[FloatArray, FloatArray]:
    """Mean (m,) and standard deviation (1, m) of the members; O(m) memory a thread."""
    rows, members = read.rows(X), read.members
    if read.grove is not None and read.grove.suits(rows):
        first, *_ = values = read.grove.values(rows)
        beyond = values[1:] - first
        total, squares = (np.cumsum(each, axis=0)[-1] for each in (beyond, beyond * beyond))
    else:
        first = members[0](rows)
        total, squares = _sums_of_all(read, rows, first)
    mean, spread = moments(first, total, squares, len(members))
    return mean, spread[None]


def _sums_of_all(read: Members, rows: Any, first: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums over all members but the first, by as many threads as are worth it."""
    others = read.members[1:]
    if len(first) * len(others) < FEWEST_IN_THREADS:
        return _sums(others, rows, first)
    n_groups = max(1, min(effective_n_jobs(getattr(read.core, "n_jobs", None)), len(others)))
    groups = [others[start::n_groups] for start in range(n_groups)]
    workers = Parallel(n_jobs=n_groups, require="sharedmem")
    sums = workers(delayed(_sums)(group, rows, first) for group in groups)
    total, squares = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
    return total, squares


def moments(
    first: FloatArray, total: FloatArray, squares: FloatArray, count: Any
) -> tuple[FloatArray, FloatArray]:
    """Mean and spread from sums of differences to ``first``; ``count`` members, or (m,) counts."""
    mean = total / count
    variance = (squares - total * mean) / np.maximum(count - 1, 1)
    return first + mean, np.sqrt(np.maximum(variance, 0.0))


def _forest_deviation(read: Members) -> float | None:
    """Standard deviation of the targets that the trees were grown on; mean over the trees."""
    trees = read.core.estimators_
    if not (read.all_trees and all(_by_variance(member) for member in trees)):
        return None
    return float(np.mean([_root_deviation(member.tree_) for member in trees]))


def _guessed_forest_deviation(read: Members) -> float | None:
    """Standard deviation of what the trees have learnt of their targets; mean over the trees."""
    if not read.all_trees:
        return None
    return float(np.mean([_deviation(member) for member in read.core.estimators_]))


def _by_variance(member: Any) -> bool:
    return getattr(member, "criterion", None) in ("squared_error", "friedman_mse")


def _deviation(member: Any) -> float:
    tree = member.tree_
    return _root_deviation(tree) if _by_variance(member) else _tree_deviation(tree)


def _root_deviation(tree: Any) -> float:
    """Standard deviation of the targets, where impurity is their variance."""
    return float(np.sqrt(tree.impurity[0]))


def _tree_deviation(tree: Any) -> float:
    """Standard deviation of one tree's predictions of the rows that it was grown on."""
    leaves = tree.children_left < 0
    return leaf_values_deviation(tree.value.ravel()[leaves], tree.weighted_n_node_samples[leaves])


def leaf_values_deviation(values: Any, weights: Any) -> float:
    """Standard deviation of values at leaves, each with the weight of its rows."""
    mean = np.average(values, weights=weights)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))


def _sums(members: Sequence[Member], rows: Any, first: FloatArray) -> tuple[FloatArray, FloatArray]:
    total, squares = np.zeros_like(first), np.zeros_like(first)
    for member in members:
        beyond = member(rows)
        beyond -= first
        total += beyond
        beyond *= beyond
        squares += beyond
    return total, squares


class _TreeMember:
    """A tree without the checks of its wrapper: rows were checked once for all."""

    def __init__(self, tree: Any, columns: Any) -> None:
        self.tree, self.columns = tree, columns

    def __call__(self, rows: Any) -> FloatArray:
        rows = rows if self.columns is None else rows[:, self.columns]
        values: FloatArray = self.tree.predict(rows)
        return values.reshape(len(values), -1)[:, 0]


class _AnyMember:
    """A member that is asked as anyone would ask it."""

    def __init__(self, model: Any, columns: Any) -> None:
        self.model, self.columns = model, columns

    def __call__(self, rows: Any) -> FloatArray:
        return predictions(self.model, rows if self.columns is None else rows[:, self.columns])


def _is_tree(member: Any) -> bool:
    from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

    if not predicts_as(member, ExtraTreeRegressor, DecisionTreeRegressor):
        return False  # what is in the leaves need not be what it predicts
    return bool(member.tree_.n_outputs == 1 and member.tree_.value.shape[-1] == 1)


def _with_columns(members: Sequence[Any], columns: Any) -> list[tuple[Any, Any]]:
    """Each member with the columns that it was given; None for all of them, in order."""
    if columns is None:
        return [(member, None) for member in members]
    return [
        (m, None if np.array_equal(c, np.arange(getattr(m, "n_features_in_", -1))) else c)
        for m, c in zip(members, columns, strict=True)
    ]


def _describe_members(read: Members) -> str:
    return f"spread of {len(read.members)} {'trees' if read.all_trees else 'members'}"


MEMBERS = SpreadSource(
    suits=_averages_members,
    known=_is_plain_mean,
    read=Members,
    measure=_mean_and_spread,
    describe=_describe_members,
    unit=_forest_deviation,
    guess=_guessed_forest_deviation,
)


def _has_stages(core: Any) -> bool:
    """Whether it adds trees stage by stage and shows the sums on the way."""
    return hasattr(core, "staged_predict") and _n_stages(core) > 1


def _is_known_boosting(core: Any) -> bool:
    """Whether the last sum is known to be the prediction."""
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

    return predicts_as(core, HistGradientBoostingRegressor, GradientBoostingRegressor)


def _n_stages(core: Any) -> int:
    """Number of fitted stages; 0 for a model that does not count them."""
    names = ("n_iter_", "n_estimators_", "tree_count_")
    return next((int(getattr(core, name)) for name in names if hasattr(core, name)), 0)


class Stages:
    """A model that adds trees stage by stage; those that can be walked are read once."""

    def __init__(self, core: Any) -> None:
        self.core, self.n = core, _n_stages(core)
        histograms = _is_known_boosting(core) and hasattr(core, "_predictors")
        self.grove: Grove | None = None
        if histograms and core._preprocessor is None:  # else it splits by categories
            self.grove = Grove([stage[0] for stage in core._predictors])

    def sums(self, X: Any) -> Iterable[Any]:
        """The prediction by each number of stages, (m,)."""
        if self.grove is None or n_rows(X) > self.grove.most_rows:
            return self.core.staged_predict(X)  # type: ignore[no-any-return]
        steps = self.grove.values(self.core._preprocess_X(X, reset=False))
        steps[0] += self.core._baseline_prediction[0]
        return self.core._loss.link.inverse(np.cumsum(steps, axis=0))  # type: ignore[no-any-return]


def _staged_steps(read: Stages, X: Any) -> tuple[FloatArray, FloatArray]:
    """The prediction (m,) and Σ |step| over the later half of the stages, (1, m)."""
    start, stages = read.n // 2, read.sums(X)
    if isinstance(stages, np.ndarray):
        return stages[-1], np.cumsum(np.abs(np.diff(stages[start - 1 :], axis=0)), axis=0)[-1:]
    y_pred, moved = np.zeros(0), np.zeros(0)
    for stage, sums in enumerate(stages):
        before, y_pred = y_pred, np.asarray(sums, dtype=np.float64).reshape(-1)
        if stage == start:
            moved = np.abs(y_pred - before)
        elif stage > start:
            moved += np.abs(y_pred - before)
    return y_pred, moved[None]


def _histogram_deviation(read: Stages) -> float | None:
    """Deviation of what the trees have learnt of the targets by squared errors."""
    core = read.core
    if not hasattr(core, "_predictors") or core.loss != "squared_error":
        return None
    leaves = [_leaves(predictor[0]) for predictor in core._predictors]
    return explained_deviation(
        [(each["value"], each["count"]) for each in leaves], core.learning_rate
    )


def explained_deviation(leaves: Iterable[tuple[Any, Any]], rate: float) -> float:
    """Deviation of what stages of trees, grown by squared errors at a rate, have learnt of y.

    A stage of rate ν lowers the variance of the residuals by (2/ν − 1) times that of its own
    values, given for each stage with the numbers of rows in the leaves; the sum over stages is
    what is explained. Regularised leaves make it smaller.
    """
    explained = sum(leaf_values_deviation(values, counts) ** 2 for values, counts in leaves)
    return float(np.sqrt((2 / float(rate) - 1) * explained))


def _guessed_histogram_deviation(read: Stages) -> float | None:
    """Deviation of what the first tree has learnt, its shrinkage undone; None with a link."""
    core = read.core
    if not hasattr(core, "_predictors") or core.loss in ("poisson", "gamma"):
        return None
    first = _leaves(core._predictors[0][0])
    return leaf_values_deviation(first["value"], first["count"]) / float(core.learning_rate)


def _leaves(predictor: Any) -> Any:
    return predictor.nodes[predictor.nodes["is_leaf"].astype(bool)]


def _has_tree_stages(core: Any) -> bool:
    """Whether its stages are single trees of scikit-learn that can be asked one by one."""
    trees = getattr(core, "estimators_", None)
    if not isinstance(trees, np.ndarray) or trees.ndim != 2 or trees.shape[1] != 1:
        return False
    return len(trees) > 1 and hasattr(core, "init_") and hasattr(trees[0, 0], "tree_")


def _tree_steps(core: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """The prediction (m,); Σ |step| and rms deviation in the leaves over the later trees, (2, m).

    The second is left out for losses whose trees are not grown on residuals in the unit of y.
    """
    rows = validate_data(core, X, reset=False, dtype=np.float32, order="C", accept_sparse="csr")
    trees = [tree.tree_ for tree in core.estimators_[:, 0]]
    start, keeps_residuals = len(trees) // 2, core.loss == "squared_error"
    total, moved, variance = np.zeros((3, rows.shape[0]))
    for place, tree in enumerate(trees):
        leaf = tree.apply(rows)
        step = tree.value.ravel().take(leaf)
        total += step
        if place >= start:
            moved += np.abs(step, out=step)
            if keeps_residuals:
                variance += tree.impurity.take(leaf)
    spreads = [core.learning_rate * moved]
    if keeps_residuals:  # an impurity of zero is rounded to either side
        spreads.append(np.sqrt(np.maximum(variance, 0.0) / (len(trees) - start)))
    origin = 0.0 if core.init_ == "zero" else core.init_.predict(rows).reshape(-1)
    return origin + core.learning_rate * total, np.stack(spreads)


def _first_tree_deviation(core: Any) -> float | None:
    """Deviation of the targets of the first tree: of y, unless a model was there before it."""
    grown_on_targets = core.loss == "squared_error" and _starts_from_a_constant(core)
    return _root_deviation(core.estimators_[0, 0].tree_) if grown_on_targets else None


def _guessed_first_tree_deviation(core: Any) -> float | None:
    """For other losses the deviation of what the first tree has learnt."""
    return _tree_deviation(core.estimators_[0, 0].tree_) if _starts_from_a_constant(core) else None


def _starts_from_a_constant(core: Any) -> bool:
    return core.init is None or isinstance(core.init, str)


def _describe_stages(read: Stages) -> str:
    return f"steps of the last {read.n - read.n // 2} of {read.n} stages"


def _describe_trees(core: Any) -> str:
    n = len(core.estimators_)
    leaves = " and residuals in their leaves" if core.loss == "squared_error" else ""
    return f"steps of the last {n - n // 2} of {n} trees{leaves}"


STAGES = SpreadSource(
    suits=_has_stages,
    known=_is_known_boosting,
    read=Stages,
    measure=_staged_steps,
    describe=_describe_stages,
    unit=_histogram_deviation,
    guess=_guessed_histogram_deviation,
    floor=STEP_FLOOR,
)
TREE_STAGES = SpreadSource(
    suits=_has_tree_stages,
    known=_is_known_boosting,
    measure=_tree_steps,
    describe=_describe_trees,
    unit=_first_tree_deviation,
    guess=_guessed_first_tree_deviation,
    weights=(2.0, 1 / 0.15),
    floor=STEP_FLOOR,
)


def _states_deviation(core: Any) -> bool:
    """Whether ``predict`` can be asked for the standard deviation."""
    try:
        return "return_std" in signature(core.predict).parameters
    except (AttributeError, TypeError, ValueError):
        return False


def _is_known_to_state(core: Any) -> bool:
    """Whether the mean that it states with a deviation is what it predicts without."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.linear_model import ARDRegression, BayesianRidge

    return predicts_as(core, GaussianProcessRegressor, BayesianRidge, ARDRegression)


def _mean_and_deviation(core: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """What the model states: (m,) and (1, m)."""
    mean, deviation = core.predict(X, return_std=True)
    columns = np.asarray(mean, np.float64), np.asarray(deviation, np.float64)
    return columns[0].reshape(-1), columns[1].reshape(1, -1)


def _kept_targets_deviation(core: Any) -> float | None:
    """Standard deviation of the training targets, where the model has kept them."""
    if not hasattr(core, "y_train_"):
        return None
    return float(np.std(core.y_train_) * np.mean(getattr(core, "_y_train_std", 1.0)))


def _describe_deviation(core: Any) -> str:
    return f"standard deviation by {type(core).__name__}"


DEVIATION = SpreadSource(
    suits=_states_deviation,
    known=_is_known_to_state,
    measure=_mean_and_deviation,
    describe=_describe_deviation,
    unit=_kept_targets_deviation,
)


def _always(core: Any) -> bool:
    return True


def _prediction_alone(core: Any, rows: Any) -> tuple[FloatArray, FloatArray]:
    """The prediction (m,) and spreads (0, m): none."""
    y_pred = predictions(core, rows)
    return y_pred, np.empty((0, len(y_pred)))


def _describe_nothing(core: Any) -> str:
    return ""


#: A model that has no spread; plain functions, since a space must pickle.
NO_SPREAD = SpreadSource(
    suits=_always, known=_always, measure=_prediction_alone, describe=_describe_nothing
)

SPACES["spread"] = PredictionAndSpread
NAMED_SOURCES |= {
    "members": MEMBERS,
    "stages": STAGES,
    "tree stages": TREE_STAGES,
    "deviation": DEVIATION,
    "none": NO_SPREAD,
}

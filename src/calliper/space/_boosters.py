"""XGBoost, LightGBM and CatBoost: what their last trees still change, and what their leaves held.

Two spreads, beside the prediction, which is always what the model itself says:

- Σ |step| over the later half of the stages, as for the gradient boosting of scikit-learn: where
  the prediction is still pushed to and fro, residuals were large and contradictory;
- √(mean of 1/n) over the first tenth, n the number of training rows in a row's leaf: about the
  standard error, in deviations, of a mean over the rows that the model has taken for its like.
  Early trees follow the targets and late ones the noise, so the early ones are asked.

Each leaf's value and number of rows are read once from the fitted model; after that a row costs its
leaf indices in these trees and look-ups in tables. No stage is predicted. Categories and gaps
are the library's affair, since it finds the leaves; so are threads. Steps are made before the link
of the objective, where there is one, and are brought to the unit of y by its slope.

Nothing is imported from the libraries: who has such a model has imported its library.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from calliper._blocks import BLOCK_FLOATS, row_slices
from calliper._models import is_native_xgboost, predictions, xgboost_matrix
from calliper._types import FloatArray, IntArray
from calliper._validation import n_rows
from calliper.exceptions import CalliperError
from calliper.space._encoding import without_names
from calliper.space._spread import (
    NAMED_SOURCES,
    STEP_FLOOR,
    SpreadSource,
    UnreadableError,
    explained_deviation,
    leaf_values_deviation,
)

#: One in so many stages, the first, are asked how many training rows their leaves held.
EARLY = 10
#: So many rows are better off with one call for the leaves of all stages.
FEW_ROWS = 30


@dataclass(frozen=True, kw_only=True)
class Trees:
    """What a fitted booster says of its trees.

    Attributes
    ----------
    values, counts : of each tree, by the library's leaf index: leaf values before the link, and
        training rows (for some objectives: their weight)
    per_stage : number of trees that are grown at a time
    rate : by which leaf values were shrunk
    squares : whether it was fitted to squared errors
    slope : derivative of the link, as a function of the prediction
    """

    values: list[FloatArray]
    counts: list[FloatArray]
    per_stage: int = 1
    rate: float
    squares: bool
    slope: Callable[[FloatArray], Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A number for each leaf of the stages from ``first`` until before ``stop``.

    Attributes
    ----------
    numbers : of all leaves, tree after tree
    starts : where in them each tree begins
    """

    first: int
    stop: int
    numbers: FloatArray
    starts: IntArray

    def own(self, leaves: NDArray[Any]) -> NDArray[Any]:
        """The columns of these stages among those of all stages."""
        per_stage = len(self.starts) // (self.stop - self.first)
        return leaves[:, self.first * per_stage : self.stop * per_stage]

    def sums(self, leaves: NDArray[Any]) -> FloatArray:
        """(m,) from (m, trees) leaf indices: the sum of the numbers over the trees."""
        total = np.empty(len(leaves))
        for rows in row_slices(len(leaves), max(1, BLOCK_FLOATS // len(self.starts))):
            total[rows] = self.numbers.take(leaves[rows].astype(np.int64) + self.starts).sum(axis=1)
        return total


def _table(numbers: list[FloatArray], per_stage: int, first: int, stop: int) -> Table:
    some = numbers[first * per_stage : stop * per_stage]
    starts = np.cumsum([0, *(len(each) for each in some[:-1])])
    return Table(first=first, stop=stop, numbers=np.concatenate(some), starts=starts)


class Booster:
    """A fitted booster, asked as its library has it. Subclasses say how.

    Parameters
    ----------
    core : the model, or the library's wrapper of it
    whole : what is inside the wrapper
    n_features : columns that it was trained on
    """

    #: Whether leaves of all stages are told, however few are asked for.
    all_stages = False

    def __init__(self, core: Any, whole: Any, n_features: int) -> None:
        self.core, self.whole, self.n_features = core, whole, n_features

    def trees(self) -> Trees:
        """All that the prediction is made of; ``UnreadableError`` if that is no sum of trees."""
        raise NotImplementedError

    def matrix(self, rows: Any) -> Any:
        """Rows as ``leaves`` takes them."""
        return rows

    def leaves(self, matrix: Any, first: int, stop: int) -> NDArray[Any]:
        """(m, trees) leaf indices in the stages from ``first`` until before ``stop``."""
        raise NotImplementedError


class XGBoost(Booster):
    """``XGBRegressor`` and its like, and ``xgboost.Booster``, which predicts by all its trees."""

    def __init__(self, core: Any) -> None:
        whole = core if is_native_xgboost(core) else core.get_booster()
        super().__init__(core, whole, whole.num_features())
        self.parts: dict[tuple[int, int], Any] = {}

    def trees(self) -> Trees:
        """From the model as JSON: a leaf's value stands where an inner node has its threshold."""
        learner = json.loads(self.whole.save_raw("json"))["learner"]
        booster = learner["gradient_booster"]
        if booster["name"] == "gblinear":
            raise UnreadableError("it is a linear model and has no trees")
        model = booster.get("gbtree", booster)["model"]
        per_stage = max(1, int(model["gbtree_model_param"]["num_parallel_tree"]))
        trees = model["trees"][: self._n_stages() * per_stage]
        if any(tree["tree_param"]["size_leaf_vector"] not in ("0", "1") for tree in trees):
            raise UnreadableError("its leaves hold several numbers")
        kept = booster.get("weight_drop") or np.ones(len(trees))  # DART weighs its trees
        values = [w * np.array(t["split_conditions"]) for w, t in zip(kept, trees, strict=False)]
        counts = [np.where(_is_leaf(t), t["sum_hessian"], 0.0) for t in trees]
        objective = learner["objective"]["name"]
        return Trees(
            values=values,
            counts=counts,
            per_stage=per_stage,
            rate=self._rate(),
            squares=objective == "reg:squarederror",
            slope=_slope(objective),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Slices can be cut again."""
        return {**vars(self), "parts": {}}

    def _n_stages(self) -> int:
        """As many as ``predict`` asks: the wrapper stops at the best, a ``Booster`` does not."""
        best = None if self.whole is self.core else getattr(self.core, "best_iteration", None)
        return int(self.whole.num_boosted_rounds()) if best is None else int(best) + 1

    def _rate(self) -> float:
        booster = json.loads(self.whole.save_config())["learner"]["gradient_booster"]
        return float(booster.get("gbtree", booster)["tree_train_param"]["learning_rate"])

    def matrix(self, rows: Any) -> Any:
        """A ``DMatrix``, made with the settings of the wrapper."""
        return xgboost_matrix(self.core, rows)

    def leaves(self, matrix: Any, first: int, stop: int) -> NDArray[Any]:
        """By a slice of the model, since leaves are told from the first stage on only.

        A slice does not know how categories were coded in training; then all are asked.
        """
        part, stages = self.whole, (0, stop)
        if first and "c" not in (self.whole.feature_types or ()):
            if (first, stop) not in self.parts:
                self.parts[first, stop] = self.whole[first:stop]
            part, stages = self.parts[first, stop], (0, 0)
        found = part.predict(
            matrix, pred_leaf=True, iteration_range=stages, validate_features=False
        )
        found = np.asarray(found).reshape(matrix.num_row(), -1)
        return found if part is not self.whole else found[:, first * found.shape[1] // stop :]


def _is_leaf(tree: Any) -> NDArray[np.bool_]:
    return np.array(tree["left_children"]) < 0


class LightGBM(Booster):
    """``LGBMRegressor`` and its like, and ``lightgbm.Booster``."""

    all_stages = True

    def __init__(self, core: Any) -> None:
        whole = core.booster_ if hasattr(core, "fit") else core
        super().__init__(core, whole, whole.num_feature())

    def trees(self) -> Trees:
        """From the model as text, which ends at the best stage as predictions do."""
        head, *trees = self.whole.model_to_string().split("\nTree=")
        if "\naverage_output" in head:
            raise UnreadableError("its trees are averaged, not added")
        if any(_line("is_linear", tree) == "1" for tree in trees):
            raise UnreadableError("its leaves hold linear models")
        if _line("num_tree_per_iteration", head) != "1":
            raise UnreadableError("it predicts several numbers")
        objective = _line("objective", head)
        return Trees(
            values=[np.array(_line("leaf_value", tree).split(), float) for tree in trees],
            counts=[np.array(_line("leaf_count", tree).split(), float) for tree in trees],
            rate=float(np.median([float(_line("shrinkage", tree)) for tree in trees])),
            squares=objective == "regression",
            slope=_slope(objective),
        )

    def leaves(self, matrix: Any, first: int, stop: int) -> NDArray[Any]:
        """As the library tells them, of as many stages as predictions ask.

        It keeps their number in the model: threads that ask for others write into each other's
        memory.
        """
        model, how = self.core, {}
        if isinstance(matrix, np.ndarray) and matrix.dtype.kind == "f" and len(matrix) <= FEW_ROWS:
            model, how = self.whole, {"num_threads": 1}  # its wrapper takes longer than it
        found = np.asarray(model.predict(matrix, pred_leaf=True, **how))
        return found.reshape(n_rows(matrix), -1)[:, first:stop]


def _line(name: str, text: str) -> str:
    """What stands behind ``name=`` in a model's text; empty if it is not there."""
    found = re.search(rf"^{name}=(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


class CatBoost(Booster):
    """``CatBoostRegressor`` and ``CatBoost``; a best model has lost its later trees in training."""

    def __init__(self, core: Any) -> None:
        if not core.is_fitted():  # of which the library says nothing clear
            raise NotFittedError(f"{type(core).__name__} is not fitted: fit it, then calibrate.")
        super().__init__(core, core, len(core.feature_names_))

    def trees(self) -> Trees:
        """Leaves of symmetric and other trees alike."""
        ends = np.cumsum(self.core.get_tree_leaf_counts())[:-1]
        values, counts = self.core.get_leaf_values(), self.core.get_leaf_weights()
        if len(values) != len(counts) or len(counts) != self.core.get_tree_leaf_counts().sum():
            raise UnreadableError("its leaves hold several numbers, or were stored without weights")
        settings = self.core.get_all_params()
        objective = str(settings["loss_function"])
        return Trees(
            values=np.split(self.core.get_scale_and_bias()[0] * values, ends),
            counts=np.split(counts, ends),
            rate=float(settings["learning_rate"]),
            squares=objective == "RMSE",
            slope=_slope(objective),
        )

    def leaves(self, matrix: Any, first: int, stop: int) -> NDArray[Any]:
        """As the library tells them."""
        return np.asarray(self.core.calc_leaf_indexes(matrix, ntree_start=first, ntree_end=stop))


LIBRARIES: dict[str, Callable[[Any], Booster]] = {
    "xgboost": XGBoost,
    "lightgbm": LightGBM,
    "catboost": CatBoost,
}

#: Objectives whose predictions are exponentials of sums of trees, and logistic functions of them.
EXPONENTIAL = r"count:poisson|reg:gamma|reg:tweedie|survival:(cox|aft)|poisson|gamma|tweedie"
LOGISTIC = r"reg:logistic|binary:logistic|cross_entropy|binary|crossentropy|logloss"


def _slope(objective: str) -> Callable[[FloatArray], Any]:
    """Derivative of the link, as a function of the prediction."""
    if re.match(rf"({EXPONENTIAL})\b", objective, re.IGNORECASE):
        return np.abs
    if re.match(rf"({LOGISTIC})\b(?!:logitraw)", objective, re.IGNORECASE):
        return _logistic_slope
    return _root_slope if objective == "regression sqrt" else _no_slope


def _logistic_slope(y_pred: FloatArray) -> FloatArray:
    return y_pred * (1 - y_pred)


def _root_slope(y_pred: FloatArray) -> FloatArray:
    return 2 * np.sqrt(np.abs(y_pred))


def _no_slope(y_pred: FloatArray) -> float:
    return 1.0


@dataclass(frozen=True, kw_only=True)
class ReadBooster:
    """A booster, with what is looked up in the leaves.

    Attributes
    ----------
    booster : whom to ask for leaves
    sparse : mean of 1/n over the first stages, n the training rows in a leaf
    steps : |step| of the last stages
    n_stages : how many there are altogether
    slope : derivative of the link, as a function of the prediction
    learnt, guessed : deviation of the targets as squared errors let learn it, and by the first
        tree alone for other losses without a link; None where they do not apply
    """

    booster: Booster
    sparse: Table
    steps: Table
    n_stages: int
    slope: Callable[[FloatArray], Any]
    learnt: float | None
    guessed: float | None


def library_of(core: Any) -> str | None:
    """The library that the model, or what it is derived from, comes from; None for any other."""
    roots = (base.__module__.partition(".")[0] for base in type(core).__mro__)
    return next((root for root in roots if root in LIBRARIES and root in sys.modules), None)


def _comes_from_a_library(core: Any) -> bool:
    return library_of(core) is not None


def _read(core: Any) -> ReadBooster:
    booster = LIBRARIES[str(library_of(core))](core)
    trees = booster.trees()
    n = len(trees.values) // trees.per_stage
    if n < 2:
        raise UnreadableError(f"it has {n} stage{'s' if n != 1 else ''}, and none after the first")
    early = -(-n // EARLY)
    return ReadBooster(
        booster=booster,
        sparse=_table(_parts_of_mean(trees, early), trees.per_stage, 0, early),
        steps=_table([np.abs(each) for each in trees.values], trees.per_stage, n // 2, n),
        n_stages=n,
        slope=trees.slope,
        learnt=_learnt(trees) if trees.squares else None,
        guessed=_guessed(trees) if trees.slope is _no_slope else None,
    )


def _parts_of_mean(trees: Trees, n_stages: int) -> list[FloatArray]:
    """1/n of each leaf, over the number of trees that are averaged; leaves without rows as of 1."""
    n_trees = n_stages * trees.per_stage
    return [1 / (n_trees * np.maximum(each, 1.0)) for each in trees.counts[:n_trees]]


def _learnt(trees: Trees) -> float:
    return explained_deviation(zip(trees.values, trees.counts, strict=True), trees.rate)


def _guessed(trees: Trees) -> float:
    return leaf_values_deviation(trees.values[0], trees.counts[0]) / trees.rate


def _measure(read: ReadBooster, rows: Any) -> tuple[FloatArray, FloatArray]:
    """The prediction (m,); steps, in the unit of y, and scarcity of rows, without one, (2, m)."""
    _check_columns(read.booster, rows)
    y_pred = predictions(read.booster.core, rows)
    # The prediction has checked the names, and frames are costly to take apart a second time.
    matrix = read.booster.matrix(without_names(rows, "f"))
    tables = (read.steps, read.sparse)
    if len(y_pred) <= FEW_ROWS or read.booster.all_stages:
        leaves = read.booster.leaves(matrix, 0, read.n_stages)
        steps, sparse = (table.sums(table.own(leaves)) for table in tables)
    else:
        steps, sparse = (
            table.sums(read.booster.leaves(matrix, table.first, table.stop)) for table in tables
        )
    return y_pred, np.stack([steps * read.slope(y_pred), np.sqrt(sparse)])


def _check_columns(booster: Booster, rows: Any) -> None:
    """Another number is refused in words of our own; some libraries take it, or crash."""
    n = len(rows[0]) if isinstance(rows, list) and rows else (*getattr(rows, "shape", ()), 0, 0)[1]
    if n and n != booster.n_features:
        raise CalliperError(
            f"X has {n} columns, but {type(booster.core).__name__} was trained on "
            f"{booster.n_features}: pass the same columns in the same order."
        )


def _describe(read: ReadBooster) -> str:
    n, last = read.n_stages, read.steps.stop - read.steps.first
    return f"steps of the last {last}, rows in leaves of the first {read.sparse.stop} of {n} stages"


def _learnt_deviation(read: ReadBooster) -> float | None:
    return read.learnt


def _guessed_deviation(read: ReadBooster) -> float | None:
    return read.guessed


BOOSTERS = SpreadSource(
    suits=_comes_from_a_library,
    known=_comes_from_a_library,
    read=_read,
    measure=_measure,
    describe=_describe,
    unit=_learnt_deviation,
    guess=_guessed_deviation,
    weights=(2.0, 2.0),
    in_unit=(True, False),
    floor=STEP_FLOOR,
)

NAMED_SOURCES["boosters"] = BOOSTERS

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

*Trained again.* These libraries stop early by an ``eval_set``. Who knows it passes it on, and each
copy stops by itself. A model that came fitted has not kept it: copies then grow as many rounds as
it has settled on, at the same rate, and no longer look for the best. Nor are columns kept that
``fit`` was told are categories; the trees know them.

Nothing is imported from the libraries: who has such a model has imported its library.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from calliper._blocks import BLOCK_FLOATS, row_slices
from calliper._types import FloatArray, IntArray
from calliper._validation import n_rows, shape_of
from calliper.exceptions import CalliperError
from calliper.models._asking import (
    STEP_FLOOR,
    ModelFamily,
    UnreadableError,
    comes_from,
    explained_deviation,
    is_native_xgboost,
    leaf_values_deviation,
    learnt,
    predictions,
    without_names,
    xgboost_matrix,
)

#: One in so many stages, the first, are asked how many training rows their leaves held.
EARLY = 10
#: So many rows are better off with one call for the leaves of all stages.
FEW_ROWS = 30
#: Types of Polars columns that all of them read.
PLAIN_COLUMNS = r"U?Int(8|16|32|64)|Float(32|64)|Boolean"
#: Names by which the libraries know the number of rounds, and by which two of them stop early.
ROUNDS_NAMES = (
    *("n_estimators", "iterations", "max_iter", "n_iter", "nrounds", "num_boost_round"),
    *("num_iteration", "num_iterations", "num_round", "num_rounds", "num_tree", "num_trees"),
)
STOPPING = ("early_stopping", "early_stopping_round", "early_stopping_rounds", "n_iter_no_change")


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
    objective : as the library names it
    """

    values: list[FloatArray]
    counts: list[FloatArray]
    per_stage: int = 1
    rate: float
    squares: bool
    objective: str


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

    @classmethod
    def of(cls, numbers: list[FloatArray], per_stage: int, first: int, stop: int) -> Self:
        """From the numbers of each tree."""
        some = numbers[first * per_stage : stop * per_stage]
        starts = np.cumsum([0, *(len(each) for each in some[:-1])])
        return cls(first=first, stop=stop, numbers=np.concatenate(some), starts=starts)

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


class Library(ModelFamily):
    """A model of one of the libraries, asked as the library has it. Subclasses say how.

    Attributes
    ----------
    library : the package that its class, or what that is derived from, comes from
    all_stages : whether leaves of all stages are told, however few are asked for
    rounds_name : what ``fit`` calls the number of rounds unless a parameter says otherwise
    whole : the model inside the library's wrapper
    n_features : columns that it was trained on
    n_stages : how many there are altogether
    sparse : mean of 1/n over the first stages, n the training rows in a leaf
    steps : |step| of the last stages
    """

    weights = (2.0, 2.0)
    in_unit = (True, False)
    floor = STEP_FLOOR
    library: ClassVar[str]
    all_stages: ClassVar[bool] = False
    rounds_name: ClassVar[str] = "n_estimators"

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        self.whole, self.n_features = self.inside()
        trees = self.trees()
        n = len(trees.values) // trees.per_stage
        if n < 2:
            raise UnreadableError(
                f"it has {n} stage{'s' if n != 1 else ''}, and none after the first"
            )
        early, per_stage = -(-n // EARLY), trees.per_stage
        self.n_stages, self.slope = n, _slope(trees.objective)
        self.sparse = Table.of(_parts_of_mean(trees, early), per_stage, 0, early)
        self.steps = Table.of([np.abs(each) for each in trees.values], per_stage, n // 2, n)
        self._unit = self._guess = None
        if trees.squares:
            self._unit = explained_deviation(
                zip(trees.values, trees.counts, strict=True), trees.rate
            )
        if self.slope is _no_slope:
            self._guess = leaf_values_deviation(trees.values[0], trees.counts[0]) / trees.rate

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        return comes_from(core, cls.library)

    def inside(self) -> tuple[Any, int]:
        """The model inside the wrapper, and the number of columns that it was trained on."""
        raise NotImplementedError

    def trees(self) -> Trees:
        """All that the prediction is made of; ``UnreadableError`` if that is no sum of trees."""
        raise NotImplementedError

    def matrix(self, rows: Any) -> Any:
        """Rows as ``leaves`` takes them, once the prediction has checked their names."""
        return without_names(rows, "f")  # frames are costly to take apart a second time

    def leaves(self, matrix: Any, first: int, stop: int) -> NDArray[Any]:
        """(m, trees) leaf indices in the stages from ``first`` until before ``stop``."""
        raise NotImplementedError

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """The prediction (m,); steps, in the unit of y, and scarcity of rows, without, (2, m)."""
        self._check_columns(rows)
        y_pred = predictions(self.core, rows)
        matrix = self.matrix(rows)
        tables = (self.steps, self.sparse)
        if len(y_pred) <= FEW_ROWS or self.all_stages:
            leaves = self.leaves(matrix, 0, self.n_stages)
            steps, sparse = (table.sums(table.own(leaves)) for table in tables)
        else:
            steps, sparse = (
                table.sums(self.leaves(matrix, table.first, table.stop)) for table in tables
            )
        return y_pred, np.stack([steps * self.slope(y_pred), np.sqrt(sparse)])

    def _check_columns(self, rows: Any) -> None:
        """Another number is refused in words of our own; some libraries take it, or crash."""
        listed = isinstance(rows, list) and rows
        n = len(rows[0]) if listed else (*shape_of(rows), 0, 0)[1]
        if n and n != self.n_features:
            raise CalliperError(
                f"X has {n} columns, but {type(self.core).__name__} was trained on "
                f"{self.n_features}: pass the same columns in the same order."
            )

    def describe(self) -> str:
        last, early = self.steps.stop - self.steps.first, self.sparse.stop
        stages = f"of {self.n_stages} stages"
        return f"steps of the last {last}, rows in leaves of the first {early} {stages}"

    def unit(self) -> float | None:
        """Deviation of what squared errors let the trees learn; None for other losses."""
        return self._unit

    def guess(self) -> float | None:
        """By the first tree alone, for losses without a link."""
        return self._guess

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """Without an ``eval_set``, as many rounds as the model has settled on."""
        params = core.get_params()
        rounds = None if _is_watched(told) else cls.settled_rounds(fitted, params)
        if rounds:
            fixed = {name: rounds for name in ROUNDS_NAMES if params.get(name) is not None}
            core.set_params(**(fixed or {cls.rounds_name: rounds}), **cls.unstopped(params, fitted))
        return {}

    @classmethod
    def settled_rounds(cls, fitted: Any, params: dict[str, Any]) -> int | None:
        """Rounds at which it stopped early; None if it did not."""
        raise NotImplementedError

    @classmethod
    def unstopped(cls, params: dict[str, Any], fitted: Any) -> dict[str, Any]:
        """Parameters by which training stops nowhere else."""
        return {name: None for name in STOPPING if params.get(name) is not None}


def _is_watched(told: set[str]) -> bool:
    """Whether ``fit`` is told the rows by which it may stop early."""
    return not told.isdisjoint(("eval_set", "eval_X"))


def _parts_of_mean(trees: Trees, n_stages: int) -> list[FloatArray]:
    """1/n of each leaf, over the number of trees that are averaged; leaves without rows as of 1."""
    n_trees = n_stages * trees.per_stage
    return [1 / (n_trees * np.maximum(each, 1.0)) for each in trees.counts[:n_trees]]


class XGBoost(Library):
    """``XGBRegressor`` and its like, and ``xgboost.Booster``, which predicts by all its trees."""

    library = "xgboost"
    polars = f"{PLAIN_COLUMNS}|Categorical|Enum"

    def __init__(self, core: Any) -> None:
        self.parts: dict[tuple[int, int], Any] = {}
        super().__init__(core)

    def inside(self) -> tuple[Any, int]:
        whole = self.core if is_native_xgboost(self.core) else self.core.get_booster()
        return whole, whole.num_features()

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
        objective = learner["objective"]["name"]
        return Trees(
            values=[w * np.array(t["split_conditions"]) for w, t in zip(kept, trees, strict=False)],
            counts=[
                np.where(np.array(t["left_children"]) < 0, t["sum_hessian"], 0.0) for t in trees
            ],
            per_stage=per_stage,
            rate=self._rate(),
            squares=objective == "reg:squarederror",
            objective=objective,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Slices can be cut again."""
        return {**vars(self), "parts": {}}

    def _n_stages(self) -> int:
        """As many as ``predict`` asks: the wrapper stops at the best, a ``Booster`` does not."""
        best = None if self.whole is self.core else learnt(self.core, "best_iteration")
        return int(self.whole.num_boosted_rounds()) if best is None else int(best) + 1

    def _rate(self) -> float:
        booster = json.loads(self.whole.save_config())["learner"]["gradient_booster"]
        return float(booster.get("gbtree", booster)["tree_train_param"]["learning_rate"])

    def matrix(self, rows: Any) -> Any:
        """A ``DMatrix``, made with the settings of the wrapper."""
        return xgboost_matrix(self.core, super().matrix(rows))

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

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """Callbacks that stop early are dropped, or forget the training that they have seen."""
        others = []
        for callback in core.callbacks or ():
            stops = hasattr(callback, "stopping_history")
            if stops:
                callback.stopping_history, callback.best_scores, callback.current_rounds = {}, {}, 0
            if _is_watched(told) or not stops:
                others.append(callback)
        core.set_params(callbacks=others or None)
        return super().retrain(core, fitted, told)

    @classmethod
    def settled_rounds(cls, fitted: Any, params: dict[str, Any]) -> int | None:
        """The best, if it looked for that."""
        best = learnt(fitted, "best_iteration")
        return None if best is None else int(best) + 1


class LightGBM(Library):
    """``LGBMRegressor`` and its like, and ``lightgbm.Booster``."""

    library = "lightgbm"
    polars = PLAIN_COLUMNS
    all_stages = True

    def inside(self) -> tuple[Any, int]:
        whole = self.core.booster_ if hasattr(self.core, "fit") else self.core
        return whole, whole.num_feature()

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
            objective=objective,
        )

    def matrix(self, rows: Any) -> Any:
        """Few rows for the model inside; the wrapper warns of names that it misses."""
        return super().matrix(rows) if n_rows(rows) <= FEW_ROWS else rows

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

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """The columns that were categories are told again."""
        super().retrain(core, fitted, told)
        found = fitted.booster_.params.get("categorical_column")
        return {"categorical_feature": found} if found else {}

    @classmethod
    def settled_rounds(cls, fitted: Any, params: dict[str, Any]) -> int | None:
        """The best, if it looked for that."""
        return fitted.best_iteration_ or None


def _line(name: str, text: str) -> str:
    """What stands behind ``name=`` in a model's text; empty if it is not there."""
    found = re.search(rf"^{name}=(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


class CatBoost(Library):
    """``CatBoostRegressor`` and ``CatBoost``; a best model has lost its later trees in training."""

    library = "catboost"
    polars = f"{PLAIN_COLUMNS}|String|Decimal"
    rounds_name = "iterations"

    def inside(self) -> tuple[Any, int]:
        if not self.core.is_fitted():  # of which the library says nothing clear
            kind = type(self.core).__name__
            raise NotFittedError(f"{kind} is not fitted: fit it, then calibrate.")
        return self.core, len(self.core.feature_names_)

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
            objective=objective,
        )

    def leaves(self, matrix: Any, first: int, stop: int) -> NDArray[Any]:
        return np.asarray(self.core.calc_leaf_indexes(matrix, ntree_start=first, ntree_end=stop))

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """The columns that were categories are parameters of the copy."""
        super().retrain(core, fitted, told)
        if "cat_features" not in {*core.get_params(), *told}:
            found = fitted.get_cat_feature_indices()
            core.set_params(**({"cat_features": found} if found else {}))
        return {}

    @classmethod
    def settled_rounds(cls, fitted: Any, params: dict[str, Any]) -> int | None:
        """The number of trees that are left, if that is less than were asked for."""
        asked = next((params[name] for name in ROUNDS_NAMES if name in params), 1000)
        stopped = fitted.tree_count_ < asked or params.get("use_best_model")
        return int(fitted.tree_count_) if stopped else None

    @classmethod
    def unstopped(cls, params: dict[str, Any], fitted: Any) -> dict[str, Any]:
        """The rate that followed from the number of rounds, and no search for the best model."""
        fixed = (
            {} if {"learning_rate", "eta"} & {*params} else {"learning_rate": fitted.learning_rate_}
        )
        return fixed | ({"use_best_model": False} if params.get("use_best_model") else {})


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

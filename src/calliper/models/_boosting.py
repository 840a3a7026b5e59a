"""Boosting, of scikit-learn and of libraries: how far the last trees move the prediction.

Trees correct one another, so their spread says nothing; the path of their sum does. Where the later
half of the stages still moves the prediction to and fro, residuals were large and contradictory:
the spread is Σ |step| over that half. A second spread comes with it where it can be read:

- from ``GradientBoostingRegressor``, whose trees keep how much the residuals varied in each leaf,
  the root mean of that variance over the same trees;
- from XGBoost, LightGBM and CatBoost √(mean of 1/n) over the first tenth, n the number of training
  rows in a row's leaf: about the standard error, in deviations, of a mean over the rows that the
  model treats alike. Early trees follow the targets and late ones the noise.

Of the libraries each leaf's value and number of rows are read once from the fitted model; then a
row costs its leaf indices, which the library finds, and look-ups. Steps are made before the link
of the objective, where there is one, and its slope brings them to the unit of y.

*Trained again.* These libraries stop early by an ``eval_set``. If it is passed, each copy stops by
itself. A model that came fitted has not kept it: copies then grow as many rounds as it settled on,
at the same rate. Columns that ``fit`` was told are categories are known from the trees.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from calliper._blocks import BLOCK_FLOATS, row_slices
from calliper._types import FloatArray
from calliper._validation import n_rows, shape_of
from calliper.exceptions import CalliperError
from calliper.models._asking import (
    ModelFamily,
    UnreadableError,
    comes_from,
    is_native_xgboost,
    learnt,
    predictions,
    predicts_as,
    without_names,
    xgboost_matrix,
)
from calliper.models._forests import JoinedTrees, root_deviation

#: Part of the unit below which steps and residuals count as equal: they are smaller than spreads.
STEP_FLOOR = 0.003
#: Leaf sizes are read in the first of this many parts of the stages.
EARLY = 10
#: Types of Polars columns that all of them read.
PLAIN_COLUMNS = r"U?Int(8|16|32|64)|Float(32|64)|Boolean"
#: Names by which the libraries know the number of rounds, and by which two of them stop early.
ROUNDS_NAMES = (
    *("n_estimators", "iterations", "max_iter", "n_iter", "nrounds", "num_boost_round"),
    *("num_iteration", "num_iterations", "num_round", "num_rounds", "num_tree", "num_trees"),
)
#: Names of the squared error.
SQUARES = {"reg:squarederror", "regression", "RMSE"}
#: What gives ``fit`` rows by which it may stop early.
WATCHED = {"eval_set", "eval_X"}
STOPPING = ("early_stopping", "early_stopping_round", "early_stopping_rounds", "n_iter_no_change")


class Stages(ModelFamily):
    """Histogram boosting, which gives the sums of its trees on the way."""

    floor = STEP_FLOOR

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        self.n = int(core.n_iter_)
        trees = [stage[0] for stage in core._predictors]
        by_number = core._preprocessor is None  # no splits by categories
        self.joined = JoinedTrees(trees) if by_number else None

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        staged = predicts_as(core, HistGradientBoostingRegressor)
        return staged and (learnt(core, "n_iter_") or 0) > 1

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """The prediction (m,) and Σ |step| over the later half of the stages, (1, m)."""
        before, moved = np.zeros(0), np.zeros(n_rows(rows))
        for stage, sums in enumerate(self._sums(rows)):
            y_pred = np.asarray(sums, dtype=np.float64).reshape(-1)
            if stage >= self.n // 2:
                moved += np.abs(y_pred - before)
            before = y_pred
        return before, moved[None]

    def _sums(self, X: Any) -> Iterable[Any]:
        """The prediction by each number of stages, (m,)."""
        if self.joined is None or not self.joined.takes(n_rows(X)):
            return self.core.staged_predict(X)  # type: ignore[no-any-return]
        steps = self.joined.nodes.values(self.core._preprocess_X(X, reset=False))
        steps[0] += self.core._baseline_prediction[0]
        return self.core._loss.link.inverse(np.cumsum(steps, axis=0))  # type: ignore[no-any-return]

    def describe(self) -> str:
        return f"steps of the last {self.n - self.n // 2} of {self.n} stages"

    def unit(self) -> float | None:
        """Deviation of the targets as far as the trees explain it, for squared errors."""
        if self.core.loss != "squared_error":
            return None
        nodes = (stage[0].nodes for stage in self.core._predictors)
        kept = (each[each["is_leaf"] == 1] for each in nodes)
        leaves = ((leaf["value"], leaf["count"]) for leaf in kept)
        return explained_deviation(leaves, self.core.learning_rate)


def explained_deviation(leaves: Iterable[tuple[Any, Any]], rate: float) -> float:
    """Deviation of what stages of trees, grown by squared errors at a rate, have learnt of y.

    A stage of rate ν lowers the variance of the residuals by (2/ν − 1) times that of its own
    values, which come with the numbers of rows in the leaves. Regularised leaves make it smaller.
    """
    explained = 0.0
    for values, counts in leaves:
        mean = np.average(values, weights=counts)
        explained += np.average((values - mean) ** 2, weights=counts)
    return float(np.sqrt((2 / float(rate) - 1) * explained))


class TreeStages(ModelFamily):
    """Stages that are trees of scikit-learn; those not grown on residuals of y give one spread."""

    weights = (2.0, 1 / 0.15)
    floor = STEP_FLOOR

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        trees = learnt(core, "estimators_")
        return predicts_as(core, GradientBoostingRegressor) and trees is not None and len(trees) > 1

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """The prediction (m,); Σ |step| and rms deviation in leaves of the later trees, (2, m)."""
        core, how = self.core, {"dtype": np.float32, "order": "C", "accept_sparse": "csr"}
        trees = [tree.tree_ for tree in core.estimators_[:, 0]]  # first: a file may bring any core
        rows = validate_data(core, rows, reset=False, **how)
        total, moved, variance = np.zeros((3, rows.shape[0]))
        for stage, tree in enumerate(trees):
            leaf = tree.apply(rows)
            step = tree.value.ravel().take(leaf)
            total += step
            if stage >= len(trees) // 2:
                moved += np.abs(step)
                variance += tree.impurity.take(leaf)
        spreads = [core.learning_rate * moved]
        if core.loss == "squared_error":  # an impurity of zero is rounded to either side
            spreads.append(np.sqrt(np.maximum(variance, 0.0) / (len(trees) - len(trees) // 2)))
        origin = 0.0 if core.init_ == "zero" else core.init_.predict(rows).reshape(-1)
        return origin + core.learning_rate * total, np.stack(spreads)

    def describe(self) -> str:
        n = len(self.core.estimators_)
        leaves = " and residuals in their leaves" if self.core.loss == "squared_error" else ""
        return f"steps of the last {n - n // 2} of {n} trees{leaves}"

    def unit(self) -> float | None:
        """Deviation of the first tree's targets: of y, unless another model comes before it."""
        from_constant = self.core.init is None or isinstance(self.core.init, str)
        grown_on_targets = self.core.loss == "squared_error" and from_constant
        return root_deviation(self.core.estimators_[0, 0].tree_) if grown_on_targets else None


class Trees(NamedTuple):
    """What a fitted booster says of its trees, of which ``per_stage`` are grown at a time.

    Of each tree, by the library's leaf index: leaf values before the link, shrunk by ``rate``, and
    training rows (for some objectives their weight); the objective as the library names it.
    """

    values: list[FloatArray]
    counts: list[FloatArray]
    rate: float
    objective: str
    per_stage: int = 1


class Table:
    """Numbers of leaves, by the library's leaf index, of the trees from ``first`` on."""

    def __init__(self, numbers: list[FloatArray], first: int = 0) -> None:
        sizes = [len(each) for each in numbers]
        self.trees, self.numbers = slice(first, first + len(sizes)), np.concatenate(numbers)
        self.starts = np.cumsum([0, *sizes[:-1]])

    def sums(self, leaves: NDArray[Any]) -> FloatArray:
        """(m,) sums over the trees, from leaf indices in all trees, (m, T)."""
        total, own = np.empty(len(leaves)), leaves[:, self.trees]
        for rows in row_slices(len(leaves), max(1, BLOCK_FLOATS // len(self.starts))):
            total[rows] = self.numbers.take(own[rows].astype(np.int64) + self.starts).sum(axis=1)
        return total


class Library(ModelFamily):
    """A model of one of the libraries, by the package that its class, or a base of it, comes from.

    ``sparse`` and ``steps`` are the mean of 1/n over the first stages, and |step| of the last ones.
    """

    weights = (2.0, 2.0)
    in_unit = (True, False)
    floor = STEP_FLOOR
    library: ClassVar[str]
    #: What ``fit`` calls the number of rounds unless a parameter says otherwise.
    rounds_name: ClassVar[str] = "n_estimators"
    #: The model inside the library's wrapper, and the number of its columns.
    inside: Callable[[], tuple[Any, int]]
    #: All that the prediction is made of; ``UnreadableError`` if that is no sum of trees.
    trees: Callable[[], Trees]
    #: (m, T) leaf indices of rows in all trees.
    leaves: Callable[[Any], NDArray[Any]]
    #: Rounds at which a fitted model stopped early; None if it did not.
    settled_rounds: Callable[[Any, dict[str, Any]], int | None]

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        self.whole, self.n_features = self.inside()
        values, counts, rate, self.objective, each = self.trees()
        self.n_stages = n = len(values) // each
        if n < 2:
            raise UnreadableError("it has no stage after the first")
        self.n_early, later = -(-n // EARLY), n // 2 * each
        early = counts[: self.n_early * each]
        self.sparse = Table([1 / (len(early) * np.maximum(rows, 1.0)) for rows in early])
        self.steps = Table([np.abs(steps) for steps in values[later:]], later)
        leaves = zip(values, counts, strict=True)
        self._unit = explained_deviation(leaves, rate) if self.objective in SQUARES else None

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        return comes_from(core, cls.library)

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """The prediction (m,); steps, in the unit of y, and sparsity of rows, (2, m)."""
        width = len(rows[0]) if isinstance(rows, list) and rows else (*shape_of(rows), 0, 0)[1]
        if width not in (0, self.n_features):  # some libraries accept it, or crash
            raise CalliperError(
                f"X has {width} columns, but {type(self.core).__name__} was trained on "
                f"{self.n_features}: pass the same columns in the same order."
            )
        y_pred, leaves = predictions(self.core, rows), self.leaves(rows)
        steps, sparse = self.steps.sums(leaves), self.sparse.sums(leaves)
        links = (link for name, link in LINKS.items() if re.match(name, self.objective, re.I))
        return y_pred, np.stack([steps * next(links, np.ones_like)(y_pred), np.sqrt(sparse)])

    def describe(self) -> str:
        n, early = self.n_stages, self.n_early
        return f"steps of the last {n - n // 2}, rows in leaves of the first {early} of {n} stages"

    def unit(self) -> float | None:
        """Deviation of what squared errors let the trees learn; None for other losses."""
        return self._unit

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """Without an ``eval_set``, as many rounds as the model has settled on."""
        params = core.get_params()
        rounds = None if told & WATCHED else cls.settled_rounds(fitted, params)
        if rounds:
            fixed = {name: rounds for name in ROUNDS_NAMES if params.get(name) is not None}
            core.set_params(**(fixed or {cls.rounds_name: rounds}), **cls.unstopped(params, fitted))
        return {}

    @classmethod
    def unstopped(cls, params: dict[str, Any], fitted: Any) -> dict[str, Any]:
        """Parameters by which training stops nowhere else."""
        return {name: None for name in STOPPING if params.get(name) is not None}


class XGBoost(Library):
    """``XGBRegressor`` and its like, and ``xgboost.Booster``, which predicts by all its trees."""

    library = "xgboost"
    polars = f"{PLAIN_COLUMNS}|Categorical|Enum"

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
        # As many as predict asks: the wrapper stops at the best, a Booster does not.
        best = None if self.whole is self.core else self.settled_rounds(self.core, {})
        trees = model["trees"][: (best or self.whole.num_boosted_rounds()) * per_stage]
        if any(tree["tree_param"]["size_leaf_vector"] not in ("0", "1") for tree in trees):
            raise UnreadableError("its leaves hold several numbers")
        drop = booster.get("weight_drop") or np.ones(len(trees))  # DART weighs its trees
        how = json.loads(self.whole.save_config())["learner"]["gradient_booster"]
        return Trees(
            [w * np.array(t["split_conditions"]) for w, t in zip(drop, trees, strict=False)],
            [np.where(np.array(t["left_children"]) < 0, t["sum_hessian"], 0.0) for t in trees],
            float(how.get("gbtree", how)["tree_train_param"]["learning_rate"]),
            learner["objective"]["name"],
            per_stage,
        )

    def leaves(self, rows: Any) -> NDArray[Any]:
        matrix = xgboost_matrix(self.core, without_names(rows, "f"))
        how = {"iteration_range": (0, self.n_stages), "validate_features": False}
        found = self.whole.predict(matrix, pred_leaf=True, **how)
        return np.asarray(found).reshape(matrix.num_row(), -1)

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """Callbacks that stop early are dropped, or forget the training that they have seen."""
        others = []
        for callback in core.callbacks or ():
            stops = hasattr(callback, "stopping_history")
            if stops:
                callback.stopping_history, callback.best_scores, callback.current_rounds = {}, {}, 0
            if told & WATCHED or not stops:
                others.append(callback)
        core.set_params(callbacks=others or None)
        return super().retrain(core, fitted, told)

    @classmethod
    def settled_rounds(cls, fitted: Any, params: dict[str, Any]) -> int | None:
        best = learnt(fitted, "best_iteration")
        return None if best is None else int(best) + 1


class LightGBM(Library):
    """``LGBMRegressor`` and its like, and ``lightgbm.Booster``."""

    library = "lightgbm"
    polars = PLAIN_COLUMNS

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
        return Trees(
            [np.array(_line("leaf_value", tree).split(), float) for tree in trees],
            [np.array(_line("leaf_count", tree).split(), float) for tree in trees],
            float(np.median([float(_line("shrinkage", tree)) for tree in trees])),
            _line("objective", head),
        )

    def leaves(self, rows: Any) -> NDArray[Any]:
        """By the wrapper: threads that ask the library for a number of stages write into it."""
        return np.asarray(self.core.predict(rows, pred_leaf=True)).reshape(n_rows(rows), -1)

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """Passes again which columns are categories."""
        super().retrain(core, fitted, told)
        found = fitted.booster_.params.get("categorical_column")
        return {"categorical_feature": found} if found else {}

    @classmethod
    def settled_rounds(cls, fitted: Any, params: dict[str, Any]) -> int | None:
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
        return Trees(
            np.split(self.core.get_scale_and_bias()[0] * values, ends),
            np.split(counts, ends),
            float(settings["learning_rate"]),
            str(settings["loss_function"]),
        )

    def leaves(self, rows: Any) -> NDArray[Any]:
        return np.asarray(self.core.calc_leaf_indexes(without_names(rows, "f")))

    @classmethod
    def retrain(cls, core: Any, fitted: Any, told: set[str]) -> dict[str, Any]:
        """The columns that were categories are parameters of the copy."""
        super().retrain(core, fitted, told)
        found = fitted.get_cat_feature_indices()
        if found and "cat_features" not in {*core.get_params(), *told}:
            core.set_params(cat_features=found)
        return {}

    @classmethod
    def settled_rounds(cls, fitted: Any, params: dict[str, Any]) -> int | None:
        asked = next((params[name] for name in ROUNDS_NAMES if name in params), 1000)
        stopped = fitted.tree_count_ < asked or params.get("use_best_model")
        return int(fitted.tree_count_) if stopped else None

    @classmethod
    def unstopped(cls, params: dict[str, Any], fitted: Any) -> dict[str, Any]:
        """The rate that followed from the number of rounds, and no search for the best model."""
        known = {"learning_rate", "eta"} & {*params}
        fixed = {} if known else {"learning_rate": fitted.learning_rate_}
        return fixed | ({"use_best_model": False} if params.get("use_best_model") else {})


#: The slope of the link from sums of trees to predictions, by the objective's name; 1 for others.
LINKS: dict[str, Callable[[FloatArray], FloatArray]] = {
    r"(count:poisson|reg:gamma|reg:tweedie|survival:(cox|aft)|poisson|gamma|tweedie)\b": np.abs,
    r"(reg:logistic|binary:logistic|cross_entropy|binary|crossentropy|logloss)\b(?!:logitraw)": (
        lambda y_pred: y_pred * (1 - y_pred)
    ),
    r"regression sqrt$": lambda y_pred: 2 * np.sqrt(np.abs(y_pred)),
}

"""Which classes a file may name, and those few that are not made of plain attributes.

The list is closed: a name in a file is looked up here, and what is not found is refused. A class
that belongs to something fitted is added by naming it under its module; it must keep plain
attributes, or drop in ``__getstate__`` what ``__setstate__`` can build again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree._tree import Tree

from calliper._trees import check_nodes, packed, unpacked
from calliper.exceptions import DamagedFileError

#: Classes of the library, by their modules.
OWN = {
    "calliper.scale._device": "DeviceRows",
    "calliper.calibration": "Calibration CalibratedOnStored TrainedHere",
    "calliper._row_checks": "RowSketch",
    "calliper.targets": "MultiTargetRegressor",
    "calliper.rows": "PerRow Rows",
    "calliper.calibrators._conditional": "ConditionalCalibration Span",
    "calliper.calibrators._full_rescaled": "FullRescaled",
    "calliper.calibrators._grouped": "Grouped",
    "calliper.calibrators._jackknife_minmax": "JackknifeMinmaxRescaled",
    "calliper.calibrators._jackknife_rescaled": "JackknifeRescaled",
    "calliper.calibrators._lcp": "LCP OrderedScores RadialLocalizer NeighborLocalizer",
    "calliper.calibrators._locality": "Locality ShrunkBag",
    "calliper.calibrators._locart": "LoCart",
    "calliper.calibrators._lvd": "LVD",
    "calliper.calibrators._mad_split": "MADSplit",
    "calliper.calibrators._normalized_knn": "NormalizedKNN",
    "calliper.calibrators._rcp": "RCP",
    "calliper.calibrators._rlcp": "RLCP",
    "calliper.calibrators._slcp": "SLCP",
    "calliper.calibrators._split": "Split",
    "calliper.space._embedding": "Embedding",
    "calliper.space._encoding": "ColumnEncoder Levels Numbers Times",
    "calliper.space._error_model": "BoostedTrees ErrorModel Expected",
    "calliper.space._learnt_error": "WithErrorModel",
    "calliper.space._left_out": "LeftOut",
    "calliper.models._networks": "Layer",
    "calliper.space._spaces": (
        "Contributions InputsAndPrediction Mapped Network OneInput Prediction PredictionAndSpread "
        "Scaling"
    ),
    "calliper.scale._cell_bag": "BagCells CellMean",
    "calliper.scale._cells": "CellSearch Cells Placed PlacedCells",
    "calliper.kernels._criterion": "LeaveFoldOutRBF LeaveTwoOutTuned RescaledInformation Tuning",
    "calliper.kernels._graded": "BagGraded GradedKNN GradedMean",
    "calliper.kernels._knn": "BagKNN KNN LeaveTwoOutKNN",
    "calliper.kernels._learnt": "LearntBag LearntKernel LearntMetric Mahalanobis",
    "calliper.kernels._nearest": "NearestFamily NearestMean NearestMeansWithout NearestQuantile",
    "calliper.kernels._radial": "BagRBF LeaveTwoOutRBF RadialExponents RadialFamily "
    "RadialMeansWithout RadialQuantile SmoothedRadial",
    "calliper.kernels._rbf": "RBF",
    "calliper.kernels._neighbors": "NeighborSearch",
    "calliper.kernels._shared": "SharedNeighbors",
    "calliper.kernels._statistic": "MeanStatistic QuantileStatistic",
    "calliper.scale._torch": "Strips TorchSearch",
    "calliper.scale._torch_radial": "BagTorchRadial LeaveTwoOutTorchRadial TorchRadial",
    "calliper.kernels._tuned": "TunedKNN TunedRBF",
    "calliper.kernels._weighted": "BagWeighted ForestProximity LeaveTwoOutWeighted SharedLeaves "
    "WeightedMean",
    "calliper.online": "Controller",
    "calliper.refitting._bootstrap": "JackknifeAfterBootstrap",
    "calliper.refitting._folds": "CVPlus JackknifePlus",
    "calliper.regressor": "ConformalRegressor",
    "calliper.scores": "AbsoluteError JointError QuantileError ScaledError SignedError",
    "calliper.shift": "LikelihoodRatio",
}

#: Classes of scikit-learn that belong to what is fitted here, or to usual embeddings.
FOREIGN = {
    "sklearn.calibration": "CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration",
    "sklearn.compose": "ColumnTransformer",
    "sklearn.decomposition": "PCA TruncatedSVD",
    "sklearn.dummy": "DummyRegressor",
    "sklearn.ensemble": "ExtraTreesRegressor GradientBoostingRegressor RandomForestRegressor "
    "HistGradientBoostingClassifier HistGradientBoostingRegressor",
    "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "sklearn.impute": "SimpleImputer",
    "sklearn.isotonic": "IsotonicRegression",
    "sklearn.linear_model": "LinearRegression LogisticRegression QuantileRegressor Ridge",
    "sklearn.pipeline": "Pipeline",
    "sklearn.preprocessing": "LabelEncoder MinMaxScaler OneHotEncoder OrdinalEncoder RobustScaler "
    "StandardScaler",
    "sklearn.tree": "DecisionTreeRegressor ExtraTreeRegressor",
}

#: Objects that a module has by a name, and that are compared by identity.
CONSTANTS = {
    "RAW": "calliper.space._embedding",
    "UNTOUCHED": "calliper.space._embedding",
    "ModelFamily": "calliper.models._family",
    "XGBoost": "calliper.models._libraries",
    "LightGBM": "calliper.models._libraries",
    "CatBoost": "calliper.models._libraries",
    "Members": "calliper.models._forests",
    "Stages": "calliper.models._boosting",
    "TreeStages": "calliper.models._boosting",
    "StatedDeviation": "calliper.models._linear",
}

#: Methods that an object may keep of another.
METHODS = frozenset({"predict", "to", "transform", "weights"})


@cache
def _places() -> dict[str, tuple[str, str]]:
    """Module and name of each class, by the name that files have for it."""
    own = {name: (module, name) for module, names in OWN.items() for name in names.split()}
    foreign = {
        f"sklearn:{name}": (module, name)
        for module, names in FOREIGN.items()
        for name in names.split()
    }
    return own | foreign


@cache
def class_named(name: str) -> type | None:
    """The class that files call so; None for any other."""
    place = _places().get(name)
    return None if place is None else getattr(import_module(place[0]), place[1])


def name_of_class(kind: type) -> str | None:
    """What files call the class; None if they may not name it."""
    package = kind.__module__.partition(".")[0]
    name = {"calliper": kind.__name__, "sklearn": f"sklearn:{kind.__name__}"}.get(package)
    return name if name is not None and class_named(name) is kind else None


def full_name(value: Any) -> str:
    """Module and name of a class or function of the user's."""
    return (
        f"{getattr(value, '__module__', 'numpy')}:{getattr(value, '__qualname__', value.__name__)}"
    )


@cache
def constant(name: str) -> Any:
    """The object of this name."""
    return getattr(import_module(CONSTANTS[name]), name)


def name_of_constant(value: Any) -> str | None:
    """The name of an object that is known by one."""
    return next((name for name in CONSTANTS if constant(name) is value), None)


@dataclass(frozen=True)
class Special:
    """A class that is not made of plain attributes.

    Attributes
    ----------
    state : what to write of an object: plain values, arrays and objects
    build : the object again
    """

    state: Callable[[Any], Any]
    build: Callable[[Any], Any]


def special_name(value: Any) -> str | None:
    """By which of :data:`SPECIAL` an object is written; None for most."""
    kind = type(value)
    if kind.__module__.startswith("sklearn._loss"):
        return "loss"
    if kind.__module__.startswith("scipy.sparse"):
        return "sparse" if kind.__name__ in ("csr_array", "csr_matrix") else None
    return _special_types().get(kind)


@cache
def _special_types() -> dict[type, str]:
    spread: Any = class_named("PredictionAndSpread")
    isotonic: Any = class_named("sklearn:IsotonicRegression")
    return {
        Tree: "Tree",
        TreePredictor: "TreePredictor",
        CheckedPredictor: "TreePredictor",
        np.random.RandomState: "RandomState",
        np.random.Generator: "Generator",
        spread: "PredictionAndSpread",
        isotonic: "IsotonicRegression",
    }


def _columns(nodes: Any) -> dict[str, Any]:
    """The fields of records, each an array."""
    return {name: np.ascontiguousarray(nodes[name]) for name in nodes.dtype.names}


def _of_predictor(predictor: Any) -> dict[str, Any]:
    state = dict(vars(predictor))
    return {**state, "nodes": _columns(state["nodes"])}


class CheckedPredictor(TreePredictor):  # type: ignore[misc]
    """A tree of histogram boosting that came from a file.

    Its compiled code trusts that rows have the columns that its nodes ask for, and that there is a
    set of known categories for each column that they split by category.
    """

    def predict(self, X: Any, known_cat_bitsets: Any, f_idx_map: Any, n_threads: int) -> Any:
        """As ever, if there is what is asked for."""
        inner = self.nodes["is_leaf"] == 0
        asked = self.nodes["feature_idx"][inner]
        if asked.max(initial=-1) >= min(X.shape[1], len(f_idx_map)):
            raise DamagedFileError("a tree asks for a column that rows do not have.")
        by_category = asked[self.nodes["is_categorical"][inner] != 0]
        if len(by_category) and np.max(f_idx_map[by_category]) >= len(known_cat_bitsets):
            raise DamagedFileError("a tree asks for a set of categories that is not there.")
        return super().predict(X, known_cat_bitsets, f_idx_map, n_threads)


def _predictor(state: dict[str, Any]) -> Any:
    """A tree of histogram boosting, whose nodes were looked at."""
    columns = state["nodes"]
    nodes = np.zeros(len(columns["left"]), dtype=PREDICTOR_RECORD_DTYPE)
    for name in PREDICTOR_RECORD_DTYPE.names:
        nodes[name] = columns[name]
    leaf = nodes["is_leaf"].astype(bool)
    if not len(nodes) or (~leaf & (nodes["left"] == 0)).any():
        raise DamagedFileError("a tree has an inner node without children.")
    left = np.where(leaf, 0, nodes["left"])
    check_nodes(left, nodes["right"], nodes["feature_idx"], 2**31)
    sets = [state[f"{name}_left_cat_bitsets"] for name in ("raw", "binned")]
    n_sets = min(map(len, sets))
    if any(each.shape[1:] != (8,) for each in sets):
        raise DamagedFileError("a set of categories has another length.")
    categorical = ~leaf & nodes["is_categorical"].astype(bool)
    if (nodes["bitset_idx"][categorical] >= n_sets).any():
        raise DamagedFileError("a tree asks for a set of categories that is not there.")
    made = CheckedPredictor.__new__(CheckedPredictor)
    made.__dict__.update(state, nodes=nodes)
    return made


#: Losses of boosting, and the parameters that they are made with again.
LOSSES = {
    "HalfSquaredError": (),
    "AbsoluteError": (),
    "PinballLoss": ("quantile",),
    "HalfPoissonLoss": (),
    "HalfGammaLoss": (),
    "HalfBinomialLoss": (),
}


def _of_loss(loss: Any) -> Any:
    names = LOSSES.get(type(loss).__name__)
    if names is None:
        raise TypeError(f"the loss {type(loss).__name__} cannot be saved.")
    return {"name": type(loss).__name__, **{name: getattr(loss.closs, name) for name in names}}


def _loss(state: dict[str, Any]) -> Any:
    from sklearn._loss import loss as losses

    name = state.pop("name")
    if name not in LOSSES or set(state) != set(LOSSES[name]):
        raise DamagedFileError(f"the file names an unknown loss {name!r:.40}.")
    return getattr(losses, name)(**state)


def _random_state(state: Any) -> Any:
    made = np.random.RandomState(0)
    _check_place(state[2], 624)
    made.set_state(state)
    return made


def _check_place(place: Any, most: int) -> None:
    """Refuse a place beyond the numbers that a generator has ready, which nobody else checks."""
    if type(place) is not int or not 0 <= place <= most:
        raise DamagedFileError("a generator of random numbers is nowhere in its sequence.")


def _generator(state: Any) -> Any:
    if state["bit_generator"] not in ("PCG64", "MT19937", "PCG64DXSM", "SFC64", "Philox"):
        raise DamagedFileError("the file names an unknown generator of random numbers.")
    if state["bit_generator"] == "MT19937":
        _check_place(state["state"]["pos"], 624)
    _check_place(state.get("buffer_pos", 0), 4)
    bits = getattr(np.random, state["bit_generator"])(0)
    bits.state = state
    return np.random.Generator(bits)


def _of_sparse(matrix: Any) -> Any:
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
    return {**parts, "shape": tuple(matrix.shape), "array": type(matrix).__name__ == "csr_array"}


def _sparse(state: Any) -> Any:
    """A sparse matrix whose indices were looked at: compiled code trusts them."""
    from scipy import sparse

    kind = sparse.csr_array if state["array"] else sparse.csr_matrix
    made = kind((state["data"], state["indices"], state["indptr"]), shape=state["shape"])
    made.check_format(full_check=True)
    return made


def _without(name: str) -> Callable[[Any], Any]:
    """All attributes but one, which is made again."""
    return lambda made: {key: value for key, value in vars(made).items() if key != name}


def _spread(state: Any) -> Any:
    """The space of a model that has a spread, which is read from the model again."""
    kind: Any = class_named("PredictionAndSpread")
    family = state.pop("family")
    return kind(**state, doubt=family(state["opened"].core))


def _of_spread(space: Any) -> Any:
    """The family in place of what it has read."""
    return {**_without("doubt")(space), "family": type(space.doubt)}


def _isotonic(state: Any) -> Any:
    """Steps that rise, joined up again."""
    kind: Any = class_named("sklearn:IsotonicRegression")
    made = kind()
    made.__dict__.update(state)
    if "X_thresholds_" in state:
        made._build_f(made.X_thresholds_, made.y_thresholds_)
    return made


def _tree(state: Any) -> Any:
    (tree,) = unpacked(state)
    return tree


SPECIAL = {
    "Tree": Special(lambda tree: packed([tree]), _tree),
    "TreePredictor": Special(_of_predictor, _predictor),
    "loss": Special(_of_loss, _loss),
    "RandomState": Special(lambda rng: rng.get_state(), _random_state),
    "Generator": Special(lambda rng: dict(rng.bit_generator.state), _generator),
    "sparse": Special(_of_sparse, _sparse),
    "PredictionAndSpread": Special(_of_spread, _spread),
    "IsotonicRegression": Special(_without("f_"), _isotonic),
}


#: Threads or processes that a file may ask for.
MOST_JOBS = 1024


def flaw(made: Any) -> str | None:
    """Why an object must not be used: compiled code would read or write where nothing is.

    None if it may be. What such code is given is checked where it is ours (``BoostedTrees``,
    ``CheckedPredictor``), and here where it is scikit-learn's.
    """
    jobs = vars(made).get("n_jobs")
    if type(jobs) is int and abs(jobs) > MOST_JOBS:
        return f"{jobs} jobs are asked for, and there may be {MOST_JOBS}"
    check = FLAWS.get(name_of_class(type(made)))
    return None if check is None else check(vars(made))


def _flaw_of_tree(own: dict[str, Any]) -> str | None:
    if "tree_" not in own:
        return None
    n, tree = own.get("n_features_in_"), own["tree_"]
    if type(tree) is not Tree or type(n) is not int or tree.n_features > n:
        return "a tree asks for columns that rows need not have"
    return None


def _flaw_of_boosting(own: dict[str, Any]) -> str | None:
    if "estimators_" not in own:
        return None
    first: Any = own.get("init_")
    trees, n = own["estimators_"], own.get("n_features_in_")
    one = own.get("n_trees_per_iteration_") == 1 and type(n) is int
    constant_first = name_of_class(type(first)) == "sklearn:DummyRegressor"
    starts = first == "zero" if isinstance(first, str) else constant_first and first.n_outputs_ == 1
    if not one or not starts or getattr(trees, "shape", ())[1:] != (1,):
        return "boosting that does not start from a constant, or has several trees at a time"
    for tree in trees.ravel():
        known = name_of_class(type(tree)) == "sklearn:DecisionTreeRegressor"
        if not known or type(vars(tree).get("tree_")) is not Tree or tree.tree_.n_features > n:
            return "boosting by something else than trees of its columns"
    return None


def _flaw_of_one_hot(own: dict[str, Any]) -> str | None:
    if "categories_" not in own:
        return None
    if own.get("_infrequent_enabled"):
        return "categories that are merged because they are rare (min_frequency, max_categories)"
    dropped = own.get("_drop_idx_after_grouping")
    n = [len(each) for each in own["categories_"]]
    if dropped is not None:
        n = [size - (drop is not None) for size, drop in zip(n, dropped, strict=True)]
    return None if n == own.get("_n_features_outs") else "as many columns as there are categories"


FLAWS: dict[str | None, Callable[[dict[str, Any]], str | None]] = {
    "sklearn:DecisionTreeRegressor": _flaw_of_tree,
    "sklearn:ExtraTreeRegressor": _flaw_of_tree,
    "sklearn:GradientBoostingRegressor": _flaw_of_boosting,
    "sklearn:OneHotEncoder": _flaw_of_one_hot,
}

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

from calliper._trees import check_nodes, packed, unpacked
from calliper.exceptions import DamagedFileError

#: Classes of the library, by their modules.
OWN = {
    "calliper._calibrated": "Calibrated CalibratedOnStored",
    "calliper._per_row": "PerRow",
    "calliper._shared_rows": "RowSketch",
    "calliper._targets": "MultiTargetRegressor",
    "calliper.calibrators._base": "FitRows",
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
    "calliper.embedding._embedding": "Embedding",
    "calliper.embedding._encoding": "ColumnEncoder Levels Numbers Times",
    "calliper.embedding._error_model": "ErrorModel Expected",
    "calliper.embedding._learnt_error": "WithErrorModel",
    "calliper.embedding._left_out": "LeftOut",
    "calliper.embedding._network": "Layer Network",
    "calliper.embedding._spaces": "Contributions InputsAndPrediction Mapped OneInput Prediction",
    "calliper.embedding._spread": "PredictionAndSpread",
    "calliper.embedding._walk": "BoostedTrees",
    "calliper.kernels._cell_bag": "BagCells CellMean",
    "calliper.kernels._cells": "CellSearch Cells Placed PlacedCells",
    "calliper.kernels._criterion": "LeaveFoldOutRBF LeaveTwoOutTuned RescaledInformation Tuning",
    "calliper.kernels._graded": "BagGraded GradedKNN GradedMean",
    "calliper.kernels._knn": "BagKNN KNN LeaveTwoOutKNN",
    "calliper.kernels._learnt": "LearntBag LearntKernel LearntMetric Mahalanobis",
    "calliper.kernels._nearest": "NearestFamily NearestMean NearestMeansWithout NearestQuantile",
    "calliper.kernels._rbf": "BagRBF LeaveTwoOutRBF RBF RadialExponents RadialFamily "
    "RadialMeansWithout RadialQuantile SmoothedRadial",
    "calliper.kernels._search": "NeighborSearch",
    "calliper.kernels._shared": "SharedNeighbors",
    "calliper.kernels._statistic": "MeanStatistic QuantileStatistic",
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
    "RAW": "calliper.embedding._embedding",
    "UNTOUCHED": "calliper.embedding._embedding",
    "BOOSTERS": "calliper.embedding._boosters",
    "DEVIATION": "calliper.embedding._spread",
    "MEMBERS": "calliper.embedding._spread",
    "NO_SPREAD": "calliper.embedding._spread",
    "STAGES": "calliper.embedding._spread",
    "TREE_STAGES": "calliper.embedding._spread",
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
    return f"{value.__module__}:{value.__qualname__}"


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
    return kind.__name__ if kind.__name__ in SPECIAL else None


def _columns(nodes: Any) -> dict[str, Any]:
    """The fields of records, each an array."""
    return {name: np.ascontiguousarray(nodes[name]) for name in nodes.dtype.names}


def _of_predictor(predictor: Any) -> dict[str, Any]:
    state = dict(vars(predictor))
    return {**state, "nodes": _columns(state["nodes"])}


def _predictor(state: dict[str, Any]) -> Any:
    """A tree of histogram boosting, whose compiled code trusts its nodes."""
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    columns = state["nodes"]
    nodes = np.zeros(len(columns["left"]), dtype=PREDICTOR_RECORD_DTYPE)
    for name in PREDICTOR_RECORD_DTYPE.names:
        nodes[name] = columns[name]
    leaf = nodes["is_leaf"].astype(bool)
    if not len(nodes) or (~leaf & (nodes["left"] == 0)).any():
        raise DamagedFileError("a tree has an inner node without children.")
    left = np.where(leaf, 0, nodes["left"])
    check_nodes(left, nodes["right"], nodes["feature_idx"], 2**31)
    n_sets = min(len(state["raw_left_cat_bitsets"]), len(state["binned_left_cat_bitsets"]))
    categorical = ~leaf & nodes["is_categorical"].astype(bool)
    if (nodes["bitset_idx"][categorical] >= n_sets).any():
        raise DamagedFileError("a tree asks for a set of categories that is not there.")
    made = TreePredictor.__new__(TreePredictor)
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
    made.set_state(state)
    return made


def _generator(state: Any) -> Any:
    if state["bit_generator"] not in ("PCG64", "MT19937", "PCG64DXSM", "SFC64", "Philox"):
        raise DamagedFileError("the file names an unknown generator of random numbers.")
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


def _of_spread(space: Any) -> Any:
    return {name: value for name, value in vars(space).items() if name != "read"}


def _spread(state: Any) -> Any:
    """The space of a model that has a spread, which is read from the model again."""
    kind: Any = class_named("PredictionAndSpread")
    return kind(**state, read=state["source"].read(state["opened"].core))


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
}


def check_made(made: Any) -> None:
    """Refuse trees that ask for columns which whoever owns them does not check."""
    n = getattr(made, "n_features_in_", None)
    if n is None:
        return
    kind = type(made).__name__
    if kind in ("DecisionTreeRegressor", "ExtraTreeRegressor"):
        asked = made.tree_.n_features
    elif kind in ("RandomForestRegressor", "ExtraTreesRegressor"):
        asked = max(member.n_features_in_ for member in made.estimators_)
    elif kind == "GradientBoostingRegressor":
        asked = max(tree.n_features_in_ for tree in made.estimators_.ravel())
    elif kind.startswith("HistGradientBoosting"):
        nodes = [tree.nodes for stage in made._predictors for tree in stage]
        asked = 1 + max(int(each["feature_idx"].max()) for each in nodes)
    elif kind == "ErrorModel":
        asked = max(tree.n_features for tree in made._trees.grove.trees)
    else:
        return
    if asked > n:
        raise DamagedFileError(f"a tree of {kind} asks for {asked} columns; there are {n}.")

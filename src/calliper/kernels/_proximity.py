"""Forest proximity: the share of trees in which two rows lie in the same leaf."""

from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.kernels._kernel import Known, Rng
from calliper.kernels._weighted import WeightedKernel, Weights

#: Why one tree is refused.
ONE_TREE = (
    "with one tree, points are either in one leaf or strangers. Use an ensemble, or LoCart, which "
    "calibrates in the leaves of one tree."
)


class ForestProximity(WeightedKernel, BaseEstimator):  # type: ignore[misc]
    """K(x, x') = the share of trees in which x and x' lie in one leaf (Breiman's proximity).

    The trees were grown to predict targets, so inputs that do not matter for the prediction do not
    matter for nearness, and neither do units. For a point that shares no leaf with any other, all
    others count equally. Like the model, the forest must not be trained on the calibration rows.

    Parameters
    ----------
    forest : fitted ensemble of trees with ``apply``, optional
        A random forest, extra trees, or scikit-learn's ``GradientBoostingRegressor``; features
        are then the inputs that it takes, unscaled, as ``ConformalRegressor`` passes them unless
        ``embed`` is a map of yours. Without a forest, they are the numbers of the leaves:
        ``ConformalRegressor(forest, FullRescaled(ForestProximity()), embed=forest.apply)``.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from calliper import FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1500, 5))
    >>> y = X[:, 0] + X[:, 0] * rng.normal(size=1500)
    >>> forest = RandomForestRegressor(min_samples_leaf=20, random_state=0).fit(X[:1000], y[:1000])
    >>> errors = abs(y[1000:] - forest.predict(X[1000:]))
    >>> method = FullRescaled(ForestProximity(forest)).fit(X[1000:], errors)
    >>> method.predict_radius([[0.1, 0.5, 0.5, 0.5, 0.5], [0.9, 0.5, 0.5, 0.5, 0.5]]).round(1)
    array([0.2, 1.4])
    """

    def __init__(self, forest: Any = None) -> None:
        self.forest = forest

    @property
    def takes_inputs(self) -> bool:  # type: ignore[override]
        """Whether features are raw inputs rather than points in a space with distances."""
        return self.forest is not None

    def __sklearn_clone__(self) -> Self:
        # A clone of the forest would be untrained, and this kernel is made of its trained leaves.
        return type(self)(self.forest)

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> Self:
        """The kernel itself, after checking its forest."""
        forest = self.forest
        if forest is None:
            return self
        if not hasattr(forest, "apply"):
            raise TypeError(
                f"ForestProximity takes a fitted ensemble of trees that has apply, such as "
                f"RandomForestRegressor, ExtraTreesRegressor or GradientBoostingRegressor; got "
                f"{forest!r}."
            )
        check_is_fitted(forest)
        n_trees = np.size(forest.estimators_) if hasattr(forest, "estimators_") else 1
        if n_trees < 2:
            raise CalliperError(f"{forest!r} has 1 tree; {ONE_TREE}")
        return self

    def weights(self, Z: FloatArray) -> "SharedLeaves":
        return SharedLeaves(self, Z)


class SharedLeaves(Weights):
    """The number of trees in which two rows lie in one leaf: sums of whole numbers are exact.

    Leaves are columns of a sparse matrix, so no temporary has an entry for each pair and tree.
    """

    def __init__(self, kernel: ForestProximity, Z: FloatArray) -> None:
        self.kernel, leaves = kernel, leaf_numbers(kernel, Z)
        self.columns = OneHotEncoder(handle_unknown="ignore", dtype=np.float64).fit(leaves)
        self.own = self.columns.transform(leaves)
        self.by_leaf = self.own.T.tocsr()

    def to(self, Z: FloatArray) -> FloatArray:
        """(m, N) numbers of leaves that new rows share with the points."""
        leaves, n_trees = leaf_numbers(self.kernel, Z), self.columns.n_features_in_
        if leaves.shape[1] != n_trees:
            raise CalliperError(
                f"the new rows have leaves in {leaves.shape[1]} trees, the calibration rows in "
                f"{n_trees}: apply the same forest to both."
            )
        return np.asarray((self.columns.transform(leaves) @ self.by_leaf).toarray())

    def among(self, rows: slice) -> tuple[FloatArray, FloatArray]:
        """(rows, N) numbers of leaves that points share with the others."""
        shared = np.asarray((self.own[rows] @ self.by_leaf).toarray())
        np.fill_diagonal(shared[:, rows], 0.0)
        return shared, np.zeros(len(shared))


def leaf_numbers(kernel: ForestProximity, Z: FloatArray) -> IntArray:
    """(m, trees) the leaf of every row in every tree."""
    if kernel.forest is not None:
        n_inputs = getattr(kernel.forest, "n_features_in_", Z.shape[1])
        if Z.shape[1] != n_inputs:
            raise CalliperError(
                f"the forest of ForestProximity takes {n_inputs} inputs, and the features have "
                f"{Z.shape[1]} columns: pass its inputs as they are, or leaf numbers "
                f"(embed=forest.apply) with ForestProximity()."
            )
        forest = kernel.forest
        if "feature_names_in_" in getattr(forest, "__dict__", {}):
            forest = copy(forest)  # its warning can be silenced only in all threads
            del forest.feature_names_in_
        return np.asarray(forest.apply(Z)).reshape(len(Z), -1).astype(np.intp)
    leaves = Z.astype(np.intp)
    if (leaves != Z).any() or (leaves < 0).any():
        raise CalliperError(
            f"ForestProximity() takes leaf numbers, integers of at least 0; got "
            f"{Z[(leaves != Z) | (leaves < 0)][0]:g}. Pass embed=forest.apply, or use "
            f"ForestProximity(forest) on the forest's own inputs."
        )
    if leaves.shape[1] < 2:
        raise CalliperError(f"ForestProximity needs the leaves of 2 trees or more; {ONE_TREE}")
    return leaves

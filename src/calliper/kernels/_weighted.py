"""Weights that are given outright, and the nearness that a forest sees.

Weights are plain non-negative numbers that do not depend on scores, and need no shift: numbers of
common leaves, radial weights with a floor. Where a row of them is zero throughout, all others
count equally, which is the limit of a floor that vanishes.

Without two points. With w_k the weights of a row, A = Σ w_k s_k and B = Σ w_k, leaving point i out
gives

    ŝ_{N+1,i} = (A − w_i s_i) / (B − w_i),

and the mean of all but i where nothing else has weight. Where a point carries nearly all of a
sum, the rest is summed without it rather than subtracted from.

Over the bag. With A_i = Σ_{j≠i} k_ij s_j, B_i = Σ_{j≠i} k_ij over the calibration points, k_i the
weight of the new point at point i and its own scale ŝ = Σ k_j s_j / Σ k_j, the threshold of point
i solves

    k_i t² + A_i t = s_i ŝ (B_i + k_i).

Where B_i = k_i = 0, all other members of the bag count equally, and likewise for the new point.
All N thresholds of a row are solved and one is selected, O(N) a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from calliper._blocks import Scratch, map_row_blocks
from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.kernels._arithmetic import DOMINANT, signed_root
from calliper.kernels._kernel import Bag, Kernel, Known, LeaveTwoOut, Rng
from calliper.quantile import Shares, row_thresholds
from calliper.rows import Rows

#: Why one tree is refused.
ONE_TREE = (
    "with one tree, points are either in one leaf or strangers. Use an ensemble, or LoCart, which "
    "calibrates in the leaves of one tree."
)


class Weights(ABC):
    """Weights of N fixed points: what a kernel writes whose weights do not depend on scores.

    Attributes
    ----------
    points : (N, d)
    """

    points: FloatArray

    @abstractmethod
    def to(self, Z: FloatArray) -> FloatArray:
        """(m, N) weights of the points in the means of new rows."""

    def among(self, rows: slice) -> FloatArray:
        """(rows, N) weights of the points in the means of some of them, themselves left out."""
        weight = self.to(self.points[rows])
        own = np.arange(rows.start, rows.stop)
        weight[own - rows.start, own] = 0.0
        return weight

    def places(self, Z: FloatArray) -> FloatArray | None:
        """Where rows count as being, (m, d): all is the same for rows in one place.

        None if that would hardly happen.
        """
        return None


class WeightedKernel(Kernel, ABC):
    """A kernel that is known by its weights."""

    @abstractmethod
    def weights(self, Z: FloatArray) -> Weights:
        """The weights of calibration points."""

    def leave_two_out(
        self, rows: Rows, *, offset: float, rng: Rng, Z_train: Known = None
    ) -> LeaveTwoOutWeighted:
        """Scales of the Jackknife+ for N ≥ 2 calibration points."""
        return LeaveTwoOutWeighted(self.weights(rows.Z), rows.magnitudes, offset)

    def bag(self, rows: Rows, *, statistic: str, offset: float) -> BagWeighted:
        """Thresholds of full conformal."""
        refuse_quantile(statistic)
        return BagWeighted(self.weights(rows.Z), rows.magnitudes, rows.scores, offset)

    def mean(self, Z: FloatArray, magnitudes: FloatArray) -> WeightedMean:
        """The weighted mean."""
        return WeightedMean(self.weights(Z).to, magnitudes)


class ForestProximity(WeightedKernel, BaseEstimator):  # type: ignore[misc]
    """K(x, x') = the share of trees in which x and x' lie in one leaf (Breiman's proximity).

    The trees were grown to tell targets apart, so inputs that do not matter for the prediction do
    not matter for nearness, and no unit or scaling does. A point that shares no leaf with any
    other has all others as neighbours, equally: the limit of a vanishing weight added to all.

    The forest must be trained on other data than the calibration points, as the model is.

    Parameters
    ----------
    forest : fitted ensemble of trees with ``apply``, optional
        A random forest, extra trees, or scikit-learn's ``GradientBoostingRegressor``; the
        features are then the inputs that the forest takes, unscaled: ``ConformalRegressor``
        passes its inputs on as they are, unless ``embed`` is a map of yours. Without a forest, the
        features are the numbers of the leaves, one column a tree, as ``forest.apply`` gives them:
        ``ConformalRegressor(forest, FullRescaled(ForestProximity()), embed=forest.apply)``.

    Examples
    --------
    >>> import numpy as np
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
    def takes_inputs(self) -> bool:
        """Whether features are raw inputs, and not places whose distances say who is near."""
        return self.forest is not None

    def __sklearn_clone__(self) -> Self:
        # A clone of the forest would be untrained, and this kernel is made of its trained leaves.
        return type(self)(self.forest)

    def resolved(self, Z_train: Known = None, rng: Rng | None = None) -> ForestProximity:
        """The kernel itself, with its forest checked; rows are seen only later."""
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

    def weights(self, Z: FloatArray) -> SharedLeaves:
        """Numbers of common leaves."""
        return SharedLeaves(self, Z)


def refuse_quantile(statistic: str) -> None:
    """Say that a quantile needs neighbours that count equally."""
    if statistic == "quantile":
        raise CalliperError("statistic='quantile' takes the K nearest: use kernel=KNN(...).")


class SharedLeaves(Weights):
    """The number of trees in which two rows lie in one leaf.

    Counts, not shares: means are ratios, and sums of whole numbers are exact. Leaves are columns
    of a sparse matrix with a one for each tree in each row, so a block of counts is one sparse
    product, and no temporary has an entry for each pair and tree.
    """

    def __init__(self, kernel: ForestProximity, Z: FloatArray) -> None:
        self.kernel = kernel
        leaves = leaf_numbers(kernel, Z)
        self.n_trees, self.largest = leaves.shape[1], int(leaves.max())
        codes = self._codes(leaves)
        self.columns = np.unique(codes)
        self.own = self._one_hot(codes)
        self.by_leaf = self.own.T.tocsr()

    def to(self, Z: FloatArray) -> FloatArray:
        """(m, N) numbers of leaves that new rows share with the points."""
        leaves = leaf_numbers(self.kernel, Z)
        if leaves.shape[1] != self.n_trees:
            raise CalliperError(
                f"the new rows have leaves in {leaves.shape[1]} trees, the calibration points in "
                f"{self.n_trees}: apply the same forest to both."
            )
        return np.asarray((self._one_hot(self._codes(leaves)) @ self.by_leaf).toarray())

    def among(self, rows: slice) -> FloatArray:
        """(rows, N) numbers of leaves that points share with the others."""
        shared = np.asarray((self.own[rows] @ self.by_leaf).toarray())
        own = np.arange(rows.start, rows.stop)
        shared[own - rows.start, own] = 0.0
        return shared

    def _codes(self, leaves: IntArray) -> IntArray:
        """One number for each pair of tree and leaf; leaves beyond the known ones have −1."""
        codes = leaves + np.arange(self.n_trees) * (self.largest + 1)
        return np.where(leaves <= self.largest, codes, -1)

    def _one_hot(self, codes: IntArray) -> Any:
        column = np.searchsorted(self.columns, codes)
        known = self.columns[np.minimum(column, len(self.columns) - 1)] == codes
        starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        shape = len(codes), len(self.columns)
        return sparse.csr_array((np.ones(known.sum()), column[known], starts), shape=shape)


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
        leaves = np.asarray(_nameless(kernel.forest).apply(Z))
        return leaves.reshape(len(Z), -1).astype(np.intp)
    leaves = Z.astype(np.intp)
    if (leaves != Z).any() or (leaves < 0).any():
        raise CalliperError(
            f"ForestProximity() takes numbers of leaves, whole and not negative; got "
            f"{Z[(leaves != Z) | (leaves < 0)][0]:g}. Pass embed=forest.apply, or use "
            f"ForestProximity(forest) on the forest's own inputs."
        )
    if leaves.shape[1] < 2:
        raise CalliperError(f"ForestProximity needs the leaves of 2 trees or more; {ONE_TREE}")
    return leaves


def _nameless(forest: Any) -> Any:
    """The forest without names of its columns, which are an array by now, in its order.

    To silence the warning about that would silence it in all threads.
    """
    if "feature_names_in_" not in getattr(forest, "__dict__", {}):
        return forest
    bare = copy(forest)
    del bare.feature_names_in_
    return bare


class LeaveTwoOutWeighted(LeaveTwoOut):
    """Weighted means with one or two points left out."""

    def __init__(self, weights: Weights, magnitudes: FloatArray, offset: float) -> None:
        self.weights, self.magnitudes, self.offset = weights, magnitudes, offset
        n = len(magnitudes)
        self.mean_of_rest = sums_without(magnitudes, np.arange(n)) / (n - 1)
        total, weight = sums_of_others(weights, magnitudes)
        mean = np.divide(total, weight, out=self.mean_of_rest.copy(), where=weight > 0)
        self.without_one: FloatArray = mean + offset

    def without_each(self, Z: FloatArray) -> FloatArray:
        """(m, N) scales at new rows without each calibration point."""
        weight = self.weights.to(Z)
        weighted = weight * self.magnitudes
        total, total_weight = weighted.sum(axis=1), weight.sum(axis=1)
        rest, rest_weight = total[:, None] - weighted, total_weight[:, None] - weight
        heavy = weighted > DOMINANT * total[:, None]
        heavy |= weight > DOMINANT * total_weight[:, None]
        for row, point in zip(*np.nonzero(heavy), strict=True):
            rest[row, point] = np.delete(weighted[row], point).sum()
            rest_weight[row, point] = np.delete(weight[row], point).sum()
        fallback: FloatArray = np.broadcast_to(self.mean_of_rest, rest.shape).copy()
        np.divide(rest, rest_weight, out=fallback, where=rest_weight > 0)
        fallback += self.offset
        return fallback


class BagWeighted(Bag):
    """Thresholds t_i with given weights."""

    def __init__(
        self, weights: Weights, magnitudes: FloatArray, scores: FloatArray, offset: float
    ) -> None:
        self.weights, self.magnitudes, self.scores = weights, magnitudes, scores
        self.offset = offset
        self.total, self.weight = sums_of_others(weights, magnitudes)
        self.lonely = np.flatnonzero(self.weight == 0)
        self.mean_of_all = float(magnitudes.mean())
        self.sum_of_rest = sums_without(magnitudes, self.lonely)

    def calibration_scale(self, level: float) -> FloatArray:
        """Scales of the calibration points without the new one, (N,)."""
        n = len(self.scores)
        mean = self.total / np.where(self.weight > 0, self.weight, 1.0)
        mean[self.lonely] = self.sum_of_rest / max(1, n - 1)
        return np.asarray(mean + self.offset)

    def order_statistics(
        self, Z: FloatArray, levels: list[float], shares: Shares | None = None
    ) -> FloatArray:
        """For each row and level, the Q-th smallest threshold t_i, by weight if given: (m, L)."""
        places = self.weights.places(Z) if shares is None else None  # rows have their own weights
        if places is None:
            return self._selected(Z, levels, shares)
        distinct, place = np.unique(places, axis=0, return_inverse=True)
        return np.asarray(self._selected(distinct, levels, None)[place.ravel()])

    def _selected(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        scratch = Scratch()

        def select(rows: slice) -> FloatArray:
            own = shares and shares.of_rows(rows)
            return row_thresholds(self._thresholds(Z[rows], scratch), levels, own)

        return np.concatenate(map_row_blocks(select, len(Z), len(self.scores)))

    def thresholds(self, Z: FloatArray, level: float = 0.5, slope: float = 0.0) -> FloatArray:
        """All thresholds t_i of a few rows, (m, N); slope·t is added to all scales."""
        if slope == 0:
            return self._thresholds(Z, Scratch())
        entering, total, weight, scale = self._balance(Z)
        weight = weight + entering
        linear = total / weight + self.offset - slope * self.scores
        return signed_root(slope + entering / weight, linear, self.scores * scale[:, None])

    def _thresholds(self, Z: FloatArray, scratch: Scratch) -> FloatArray:
        """All thresholds of a few rows, in a buffer that the next call uses again."""
        entering, total, weight, scale = self._balance(Z)
        shape = entering.shape
        constant = np.add(weight, entering, out=scratch.array("constant", shape))
        if self.offset:
            total = total + self.offset * constant
        constant *= self.scores
        constant *= scale[:, None]
        # positive_root in few passes: in units of the largest score nothing overflows.
        root = np.multiply(entering, constant, out=scratch.array("root", shape))
        root *= 4
        root += np.square(total)
        np.sqrt(root, out=root)
        root += total
        vanishing = root == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            threshold: FloatArray = np.divide(constant, root, out=root)
        threshold *= 2
        if vanishing.any():
            zero = (constant[vanishing] == 0) & (entering[vanishing] > 0)
            threshold[vanishing] = np.where(zero, 0.0, np.inf)
        return threshold

    def _balance(self, Z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """k_i, A_i and B_i for each row and point, (m, N), and the scales of the rows, (m,).

        A and B are of shape (1, N) if no point is lonely, since they are the same for all rows.
        """
        entering = self.weights.to(Z)
        scale = mean_of(entering, self.magnitudes, self.mean_of_all) + self.offset
        if not len(self.lonely):
            return entering, self.total[None], self.weight[None], scale
        total = np.repeat(self.total[None], len(Z), axis=0)
        weight = np.repeat(self.weight[None], len(Z), axis=0)
        row, which = np.nonzero(entering[:, self.lonely] == 0)
        column = self.lonely[which]
        entering[row, column] = 1.0
        total[row, column], weight[row, column] = self.sum_of_rest[which], len(self.scores) - 1
        return entering, total, weight, scale


def totals(weight: FloatArray, magnitudes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted sums (m,) of the magnitudes, and sums (m,) of the weights.

    Row by row, so that a row has the same bits in any batch; a product would not give them.
    """
    return np.asarray((weight * magnitudes).sum(axis=1)), np.asarray(weight.sum(axis=1))


def sums_of_others(weights: Weights, magnitudes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A_i and B_i of every point, (N,)."""

    def add(rows: slice) -> FloatArray:
        weight = weights.among(rows)
        return np.stack(totals(weight, magnitudes))

    n = len(magnitudes)
    total, weight = np.concatenate(map_row_blocks(add, n, n), axis=1)
    return total, weight


def sums_without(magnitudes: FloatArray, points: IntArray) -> FloatArray:
    """Sum of all but each of some points; sums before and after each, so nothing cancels."""
    padded = np.concatenate([[0.0], magnitudes, [0.0]])
    before, after = np.cumsum(padded)[:-2], np.cumsum(padded[::-1])[::-1][2:]
    return np.asarray((before + after)[points])


def mean_of(weight: FloatArray, magnitudes: FloatArray, fallback: float) -> FloatArray:
    """Weighted means of rows, (m,); the fallback where a row has no weight at all."""
    total, total_weight = totals(weight, magnitudes)
    mean = np.full(len(weight), fallback)
    np.divide(total, total_weight, out=mean, where=total_weight > 0)
    return mean


class WeightedMean:
    """Weighted mean at new rows; of all points where a row has no weight at all."""

    def __init__(self, weigh: Callable[[FloatArray], FloatArray], magnitudes: FloatArray) -> None:
        self.weigh, self.magnitudes = weigh, magnitudes

    def predict(self, Z: FloatArray) -> FloatArray:
        """The mean for each row, (m,)."""
        fallback = float(self.magnitudes.mean())

        def average(rows: slice) -> FloatArray:
            return mean_of(self.weigh(Z[rows]), self.magnitudes, fallback)

        return np.concatenate(map_row_blocks(average, len(Z), len(self.magnitudes)))

"""Weights that need no shift: shares of common leaves, and radial weights with a floor.

Both are plain non-negative numbers that do not depend on scores. Where a row of them is zero
throughout, all others count equally, which is the limit of a floor that vanishes.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError
from calliper.kernels import ForestProximity
from calliper.scale._weights import RadialExponents

#: Why one tree is refused.
ONE_TREE = (
    "with one tree, points are either in one leaf or strangers. Use an ensemble, or LoCart, which "
    "calibrates in the leaves of one tree."
)


class Similarity(Protocol):
    """Weights of N fixed points."""

    def to(self, Z: FloatArray) -> FloatArray:
        """(m, N) weights of the points in the means of new rows."""

    def among(self, rows: slice) -> FloatArray:
        """(rows, N) weights of the points in the means of some of them, themselves left out."""


class SharedLeaves:
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
        place = np.searchsorted(self.columns, codes)
        known = self.columns[np.minimum(place, len(self.columns) - 1)] == codes
        starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        shape = len(codes), len(self.columns)
        return sparse.csr_array((np.ones(known.sum()), place[known], starts), shape=shape)


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
        with warnings.catch_warnings():  # columns of a frame are an array by now, in its order
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            leaves = np.asarray(kernel.forest.apply(Z))
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


class SmoothedRadial:
    """Radial weights with a floor: exp(−d²/2l²) + b/N, so all points together weigh b more."""

    def __init__(self, exponents: RadialExponents, smoothing: float) -> None:
        self.exponents, self.floor = exponents, smoothing / len(exponents.points)

    def to(self, Z: FloatArray) -> FloatArray:
        """(m, N) weights of the points in the means of new rows."""
        exponent, constant = self.exponents.to(Z)
        exponent -= constant[:, None]
        weight = np.exp(exponent, out=exponent)
        weight += self.floor
        return weight

    def among(self, rows: slice) -> FloatArray:
        """(rows, N) weights of the points in the means of some of them, themselves left out."""
        weight = self.to(self.exponents.points[rows])
        own = np.arange(rows.start, rows.stop)
        weight[own - rows.start, own] = 0.0
        return weight

"""The trees that learn errors: boosted ones of many models at a time, and a forest's quantiles.

Errors are learnt from a few hundred to a few thousand rows by trees of depth three. Each target has
six models: one for each fold, which it must not see, and one for all rows. To save overhead rows
are binned once, each round draws rows and columns once, and the trees of all models grow together.

A model is Friedman's (2001, doi:10.1214/aos/1013203451): trees are fitted to the gradient of the
loss, splits lower the squared error most, and a leaf adds what minimises the loss there: the mean
of what is left, or for a quantile that quantile of it.

The forest (Meinshausen 2006, "Quantile regression forests", JMLR 7) estimates the distribution of
an error at x by the errors that share the leaf of x, averaged over trees. Each leaf keeps the
shares of its errors up to bounds e_1 < … < e_B:

    F(e_b | x) = mean over trees of #{errors ≤ e_b in the leaf of x} / #{errors in the leaf of x},

and quantiles are interpolated between bounds. Left-out values come out of bag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from calliper._blocks import row_slices
from calliper._kept import Array, Inline, Keeps
from calliper._trees import LEAF, PlainTrees
from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError

Flags = NDArray[np.bool]
Single = NDArray[np.float32]
Bins = tuple[NDArray[np.uint8], Single]
#: Depth of a boosted tree, and its inner nodes.
DEPTH = 3
N_NODES = 2**DEPTH - 1
#: The most bins of a column.
N_BINS = 64
#: The most rows that a boosted tree is grown on.
MOST_A_TREE = 2_000
#: The part of the columns that a split is chosen from.
PART_OF_COLUMNS = 1 / 3
#: Up to 300 rows go down all boosted trees together; more go down one tree at a time, in blocks.
FEW_AT_ONCE, MANY_AT_ONCE = 300, 1 << 16
#: Rows that go down the trees of the forest together.
FOREST_AT_ONCE = 1_000
#: Of a tree of the forest: the most rows, the largest depth and the fewest errors of a leaf.
FOREST_ROWS, FOREST_DEPTH, FOREST_LEAF = 1_000, 12, 5
#: Bounds are these quantiles of all errors.
TAIL_LEVELS = (0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4)
BOUND_LEVELS = (*TAIL_LEVELS, 0.5, *(1 - level for level in reversed(TAIL_LEVELS)))
#: Shares are kept in 255ths.
PARTS_OF_ONE = 255


@dataclass(frozen=True, eq=False)
class BoostedTrees(Keeps):
    """Boosted trees of a few models as plain arrays: T trees, one model after another.

    A row goes right where feature > threshold, from node k to 2k + 2, else left, to 2k + 1. A
    branch that ends early goes on with infinite thresholds. ``counts`` are trees of each model,
    ``constants`` what it starts from, ``steps`` what each leaf adds, from left to right.
    """

    counts: Annotated[IntArray, Array("int32", ("m",), least=1, becomes="int64")]
    constants: Annotated[FloatArray, Array("float64", ("m",))]
    features: Annotated[IntArray, Array("int32", ("t", N_NODES), least=0, becomes="int64")]
    thresholds: Annotated[Single, Array("float64", ("t", N_NODES), finite=False, becomes="float32")]
    steps: Annotated[FloatArray, Array("float64", ("t", N_NODES + 1))]

    def check_kept(self) -> None:
        with np.errstate(over="ignore"):
            most = np.abs(self.steps).max(axis=1).sum() + np.abs(self.constants).max(initial=0)
        if self.counts.sum() != len(self.steps) or not np.isfinite(most):
            raise CalliperError("boosted models lack trees, or their sums are not finite.")

    @classmethod
    def joined(cls, parts: Sequence[BoostedTrees]) -> BoostedTrees:
        """The models of all parts, in their order."""
        return cls(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))

    def predict(self, rows: FloatArray) -> FloatArray:
        """(models, m) what each model predicts of finite rows, which trees see in float32."""
        single = rows.astype(np.float32)
        ask = self._one_by_one if len(rows) > FEW_AT_ONCE else self._all_at_once
        blocks = row_slices(len(rows), MANY_AT_ONCE)
        return np.concatenate([ask(single[block]) for block in blocks], axis=1)

    def _all_at_once(self, rows: Single) -> FloatArray:
        """All trees one level at a time, for few rows: there is no loop over trees."""
        cells, starts = rows.ravel(), np.arange(len(rows)) * rows.shape[1]
        n_trees, n_nodes = self.features.shape
        trees = np.arange(n_trees)[:, None]
        node = np.zeros((n_trees, len(rows)), dtype=np.intp)
        for _ in range(DEPTH):
            asked = n_nodes * trees + node
            right = cells.take(starts + self.features.take(asked)) > self.thresholds.take(asked)
            node = 2 * node + 1 + right
        steps = self.steps.take((n_nodes + 1) * trees + node - n_nodes)
        first = np.cumsum(self.counts) - self.counts
        steps[first] += self.constants[:, None]
        return np.array([np.cumsum(part, axis=0)[-1] for part in np.split(steps, first[1:])])

    def _one_by_one(self, rows: Single) -> FloatArray:
        """One tree at a time, for many rows: columns are compared with numbers."""
        columns = np.ascontiguousarray(rows.T)
        total = np.repeat(self.constants[:, None], len(rows), axis=1)
        models = np.repeat(np.arange(len(self.counts)), self.counts)
        trees = zip(models, self.features, self.thresholds, self.steps, strict=True)
        for model, features, thresholds, steps in trees:
            total[model] += steps.take(_leaves(columns, features, thresholds))
        return total


@dataclass(frozen=True, eq=False)
class ErrorForest(Keeps):
    """A forest's distributions of errors as plain arrays: l leaves, b increasing bounds.

    The values of ``trees`` are numbers of leaves; ``shares``, in 255ths, of errors up to a bound.
    """

    trees: Annotated[PlainTrees, Inline(PlainTrees)]
    bounds: Annotated[FloatArray, Array("float64", ("b",), least=-1e307, most=1e307)]
    shares: Annotated[NDArray[np.uint8], Array("uint8", ("l", "b"))]

    def check_kept(self) -> None:
        leaf = self.trees.value
        fits = 0 < len(self.bounds) <= len(BOUND_LEVELS) and (np.diff(self.bounds) > 0).all()
        if not fits or not ((leaf >= 0) & (leaf < len(self.shares))).all():
            raise CalliperError("an error forest lacks the shares of some leaves, or its bounds.")

    @classmethod
    def grown(
        cls, rows: FloatArray, errors: FloatArray, n_trees: int, seed: int
    ) -> tuple[ErrorForest, FloatArray]:
        """The forest, and (n, b) shares at each row by trees without it, or of all if none is."""
        from sklearn.ensemble import RandomForestRegressor

        n, d = rows.shape
        single = _clipped(rows)
        forest = RandomForestRegressor(
            n_trees,
            max_depth=FOREST_DEPTH,
            min_samples_leaf=FOREST_LEAF,
            max_features=max(1, int(PART_OF_COLUMNS * d)),
            max_samples=min(n, FOREST_ROWS),
            random_state=seed,
        )
        with np.errstate(over="ignore", invalid="ignore"):  # sums of rows, to see if all are finite
            forest.fit(single, errors / np.abs(errors).max())
        bounds = np.unique(np.quantile(errors, BOUND_LEVELS))
        beyond = np.searchsorted(bounds, errors)  # how many bounds each error exceeds
        width = len(bounds) + 1
        total, n_unseen, shares = np.zeros((n, len(bounds))), np.zeros((n, 1)), []
        trees = [each.tree_ for each in forest.estimators_]
        for tree, drawn in zip(trees, forest.estimators_samples_, strict=True):
            leaf = tree.apply(single)
            cells = leaf[drawn] * width + beyond[drawn]
            upto = np.bincount(cells, minlength=tree.node_count * width).reshape(-1, width)
            upto = upto.cumsum(axis=1)
            share = np.rint(PARTS_OF_ONE * upto[:, :-1] / np.maximum(upto[:, -1:], 1))
            shares.append(share[tree.children_left < 0].astype(np.uint8))
            unseen = np.bincount(drawn, minlength=n) == 0
            total[unseen] += share[leaf[unseen]]
            n_unseen[unseen] += 1
        of_all = (beyond[:, None] <= np.arange(len(bounds))).mean(axis=0)
        mean = total / (PARTS_OF_ONE * np.maximum(n_unseen, 1))
        plain = PlainTrees.of(trees, d)
        number = np.maximum(np.cumsum(plain.left == LEAF) - 1.0, 0.0)
        whole = cls(replace(plain, value=number), bounds, np.concatenate(shares))
        return whole, np.where(n_unseen > 0, mean, of_all)

    def predict(self, rows: FloatArray) -> FloatArray:
        """(m, b) shares of errors up to each bound at finite rows, which trees see in float32."""
        single, shares = _clipped(rows), self.shares.astype(np.uint32)
        total = [
            sum(shares.take(leaf, axis=0) for leaf in self.trees.values(single[block]).astype(int))
            for block in row_slices(len(rows), FOREST_AT_ONCE)
        ]
        return np.asarray(np.concatenate(total) / (PARTS_OF_ONE * len(self.trees.sizes)))

    def quantile(self, shares: FloatArray, level: float) -> FloatArray:
        """(m,) the error that a share of ``level`` does not exceed, read off between bounds."""
        last = len(self.bounds) - 1
        above = np.count_nonzero(shares < level, axis=1).clip(min(1, last), last)
        under, rows = np.maximum(above - 1, 0), np.arange(len(shares))
        low, high = shares[rows, under], shares[rows, above]
        part = np.divide(level - low, high - low, out=(low < level).astype(float), where=high > low)
        start = self.bounds[under]
        return np.asarray(start + np.clip(part, 0.0, 1.0) * (self.bounds[above] - start))


def binned(rows: FloatArray) -> Bins:
    """(n, d) the bin of each cell, and (d, N_BINS) what cells beyond a bin exceed.

    Bins hold about equally many rows, or one value each where there are few of them.
    """
    single = rows.astype(np.float32).astype(np.float64)
    numbers = np.empty(single.shape, dtype=np.uint8)
    edges = np.full((single.shape[1], N_BINS), np.inf, dtype=np.float32)
    inner = np.arange(1, N_BINS) / N_BINS
    for j, column in enumerate(single.T):
        between = np.unique(column)[:-1]
        if len(between) >= N_BINS:
            between = np.unique(np.quantile(column, inner, method="lower"))
        edges[j, : len(between)] = between
        numbers[:, j] = np.searchsorted(between, column)
    return numbers, edges


class Boosting:
    """Models of several targets, (k, n), that grow together, each without one fold, or of all rows.

    They learn the quantile ``reach``, or the mean, from rows as ``binned`` gives them, in folds
    (n,) from 0 to f − 1. ``rate`` is how much of a tree is added, ``part`` that of the rows drawn
    for each, ``fewest`` the fewest rows of a leaf; ``seed`` draws rows and columns.
    """

    def __init__(
        self,
        rows: Bins,
        targets: FloatArray,
        folds: IntArray,
        *,
        reach: float | None = None,
        rate: float = 0.1,
        part: float = 0.5,
        fewest: int = 10,
        seed: Any = 0,
    ) -> None:
        k, n = targets.shape
        self.bins, self.edges = rows
        self.columns = np.ascontiguousarray(self.bins.T)
        self.folds, self.fewest, self.reach, self.rate = folds, fewest, reach, rate
        self.n_drawn = min(max(int(part * n), 1), MOST_A_TREE)
        self.n_models = int(folds.max()) + 2
        # The last model of a target is trained on all rows.
        self.known = np.tile(np.arange(self.n_models)[:, None] != folds, (k, 1))
        self.targets = np.repeat(targets, self.n_models, axis=0)
        self.random = np.random.default_rng(seed)
        of_models = zip(self.targets, self.known, strict=True)
        self.constants = np.array([self._constant(target[of]) for target, of in of_models])
        self.said = np.repeat(self.constants[:, None], n, axis=1)
        self.trees: list[tuple[IntArray, Single, FloatArray]] = []

    @property
    def left_out(self) -> FloatArray:
        """(k, n) predictions of each row by the models trained without it."""
        said = self.said.reshape(-1, self.n_models, len(self.folds))
        return np.asarray(said[:, self.folds, np.arange(len(self.folds))])

    def whole(self, n_trees: int | None = None) -> BoostedTrees:
        """The models trained on all rows, one a target, with their first trees or all."""
        models = np.arange(self.n_models - 1, len(self.known), self.n_models)
        features, thresholds, steps = (
            np.concatenate(np.stack(part, axis=1)[models])
            for part in zip(*self.trees[:n_trees], strict=True)
        )
        counts = np.full(len(models), len(self.trees[:n_trees]))
        return BoostedTrees(counts, self.constants[models], features, thresholds, steps)

    def grow(self) -> None:
        """One tree more for every model."""
        drawn = self.random.permutation(len(self.folds))[: self.n_drawn]
        models, which = np.nonzero(self.known[:, drawn])
        rows = drawn[which]
        left = self.targets[models, rows] - self.said[models, rows]
        slope = left if self.reach is None else np.where(left > 0, self.reach, self.reach - 1.0)
        questions: list[tuple[IntArray, IntArray]] = []
        node = models
        for _ in range(DEPTH):
            feature, at = self._questions(node, rows, slope, len(self.known) << len(questions))
            node = 2 * node + (self.bins[rows, feature[node]] > at[node])
            questions.append((feature, at))
        asked, beyond = (
            np.concatenate([part.reshape(len(self.known), -1) for part in parts], axis=1)
            for parts in zip(*questions, strict=True)
        )
        steps = self.rate * self._steps(node, left)
        self.trees.append((asked, self.edges[asked, beyond], steps))
        for said, features, bins, step in zip(self.said, asked, beyond, steps, strict=True):
            said += step.take(_leaves(self.columns, features, bins))

    def _questions(
        self, node: IntArray, rows: IntArray, slope: FloatArray, n_nodes: int
    ) -> tuple[IntArray, IntArray]:
        """Feature and bin of the best question at each node; if none, a bin that no row exceeds."""
        d = len(self.edges)
        columns = self.random.permutation(d)[: max(1, int(PART_OF_COLUMNS * d))]
        c = len(columns)
        cells = (node[:, None] * c + np.arange(c)) * N_BINS
        cells += self.bins[rows[:, None], columns]
        flat, shape = cells.ravel(), (n_nodes, c, N_BINS)
        count = np.bincount(flat, minlength=prod(shape)).reshape(shape).cumsum(axis=2)
        total = np.bincount(flat, np.repeat(slope, c), prod(shape)).reshape(shape).cumsum(axis=2)
        n, whole = count[:, :1, -1:], total[:, :, -1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = total**2 / count + (whole - total) ** 2 / (n - count)
        gain[(count < self.fewest) | (n - count < self.fewest)] = -np.inf
        gain = gain.reshape(n_nodes, -1)
        best = gain.argmax(axis=1)
        none = np.isneginf(gain[np.arange(n_nodes), best])
        return columns[best // N_BINS], np.where(none, N_BINS - 1, best % N_BINS)

    def _constant(self, targets: FloatArray) -> float:
        """What a model starts from: the mean of its targets, or their quantile."""
        if self.reach is None:
            return float(targets.mean())
        rank = max(int(np.ceil(self.reach * len(targets))), 1)
        return float(np.partition(targets, rank - 1)[rank - 1])

    def _steps(self, leaf: IntArray, left: FloatArray) -> FloatArray:
        """(models, leaves) the mean of what is left in each leaf, or its quantile; 0 if empty."""
        shape = (len(self.known), 2**DEPTH)
        count = np.bincount(leaf, minlength=shape[0] * shape[1])
        if self.reach is None:
            total = np.bincount(leaf, left, minlength=len(count))
            return np.divide(total, count, out=np.zeros(len(count)), where=count > 0).reshape(shape)
        order = np.lexsort((left, leaf))
        rank = np.maximum(np.ceil(self.reach * count).astype(np.intp), 1) - 1
        position = np.minimum(np.cumsum(count) - count + rank, len(left) - 1)
        return np.where(count > 0, left[order[position]], 0.0).reshape(shape)


def _leaves(columns: NDArray[Any], features: IntArray, beyond: NDArray[Any]) -> NDArray[np.int8]:
    """(n,) the leaf that each row comes to in one tree, from left to right."""
    top, *rest = (columns[j] > at for j, at in zip(features, beyond, strict=True))
    second = _picked(top, *rest[:2])
    third = _picked(top, _picked(second, *rest[2:4]), _picked(second, *rest[4:]))
    a, b, c = (each.view(np.int8) for each in (top, second, third))
    return 4 * a + 2 * b + c


def _clipped(rows: FloatArray) -> Single:
    most = np.finfo(np.float32).max
    return np.clip(rows, -most, most).astype(np.float32)


def _picked(right: Flags, if_not: Flags, if_so: Flags) -> Flags:
    """``np.where(right, if_so, if_not)``, several times faster."""
    return if_not ^ (right & (if_not ^ if_so))

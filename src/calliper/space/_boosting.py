"""The trees that learn errors: boosted ones of many models at a time, and a forest's quantiles.

Errors are learnt from a few hundred to a few thousand rows, by trees of three questions, and for
each target by six models: one for each fifth of the rows that it must not see, one for all. Trained
one after another, nearly all of the time goes into starting the next small tree. Here rows are put
into bins once, each round draws rows and columns once, and the trees of all models take the next
step together, as a few operations on whole arrays.

A model is Friedman's (2001, doi:10.1214/aos/1013203451): trees are fitted to the gradient of the
loss, splits lower the squared error most, and a leaf adds what minimises the loss there: the mean
of what is left, or for a quantile that quantile of it.

The forest (Meinshausen 2006, "Quantile regression forests", JMLR 7) takes the distribution of an
error at x for that of errors seen, each by the part of the trees in which it shares the leaf of x.
Of every leaf the shares up to a few bounds e_1 < … < e_B are kept:

    F(e_b | x) = mean over trees of #{errors ≤ e_b in the leaf of x} / #{errors in the leaf of x},

and a quantile is read off between bounds. Trees that were grown without a row say its left-out
values, so that nothing is grown twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from calliper._blocks import row_slices
from calliper._kept import Array, Field, Keeps
from calliper._types import FloatArray, IntArray
from calliper.exceptions import CalliperError

#: Questions that a tree asks of a row.
DEPTH = 3
#: Bins of a column, at most.
N_BINS = 64
#: Rows that one tree is grown on, at most.
MOST_A_TREE = 2_000
#: Columns that a question is chosen from.
PART_OF_COLUMNS = 1 / 3
#: Up to so many rows go down all boosted trees at once, or down all trees of the forest.
FEW_AT_ONCE, FEW_IN_FOREST = 300, 5_000
#: Of more rows, so many go down one tree together.
MANY_AT_ONCE = 1 << 16
#: Of a tree of the forest: rows and questions, at most, and errors of a leaf, at least.
FOREST_ROWS, FOREST_DEPTH, FOREST_LEAF = 1_000, 12, 5
#: Bounds are these quantiles of all errors.
TAIL_LEVELS = (0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4)
BOUND_LEVELS = (*TAIL_LEVELS, 0.5, *(1 - level for level in reversed(TAIL_LEVELS)))
#: Shares are kept as so many parts of one.
PARTS_OF_ONE = 255


@dataclass(frozen=True, eq=False)
class BoostedTrees(Keeps):
    """Boosted trees of a few models as plain arrays: T trees, one model after another.

    Every tree asks ``DEPTH`` questions of a row, whether feature > threshold, and goes right if so;
    a branch that ends early asks what no number exceeds. After node k comes 2k + 1 (left) or 2k + 2
    (right).

    Attributes
    ----------
    counts, constants : (models,) trees of each model, and what it starts from
    features, thresholds : (T, 2^DEPTH − 1) of each node
    steps : (T, 2^DEPTH) what each leaf adds, from left to right
    """

    counts: IntArray
    constants: FloatArray
    features: IntArray
    thresholds: FloatArray
    steps: FloatArray

    keeps: ClassVar[Mapping[str, Field]] = {
        "counts": Array("int32", ("m",), least=1, becomes="int64"),
        "constants": Array("float64", ("m",)),
        "features": Array("int32", ("t", 2**DEPTH - 1), least=0, becomes="int64"),
        "thresholds": Array("float64", ("t", 2**DEPTH - 1), finite=False),
        "steps": Array("float64", ("t", 2**DEPTH)),
    }

    @classmethod
    def again(cls, state: dict[str, Any]) -> BoostedTrees:
        """The trees, if there are as many as models have."""
        made = cls(**state)
        if made.counts.sum() != len(made.steps):
            raise CalliperError("boosted models do not have the number of trees that they declare.")
        return made

    @classmethod
    def joined(cls, parts: Sequence[BoostedTrees]) -> BoostedTrees:
        """The models of all parts, in their order."""
        names = ("counts", "constants", "features", "thresholds", "steps")
        return cls(*(np.concatenate([vars(part)[name] for part in parts]) for name in names))

    def predict(self, rows: FloatArray) -> FloatArray:
        """(models, m) what each model predicts of finite rows, which trees see in float32."""
        single = rows.astype(np.float32)
        ask = self._one_by_one if len(rows) > FEW_AT_ONCE else self._all_at_once
        blocks = row_slices(len(rows), MANY_AT_ONCE)
        return np.concatenate([ask(single[block]) for block in blocks], axis=1)

    def _all_at_once(self, rows: NDArray[np.float32]) -> FloatArray:
        """All trees a level at a time: for few rows, since a tree costs nothing by itself."""
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

    def _one_by_one(self, rows: NDArray[np.float32]) -> FloatArray:
        """A tree at a time: a column is compared with one number, which is quick for many rows."""
        columns = np.ascontiguousarray(rows.T)
        total = np.repeat(self.constants[:, None], len(rows), axis=1)
        models = np.repeat(np.arange(len(self.counts)), self.counts)
        trees = zip(models, self.features, _in_single(self.thresholds), self.steps, strict=True)
        for model, features, thresholds, steps in trees:
            total[model] += steps.take(_leaves(columns, features, thresholds))
        return total


@dataclass(frozen=True, eq=False)
class ErrorForest(Keeps):
    """A forest's distributions of errors as plain arrays: t trees, v nodes, l leaves, b bounds.

    A row goes right if feature > threshold. A leaf asks what all numbers exceed, and leads back to
    itself on the right; on the left stands the number of its shares.

    Attributes
    ----------
    roots : (t,) the first node of each tree
    features, thresholds : (v,) of each node
    after : (v, 2) the node on the left, and that on the right
    bounds : (b,) increasing
    shares : (l, b) of the errors of each leaf, those up to a bound, in 255ths
    """

    roots: IntArray
    features: IntArray
    thresholds: FloatArray
    after: IntArray
    bounds: FloatArray
    shares: NDArray[np.uint8]

    keeps: ClassVar[Mapping[str, Field]] = {
        "features": Array("int32", ("v",), least=0, becomes="int64"),
        "thresholds": Array("float64", ("v",), finite=False),
        "after": Array("int32", ("v", 2), least=0, most="v", becomes="int64"),
        "roots": Array("int32", ("t",), least=0, most="v", becomes="int64"),
        "bounds": Array("float64", ("b",)),
        "shares": Array("uint8", ("l", "b")),
    }

    @classmethod
    def again(cls, state: dict[str, Any]) -> ErrorForest:
        """The forest, if it has trees whose leaves have shares."""
        made = cls(**state)
        leaves = np.isneginf(made.thresholds)
        ends = np.flatnonzero(leaves)
        if not made.roots.size or not made.bounds.size or np.isnan(made.thresholds).any():
            raise CalliperError("a forest of errors has no trees, no bounds, or no thresholds.")
        shares, itself = made.after[ends].T
        if not len(ends) or shares.max() >= len(made.shares) or not np.array_equal(itself, ends):
            raise CalliperError("a forest of errors has leaves without values.")
        nodes = made.roots
        for _ in range(FOREST_DEPTH):
            nodes = np.unique(made.after[nodes[~leaves[nodes]]])
        if not leaves[nodes].all():
            raise CalliperError("a forest of errors has branches that do not end.")
        return made

    @classmethod
    def grown(
        cls, rows: FloatArray, errors: FloatArray, n_trees: int, seed: int
    ) -> tuple[ErrorForest, FloatArray]:
        """The forest, and (n, b) the shares at each row by trees that were grown without it.

        Where there is no such tree, they are those of all errors, which are not all zero.
        """
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
        total, n_unseen = np.zeros((n, len(bounds))), np.zeros(n)
        nodes: list[tuple[IntArray, FloatArray, IntArray]] = []
        shares, roots, n_nodes, n_leaves = [], [], 0, 0
        for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            made = tree.tree_
            ends = made.children_left < 0
            number = np.cumsum(ends) - 1
            leaf = number[made.apply(single)]
            counts = np.bincount(leaf[drawn] * width + beyond[drawn], minlength=ends.sum() * width)
            upto = counts.reshape(-1, width).cumsum(axis=1)
            share = np.rint(PARTS_OF_ONE * upto[:, :-1] / upto[:, -1:]).astype(np.uint8)
            unseen = np.bincount(drawn, minlength=n) == 0
            total[unseen] += share[leaf[unseen]]
            n_unseen += unseen
            own = n_nodes + np.arange(len(ends))
            ahead = (
                np.where(ends, n_leaves + number, n_nodes + made.children_left),
                np.where(ends, own, n_nodes + made.children_right),
            )
            threshold = np.where(ends, -np.inf, made.threshold)
            nodes.append((np.maximum(made.feature, 0), threshold, np.stack(ahead, axis=1)))
            roots.append(n_nodes)
            shares.append(share)
            n_nodes, n_leaves = n_nodes + len(ends), n_leaves + len(share)
        of_all = (beyond[:, None] <= np.arange(len(bounds))).mean(axis=0)
        mean = total / (PARTS_OF_ONE * np.maximum(n_unseen, 1)[:, None])
        features, thresholds, after = (np.concatenate(part) for part in zip(*nodes, strict=True))
        whole = cls(np.array(roots), features, thresholds, after, bounds, np.concatenate(shares))
        return whole, np.where(n_unseen[:, None] > 0, mean, of_all)

    def predict(self, rows: FloatArray) -> FloatArray:
        """(m, b) shares of errors up to each bound at finite rows, which trees see in float32."""
        single = _clipped(rows)
        ask, step = self._all_at_once, FEW_AT_ONCE
        if len(rows) > FEW_IN_FOREST:
            ask, step = self._one_by_one, MANY_AT_ONCE
        return np.concatenate([ask(single[block]) for block in row_slices(len(rows), step)])

    def quantile(self, shares: FloatArray, level: float) -> FloatArray:
        """(m,) the error that a share of ``level`` does not exceed, read off between bounds."""
        last = len(self.bounds) - 1
        above = np.count_nonzero(shares < level, axis=1).clip(min(1, last), last)
        under, rows = np.maximum(above - 1, 0), np.arange(len(shares))
        low, high = shares[rows, under], shares[rows, above]
        part = np.divide(level - low, high - low, out=(low < level).astype(float), where=high > low)
        start = self.bounds[under]
        return np.asarray(start + np.clip(part, 0.0, 1.0) * (self.bounds[above] - start))

    def _all_at_once(self, rows: NDArray[np.float32]) -> FloatArray:
        """All trees a level at a time: for few rows."""
        cells, starts = rows.ravel(), (np.arange(len(rows)) * rows.shape[1])[:, None]
        node = np.repeat(self.roots[None], len(rows), axis=0)
        for _ in range(FOREST_DEPTH):
            right = cells.take(self.features.take(node) + starts) > self.thresholds.take(node)
            node = self.after.take(2 * node + right)
        total = self.shares.take(self.after.take(2 * node), axis=0).sum(axis=1, dtype=np.uint32)
        return np.asarray(total / (PARTS_OF_ONE * len(self.roots)))

    def _one_by_one(self, rows: NDArray[np.float32]) -> FloatArray:
        """A tree at a time, and every question of it to all rows: quick for many of them.

        The shares of several bounds are added as one number of 64 bits, of which each has a part
        that the sum over all trees does not exceed.
        """
        columns = np.ascontiguousarray(rows.T)
        most, n_bounds = PARTS_OF_ONE * len(self.roots), len(self.bounds)
        kind = np.min_scalar_type(most)
        fill = -n_bounds % (8 // kind.itemsize)
        packed = np.pad(self.shares.astype(kind), ((0, 0), (0, fill))).view(np.uint64)
        total = np.zeros((len(rows), packed.shape[1]), dtype=np.uint64)
        features, thresholds = self.features.tolist(), _in_single(self.thresholds).tolist()
        after, ends = self.after.tolist(), np.isneginf(self.thresholds).tolist()

        def leaves(node: int) -> list[int]:
            """The leaves below a node, from left to right."""
            left, right = after[node]
            return [left] if ends[node] else leaves(left) + leaves(right)

        def reached(node: int, numbers: Iterator[Any], small: np.dtype[Any]) -> Any:
            """Which of the leaves below a node each row comes to, by its number."""
            if ends[node]:
                return next(numbers)
            left, right = after[node]
            left, right = reached(left, numbers, small), reached(right, numbers, small)
            beyond = (columns[features[node]] > thresholds[node]).view(np.uint8)
            return _picked(np.negative(beyond, dtype=small), left, right)

        for root in self.roots.tolist():
            below = leaves(root)
            small = np.min_scalar_type(len(below) - 1)
            leaf = reached(root, iter(np.arange(len(below), dtype=small)), small)
            total += packed[below].take(leaf, axis=0)
        return np.asarray(total.view(kind)[:, :n_bounds] / most)


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows as trees see them while they grow.

    Attributes
    ----------
    numbers : (n, d) the bin of each cell, counted from 0
    edges : (d, N_BINS) what a cell must exceed to be beyond bin b; infinite after the last
    """

    numbers: NDArray[np.uint8]
    edges: FloatArray

    @classmethod
    def of(cls, rows: FloatArray) -> Bins:
        """Bins of about equally many rows; a value of its own each, where there are few."""
        single = rows.astype(np.float32).astype(np.float64)
        numbers = np.empty(single.shape, dtype=np.uint8)
        edges = np.full((single.shape[1], N_BINS), np.inf)
        inner = np.arange(1, N_BINS) / N_BINS
        for j, column in enumerate(single.T):
            values = np.unique(column)
            if len(values) > N_BINS:
                values = np.unique(np.quantile(column, inner, method="lower"))
                between = values
            else:
                between = values[:-1]
            edges[j, : len(between)] = between
            numbers[:, j] = np.searchsorted(between, column)
        return cls(numbers, edges)


class Boosting:
    """Models of several targets that grow together, each left out of a fold or of none.

    Parameters
    ----------
    rows : of all models
    targets : (k, n) what is learnt
    folds : (n,) the fold of each row, from 0 to f − 1
    reach : (k,) which quantile each target's models learn; None for the mean of all
    rate : how much of a tree is added
    part : of the rows that each tree is grown on, drawn anew
    fewest : rows of a leaf, at least
    seed : draws rows and columns
    """

    def __init__(
        self,
        rows: Bins,
        targets: FloatArray,
        folds: IntArray,
        *,
        reach: FloatArray | None = None,
        rate: float = 0.1,
        part: float = 0.5,
        fewest: int = 10,
        seed: Any = 0,
    ) -> None:
        k, n = targets.shape
        self.columns = np.ascontiguousarray(rows.numbers.T)
        self.rows, self.folds, self.rate, self.fewest = rows, folds, rate, fewest
        self.n_drawn = min(max(int(part * n), 1), MOST_A_TREE)
        self.n_models = int(folds.max()) + 2
        known = np.arange(self.n_models)[:, None] != folds  # the last model knows all rows
        self.known = np.tile(known, (k, 1))
        self.targets = np.repeat(targets, self.n_models, axis=0)
        self.reach = None if reach is None else np.repeat(reach, self.n_models)
        self.random = np.random.default_rng(seed)
        self.constants = np.array(
            [
                target[of].mean() if reach is None else _quantile(target[of], self.reach[model])  # type: ignore[index]
                for model, (target, of) in enumerate(zip(self.targets, self.known, strict=True))
            ]
        )
        self.said = np.repeat(self.constants[:, None], n, axis=1)
        self.trees: list[tuple[IntArray, FloatArray, FloatArray]] = []

    @property
    def left_out(self) -> FloatArray:
        """(k, n) what is said of each row by the models that do not know it."""
        n = len(self.folds)
        said = self.said.reshape(-1, self.n_models, n)
        return np.asarray(said[:, self.folds, np.arange(n)])

    def whole(self, n_trees: int | None = None) -> BoostedTrees:
        """The models that know all rows, one a target, with their first trees or all."""
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
        slope = left
        if self.reach is not None:
            slope = np.where(left > 0, self.reach[models], self.reach[models] - 1.0)
        questions: list[tuple[IntArray, IntArray]] = []
        node = models
        for _ in range(DEPTH):
            feature, at = self._questions(node, rows, slope, len(self.known) << len(questions))
            right = self.rows.numbers[rows, feature[node]] > at[node]
            node = 2 * node + right
            questions.append((feature, at))
        asked, beyond = (
            np.concatenate([part.reshape(len(self.known), -1) for part in parts], axis=1)
            for parts in zip(*questions, strict=True)
        )
        steps = self.rate * self._steps(node, left, models)
        self.trees.append((asked, self.rows.edges[asked, beyond], steps))
        for said, features, bins, step in zip(self.said, asked, beyond, steps, strict=True):
            said += step.take(_leaves(self.columns, features, bins))

    def _questions(
        self, node: IntArray, rows: IntArray, slope: FloatArray, n_nodes: int
    ) -> tuple[IntArray, IntArray]:
        """Feature and bin of the question at each node; the last bin, which none exceeds, if none.

        The question is the one, of a few columns, that lowers the squared error of the slopes most.
        """
        d = self.rows.edges.shape[0]
        columns = self.random.permutation(d)[: max(1, int(PART_OF_COLUMNS * d))]
        c = len(columns)
        cells = (node[:, None] * c + np.arange(c)) * N_BINS
        cells += self.rows.numbers[rows[:, None], columns]
        shape = (n_nodes, c, N_BINS)
        n_cells = n_nodes * c * N_BINS
        flat = cells.ravel()
        count = np.bincount(flat, minlength=n_cells).reshape(shape).cumsum(axis=2)
        total = np.bincount(flat, np.repeat(slope, c), n_cells).reshape(shape).cumsum(axis=2)
        n, whole = count[:, :1, -1:], total[:, :, -1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = total**2 / count + (whole - total) ** 2 / (n - count)
        gain[(count < self.fewest) | (n - count < self.fewest)] = -np.inf
        gain = gain.reshape(n_nodes, -1)
        best = gain.argmax(axis=1)
        none = np.isneginf(gain[np.arange(n_nodes), best])
        return columns[best // N_BINS], np.where(none, N_BINS - 1, best % N_BINS)

    def _steps(self, leaf: IntArray, left: FloatArray, models: IntArray) -> FloatArray:
        """(models, leaves) the mean of what is left in each leaf, or its quantile; 0 if empty."""
        shape = (len(self.known), 2**DEPTH)
        count = np.bincount(leaf, minlength=shape[0] * shape[1])
        if self.reach is None:
            total = np.bincount(leaf, left, minlength=len(count))
            return np.divide(total, count, out=np.zeros(len(count)), where=count > 0).reshape(shape)
        order = np.lexsort((left, leaf))
        reach = np.repeat(self.reach, shape[1])
        rank = np.maximum(np.ceil(reach * count).astype(np.intp), 1) - 1
        position = np.minimum(np.cumsum(count) - count + rank, len(left) - 1)
        return np.where(count > 0, left[order[position]], 0.0).reshape(shape)


def _leaves(columns: NDArray[Any], features: IntArray, beyond: NDArray[Any]) -> NDArray[np.int8]:
    """(n,) the leaf that each row comes to in one tree, from left to right."""
    top, *rest = (columns[j] > at for j, at in zip(features, beyond, strict=True))
    second = _picked(top, *rest[:2])
    third = _picked(top, _picked(second, *rest[2:4]), _picked(second, *rest[4:]))
    a, b, c = (each.view(np.int8) for each in (top, second, third))
    leaf: NDArray[np.int8] = 4 * a + 2 * b + c
    return leaf


def _clipped(rows: FloatArray) -> NDArray[np.float32]:
    """Rows in float32, all of them finite."""
    most = np.finfo(np.float32).max
    return np.clip(rows, -most, most).astype(np.float32)


def _in_single(thresholds: FloatArray) -> NDArray[np.float32]:
    """The largest numbers in float32 that are not above: the same ones in float32 exceed them."""
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)


def _picked(right: NDArray[Any], if_not: Any, if_so: Any) -> NDArray[Any]:
    """``np.where(right, if_so, if_not)``, several times faster: True is a number of ones alone."""
    picked: NDArray[Any] = if_not ^ (right & (if_not ^ if_so))
    return picked


def _quantile(values: FloatArray, reach: float) -> float:
    rank = max(int(np.ceil(reach * len(values))), 1)
    return float(np.partition(values, rank - 1)[rank - 1])

"""Forests, extra trees, bagging, votes: the members' mean is the prediction, beside their spread.

One pass over the members gives both: sums of d_b and d_b², d_b what member b predicts beyond the
first member. The spread divides by B − 1, so that a spread over the members that have not seen a
row can be compared with one over all. Where each member left rows out of its training (bags), the
members that have not seen a row predict it without any training: their mean and spread are those
of a model that has not seen the row.

Asking trees one after another costs some microseconds of Python each, which for a single row is
nearly all of the time. So the nodes of all trees also stand in one list (``JoinedTrees``), and few
rows go down all trees together, a level at a time, to the same leaves. Many rows are faster with
the library's own loop, which does not jump about in memory.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import validate_data

from calliper._trees import PlainTrees, tree_field
from calliper._types import FloatArray, IntArray
from calliper._validation import n_rows
from calliper.models._asking import PREDICTING, ModelFamily, learnt, predictions, predicts_as

#: With fewer predictions of members, threads cost more than they save.
FEWEST_IN_THREADS = 50_000
#: A spread takes at least two members.
FEWEST_MEMBERS = 2
#: Rows times trees up to which going down together is faster, and nodes up to which their list
#: takes little memory.
MOST_AT_ONCE, MOST_NODES = 3_000, 5_000_000
#: Trees whose leaves are counted to check that they were grown on some rows, and trees of which the
#: means of the bags are compared with targets; for one tree these may coincide by chance.
N_VERIFIED, N_BAGS = 3, 10
#: Part of the range of targets up to which two means are the same; what rounding may change.
SAME, NEARLY = 1e-6, 0.01


class Members(ModelFamily):
    """A mean of members. Trees are given rows that were checked once, other models check them.

    ``columns`` are those that each member is given; None for all of them, in order.
    """

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        self.columns = learnt(core, "estimators_features_")
        self.joined: JoinedTrees | None = None
        trees = [each.tree_ for each in core.estimators_] if _all_trees(core.estimators_) else []
        if trees and all(tree.n_outputs == tree.value.shape[-1] == 1 for tree in trees):
            self.joined, self.is_by_row = JoinedTrees(trees, self.columns), True  # in one order
            self.finite = "allow-nan" if get_tags(core).input_tags.allow_nan else True

    @classmethod
    def is_mine(cls, core: Any) -> bool:
        """Whether it predicts the plain mean of its members; other classes may not."""
        from sklearn import ensemble

        vote = ensemble.VotingRegressor
        forests = ensemble.RandomForestRegressor, ensemble.ExtraTreesRegressor
        if not predicts_as(core, vote, *forests, ensemble.BaggingRegressor):
            return False
        weighted = isinstance(core, vote) and core.weights is not None
        return not weighted and len(learnt(core, "estimators_") or ()) >= FEWEST_MEMBERS

    def rows(self, X: Any) -> Any:
        """Rows converted once for all members."""
        if self.joined is None and self.columns is None:
            return X
        kind, finite = (None, False) if self.joined is None else (np.float32, self.finite)
        return validate_data(
            self.core, X, reset=False, dtype=kind, accept_sparse="csr", ensure_all_finite=finite
        )

    def ask(self, number: int, rows: Any) -> FloatArray:
        """What a member predicts of converted rows, (m,)."""
        rows = rows if self.columns is None else rows[:, self.columns[number]]
        if self.joined is None:
            return predictions(self.core.estimators_[number], rows)
        return np.asarray(self.joined.trees[number].predict(rows)[:, 0])

    def measure(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Mean (m,) and standard deviation (1, m) of the members; O(m) memory a thread.

        A thread takes some of the rows, so that the values of a row are added in one order.
        """
        rows, n_members = self.rows(rows), len(self.core.estimators_)
        if self.joined and isinstance(rows, np.ndarray) and self.joined.takes(len(rows)):
            values = self.joined.nodes.values(rows)
            beyond = values - values[0]
            total, squares = (np.cumsum(each, axis=0)[-1] for each in (beyond, beyond * beyond))
            mean, spread = _moments(values[0], total, squares, n_members)
            return mean, spread[None]
        n, n_threads = n_rows(rows), 1
        if n * n_members >= FEWEST_IN_THREADS:
            n_threads = int(effective_n_jobs(learnt(self.core, "n_jobs")))
        parts = [rows]
        if n_threads > 1:
            parts = [_safe_indexing(rows, part) for part in np.array_split(np.arange(n), n_threads)]
        workers = Parallel(n_jobs=n_threads, require="sharedmem")
        found = workers(delayed(self._moments)(part) for part in parts)
        _, mean, spread = (np.concatenate(each) for each in zip(*found, strict=True))
        return mean, spread[None]

    def _moments(
        self, rows: Any, samples: Sequence[IntArray] | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """How many members judge each row, all or those without it in ``samples``; mean, spread."""
        first, total, squares, count = np.zeros((4, n_rows(rows)))
        for number in range(len(self.core.estimators_)):
            out: Any = slice(None)
            if samples is not None:
                out = np.flatnonzero(np.bincount(samples[number], minlength=len(first)) == 0)
            y_pred = self.ask(number, rows if samples is None else rows[out])
            first[out] = np.where(count[out] > 0, first[out], y_pred)
            beyond = y_pred - first[out]
            total[out] += beyond
            squares[out] += beyond * beyond
            count[out] += 1
        return count, *_moments(first, total, squares, np.maximum(count, 1))

    def describe(self) -> str:
        kind = "members" if self.joined is None else "trees"
        return f"spread of {len(self.core.estimators_)} {kind}"

    def unit(self) -> float | None:
        """Standard deviation of the targets that the trees were grown on; mean over the trees."""
        trees, variance = self.core.estimators_, ("squared_error", "friedman_mse")
        if self.joined is None or any(member.criterion not in variance for member in trees):
            return None
        return float(np.mean([root_deviation(tree) for tree in self.joined.trees]))

    def left_out(self, rows: Any, y: FloatArray) -> tuple[IntArray, FloatArray, FloatArray] | None:
        """Out of bag: means and spreads of the members that have not seen a row."""
        rows = self.rows(rows)
        samples = self.bags(rows, y)
        if samples is None:
            return None
        count, mean, spread = self._moments(rows, samples)
        kept = np.flatnonzero(count >= FEWEST_MEMBERS)
        return (kept, mean[kept], spread[None, kept]) if len(kept) else None

    def bags(self, rows: Any, y: FloatArray) -> list[IntArray] | None:
        """Which of these rows each member was trained on; None if they are not its rows."""
        samples = _samples(self.core, n_rows(rows))
        known = samples is not None and self._grown_on(rows, y, samples)
        return samples if known else None

    def _grown_on(self, rows: Any, y: FloatArray, samples: list[IntArray]) -> bool:
        """Whether each leaf holds as many of the rows in the bag as it did when it was grown.

        Where there is one target, its value must also be among the targets of these rows: so are
        means and medians, whatever the weights.
        """
        for number, member in enumerate(self.core.estimators_[:N_VERIFIED]):
            tree, bag = learnt(member, "tree_"), samples[number]
            if tree is None:
                return False
            leaves = tree.apply(rows if self.columns is None else rows[:, self.columns[number]])
            # Rows drawn twice count once where they were weighted, twice where they were repeated.
            grown = np.where(tree.children_left < 0, tree.n_node_samples, 0)
            drawn = (leaves[np.unique(bag)], leaves[bag])
            counts = (np.bincount(each, minlength=len(grown)) for each in drawn)
            if not any(np.array_equal(each, grown) for each in counts):
                return False
            if tree.n_outputs == y.ndim == 1 and learnt(member, "monotonic_cst") is None:
                low, high = np.full(len(grown), np.inf), np.full(len(grown), -np.inf)
                np.minimum.at(low, leaves[bag], y[bag])
                np.maximum.at(high, leaves[bag], y[bag])
                beyond = np.maximum(low - tree.value[:, 0, 0], tree.value[:, 0, 0] - high)
                if (beyond[grown > 0] > NEARLY * np.ptp(y)).any():
                    return False
        return True


def was_trained_on(core: Any, y: FloatArray) -> bool:
    """Whether the root of each of some trees holds the mean of these targets in its bag."""
    members = learnt(core, "estimators_")
    members = members[:N_BAGS] if isinstance(members, list) else []
    if len(members) < N_BAGS or not _all_trees(members) or not np.ptp(y):
        return False
    if members[0].tree_.n_node_samples[0] > len(y):
        return False  # drawing the bags again takes time
    samples = _samples(core, len(y)) or []
    means = np.array([y[bag].reshape(len(bag), -1).mean(axis=0) for bag in samples[:N_BAGS]])
    roots = np.array([member.tree_.value[0, :, 0] for member in members])
    return means.shape == roots.shape and bool((np.abs(means - roots) < SAME * np.ptp(y)).all())


class JoinedTrees:
    """Trees of scikit-learn, their nodes in one list that is made when few rows first come.

    ``trees`` are ``Tree`` of forests, or ``TreePredictor`` of histogram boosting that splits by no
    categories; ``columns`` are as in :class:`Members`.
    """

    def __init__(self, trees: Sequence[Any], columns: Sequence[Any] | None = None) -> None:
        self.trees, self.columns = trees, columns

    def __getstate__(self) -> dict[str, Any]:
        """Nodes can be gathered again."""
        return {"trees": self.trees, "columns": self.columns}

    def takes(self, n: int) -> bool:
        """Whether n rows are few enough for these trees."""
        return n * len(self.trees) <= MOST_AT_ONCE and self._n_nodes <= MOST_NODES

    @cached_property
    def _n_nodes(self) -> int:
        return sum(len(tree_field(tree, "feature")) for tree in self.trees)

    @cached_property
    def nodes(self) -> PlainTrees:
        return PlainTrees.of(self.trees, 0, self.columns)


def _moments(
    first: FloatArray, total: FloatArray, squares: FloatArray, count: Any
) -> tuple[FloatArray, FloatArray]:
    """Mean and spread from sums of differences to ``first``; ``count`` members, or (m,) counts."""
    mean = total / count
    variance = (squares - total * mean) / np.maximum(count - 1, 1)
    return first + mean, np.sqrt(np.maximum(variance, 0.0))


def root_deviation(tree: Any) -> float:
    """Standard deviation of the targets, where impurity is their variance."""
    return float(np.sqrt(tree.impurity[0]))


def _all_trees(members: Sequence[Any]) -> bool:
    """Whether all of them are trees that predict what is in the leaf."""
    from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

    if any(name in vars(member) for member in members for name in PREDICTING):
        return False
    trees = ExtraTreeRegressor, DecisionTreeRegressor
    return all(predicts_as(member, *trees) for member in {type(m): m for m in members}.values())


def _samples(core: Any, n: int) -> list[IntArray] | None:
    """Rows that each member was trained on; None if all of them saw all, or nobody kept count."""
    params = core.get_params(deep=False) if hasattr(core, "get_params") else {}
    if not params.get("bootstrap") and params.get("max_samples") in (None, 1.0):
        return None
    try:
        samples = [np.asarray(rows) for rows in core.estimators_samples_]
    except (AttributeError, ValueError):
        return None
    if len(samples) != len(core.estimators_) or any(rows.max(initial=-1) >= n for rows in samples):
        return None
    return samples

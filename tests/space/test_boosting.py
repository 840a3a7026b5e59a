"""Trees of many models grown in step, against one model at a time, row by row."""

import numpy as np
import pytest

from calliper.space import _boosting
from calliper.space._boosting import DEPTH, FEW_AT_ONCE, N_BINS, BoostedTrees, Boosting, binned

RNG = np.random.default_rng(0)
#: Numbers, ties, a column of two values and a constant one.
X = np.column_stack(
    [
        RNG.normal(size=90),
        RNG.integers(0, 4, size=90),
        RNG.uniform(size=90) > 0.7,
        np.ones(90),
        RNG.normal(size=90) ** 3,
    ]
).astype(float)
Y = RNG.integers(-20, 20, size=(2, 90)) + 30.0 * (X[:, 0] > 0)
FOLDS = RNG.permutation(90) % 3


def grown(reach, n_trees=6, **how):
    boosting = Boosting(binned(X), Y, FOLDS, reach=reach, fewest=4, seed=1, **how)
    for _ in range(n_trees):
        boosting.grow()
    return boosting


def slowly(reach, n_trees=6, part=0.5):
    """(targets, folds + 1, n) what each model says, by one model, tree and row after another."""
    edges = [np.unique(column.astype(np.float32))[:-1].astype(float) for column in X.T]
    for j, column in enumerate(X.T):
        if len(edges[j]) >= N_BINS:
            inner = np.arange(1, N_BINS) / N_BINS
            quantiles = np.quantile(column.astype(np.float32), inner, method="lower")
            edges[j] = np.unique(quantiles.astype(float))
    single = X.astype(np.float32).astype(float)
    random, draws = np.random.default_rng(1), []
    for _ in range(n_trees):
        rows = random.permutation(90)[: int(part * 90)]
        draws.append((rows, [random.permutation(5)[:1] for _ in range(DEPTH)]))
    said = np.empty((2, 4, 90))
    for target in range(2):
        for fold in range(4):
            known = fold != FOLDS
            said[target, fold] = _location(Y[target][known], reach)
            for rows, columns in draws:
                own = np.array([i for i in rows if known[i]])
                said[target, fold] += 0.1 * _tree(
                    single, Y[target] - said[target, fold], own, columns, edges, reach
                )
    return said


def _location(values, q):
    return (
        values.mean() if q is None else np.sort(values)[max(int(np.ceil(q * len(values))), 1) - 1]
    )


def _tree(single, left, own, columns, edges, q):
    """What one tree adds to each row."""
    slope = left if q is None else np.where(left > 0, q, q - 1)
    parts = [(own, np.arange(90))]
    for (column,) in columns:
        finer = []
        for rows, everyone in parts:
            best, cut = -np.inf, np.inf
            for edge in edges[column]:
                low = single[rows, column] <= edge
                a, b = slope[rows][low], slope[rows][~low]
                if min(len(a), len(b)) < 4:
                    continue
                gain = a.sum() ** 2 / len(a) + b.sum() ** 2 / len(b)
                if gain > best:
                    best, cut = gain, edge
            for side in (np.less_equal, np.greater):
                finer.append(
                    (
                        rows[side(single[rows, column], cut)],
                        everyone[side(single[everyone, column], cut)],
                    )
                )
        parts = finer
    added = np.zeros(90)
    for rows, everyone in parts:
        added[everyone] = _location(left[rows], q) if len(rows) else 0.0
    return added


@pytest.mark.parametrize("reach", [None, 0.75, 0.25])
def test_models_grown_in_step_are_those_grown_one_by_one(reach):
    found, expected = grown(reach), slowly(reach)
    np.testing.assert_allclose(found.said.reshape(2, 4, 90), expected, rtol=1e-9)
    rows = np.arange(90)
    np.testing.assert_allclose(found.left_out, expected[:, FOLDS, rows], rtol=1e-9)


@pytest.mark.parametrize("n_trees", [1, 4, None])
def test_trees_say_of_rows_what_they_said_while_they_grew(n_trees):
    """To the last bit, all trees at once or one by one; rows on thresholds included."""
    boosting = grown(None, 6)
    first = grown(None, n_trees or 6)
    trees = boosting.whole(n_trees)
    whole = first.said.reshape(2, 4, 90)[:, -1]
    np.testing.assert_array_equal(trees.predict(X), whole)
    many = np.tile(X, (1 + FEW_AT_ONCE // 90, 1))
    np.testing.assert_array_equal(trees.predict(many), np.tile(whole, len(many) // 90))
    between = BoostedTrees(**(vars(trees) | {"thresholds": trees.thresholds - 1e-12}))
    np.testing.assert_array_equal(
        between.predict(many), np.tile(between.predict(X), len(many) // 90)
    )
    joined = BoostedTrees.joined([trees, grown(0.75).whole()])
    np.testing.assert_array_equal(joined.predict(X)[:2], whole)


def test_no_model_hears_of_its_own_fold():
    """However wild the targets there are."""
    before = grown(None).said.reshape(2, 4, 90)
    wild = Y.copy()
    wild[:, FOLDS == 1] = 1e6
    boosting = Boosting(binned(X), wild, FOLDS, fewest=4, seed=1)
    for _ in range(6):
        boosting.grow()
    after = boosting.said.reshape(2, 4, 90)
    np.testing.assert_array_equal(after[:, 1], before[:, 1])
    assert (after[:, 0] != before[:, 0]).any()


def test_bins_tell_the_values_that_a_threshold_tells():
    rows = np.column_stack([RNG.normal(size=500), RNG.integers(0, N_BINS, size=500)])
    bins, edges = binned(rows)
    single = rows.astype(np.float32).astype(float)
    for j in range(2):
        for b in range(N_BINS):
            beyond = single[:, j] > edges[j, b]
            np.testing.assert_array_equal(beyond, bins[:, j] > b)
    assert len(np.unique(bins[:, 1])) == N_BINS
    assert np.bincount(bins[:, 0]).max() <= 2 * 500 / N_BINS


def test_a_tree_is_grown_on_so_many_rows_at_most(monkeypatch):
    monkeypatch.setattr(_boosting, "MOST_A_TREE", 20)
    assert grown(None, part=1.0).n_drawn == 20

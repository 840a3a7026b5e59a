"""A forest's quantiles of errors, against Meinshausen's definition row by row."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from calliper import CalliperError, ErrorModel
from calliper.space import _boosting
from calliper.space._boosting import ErrorForest

RNG = np.random.default_rng(0)
#: Numbers, ties, and a constant column; a third of the errors are zero.
X = np.column_stack([RNG.normal(size=120), RNG.integers(0, 4, size=120), np.ones(120)])
ERRORS = np.where(RNG.random(120) < 1 / 3, 0.0, RNG.normal(size=120) * (1 + (X[:, 0] > 0)))
NEW = RNG.normal(size=(40, 3))


def by_definition(rows, n_trees=8, seed=3):
    """Shares up to each bound: the mean over trees of those in the leaf; of unseen trees for X."""
    forest = RandomForestRegressor(
        n_trees,
        max_depth=12,
        min_samples_leaf=5,
        max_features=1,
        max_samples=120,
        random_state=seed,
    ).fit(X, ERRORS / np.abs(ERRORS).max())
    bounds = np.unique(np.quantile(ERRORS, _boosting.BOUND_LEVELS))
    found = []
    for i, row in enumerate(rows):
        trees = []
        for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            if rows is X and i in drawn:
                continue
            leaf = tree.apply(row[None])[0]
            mates = ERRORS[drawn][tree.apply(X[drawn]) == leaf]
            trees.append([(mates <= bound).mean() for bound in bounds])
        found.append(np.mean(trees, axis=0) if trees else [(ERRORS <= b).mean() for b in bounds])
    return bounds, np.array(found)


def test_shares_are_those_of_the_definition():
    forest, left_out = ErrorForest.grown(X, ERRORS, 8, 3)
    for rows, found in (
        (X, left_out),
        (NEW, forest.predict(NEW)),
        (NEW[:1], forest.predict(NEW[:1])),
    ):
        bounds, expected = by_definition(rows)
        np.testing.assert_array_equal(forest.bounds, bounds)
        np.testing.assert_allclose(found, expected, atol=0.5 / 255 + 1e-12)


@pytest.mark.parametrize("n_trees", [1, 300])
def test_many_rows_come_to_the_leaves_that_few_come_to(n_trees):
    """To the last bit, in any batch; sums over many trees do not overflow."""
    forest, _ = ErrorForest.grown(X, ERRORS, n_trees, 3)
    tiled = np.tile(NEW, (2 + _boosting.FOREST_AT_ONCE // len(NEW), 1))
    alone = np.concatenate([forest.predict(row[None]) for row in NEW])
    np.testing.assert_array_equal(forest.predict(tiled)[-len(NEW) :], alone)
    assert alone.max() <= 1 and (np.diff(alone, axis=1) >= 0).all()


def test_rows_beyond_single_precision_are_the_farthest_ones():
    forest, _ = ErrorForest.grown(X, ERRORS, 8, 3)
    far, farthest = (np.array([[-big, big, -big]]) for big in (1e38, 1e300))
    np.testing.assert_array_equal(forest.predict(farthest), forest.predict(far))


def test_quantiles_are_read_off_between_bounds():
    forest, _ = ErrorForest.grown(X, ERRORS, 2, 0)
    few = ErrorForest(**(vars(forest) | {"bounds": np.array([-1.0, 0.0, 2.0])}))
    shares = np.array([[0.1, 0.5, 1.0], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0], [0.0, 0.0, 0.2]])
    np.testing.assert_allclose(few.quantile(shares, 0.75), [1.0, 2.0, -1.0, 2.0])
    np.testing.assert_allclose(few.quantile(shares, 0.05), [-1.0, -1.0, -1.0, 0.5])


@pytest.mark.parametrize(
    "errors",
    [np.full(120, 2.0), np.r_[np.zeros(119), 1.0], 1e300 * ERRORS, np.r_[1e9, ERRORS[1:]]],
    ids=["all alike", "one is not zero", "gigantic", "one is wild"],
)
def test_odd_errors_and_rows(errors):
    rows = X * np.array([1e300, 1, 1])
    forest, left_out = ErrorForest.grown(rows, errors, 4, 0)
    with np.errstate(over="ignore"):
        for shares in (left_out, forest.predict(rows)):
            reached = forest.quantile(shares, 0.95)
            assert errors.min() <= reached.min() and reached.max() <= errors.max()


def test_the_forest_sees_noise_that_depends_on_an_input():
    rng = np.random.default_rng(1)
    rows = rng.uniform(size=(600, 2))
    errors = rng.normal(size=600) * np.where(rows[:, 0] > 0.5, 3.0, 0.3)
    model = ErrorModel(shift_trees=(20,), side_trees=30).fit(rows, errors)
    said = model.predict([[0.2, 0.5], [0.8, 0.5]])
    assert model.units_kept_ and said.up[1] > 3 * said.up[0] and said.down[1] > 3 * said.down[0]
    assert said.up[0] >= 0.15  # the average unit's part


def test_a_forest_of_a_file_must_have_shares_and_bounds():
    forest, _ = ErrorForest.grown(X, ERRORS, 2, 0)
    state = vars(forest)
    assert ErrorForest.again(state).predict(NEW).shape == (40, len(forest.bounds))
    for name, value in {"bounds": state["bounds"][:0], "shares": state["shares"][:1]}.items():
        with pytest.raises(CalliperError, match="an error forest lacks"):
            ErrorForest.again(state | {name: value})

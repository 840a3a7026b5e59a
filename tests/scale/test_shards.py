"""Points dealt to shards give the thresholds of all points on one machine, to the last bit."""

import math
import warnings

import numpy as np
import pytest

from calliper import KNN, CalliperError, FullRescaled
from calliper.exceptions import SmallCalibrationWarning, ZeroScaleWarning
from calliper.kernels import Grid
from calliper.scale import ShardedRescaled
from calliper.scale._shards import ShardedBag

LEVELS = [0.005, 0.1, 0.4, 0.5, 0.6, 0.9, 0.97]

quiet = pytest.mark.filterwarnings(
    "ignore::calliper.exceptions.ZeroScaleWarning",
    "ignore::calliper.exceptions.SmallCalibrationWarning",
)


def problem(kind, n=120, seed=0):
    """Features and scores of n calibration points, and features of new rows."""
    rng = np.random.default_rng(seed)
    d = {"line": 1, "wide": 20}.get(kind, 2)
    Z, new = rng.normal(size=(n, d)), rng.normal(size=(30, d))
    scores = rng.exponential(size=n) * (1 + Z[:, 0] ** 2)
    if kind == "lattice":
        Z, new = rng.integers(4, size=(n, d)) * 1.0, rng.integers(5, size=(30, d)) * 1.0
    if kind == "copies":
        Z, new = np.repeat(Z[: n // 6], 6, axis=0), np.vstack([Z[:10], new[:20]])
    if kind == "one place":
        Z = np.zeros((n, d))
    if kind in ("zeros", "lattice"):
        scores[rng.random(n) < 0.3] = 0.0
    if kind == "tied scores":
        scores = np.ceil(scores)
    return Z, scores, new


def dealt(Z, scores, n_shards, seed=0):
    """The same points in random order, in shards of random sizes, one of them empty."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(Z))
    cuts = np.sort(rng.integers(len(Z) + 1, size=n_shards - 1))
    cuts[1:2] = cuts[:1]
    return np.split(Z[order], cuts), np.split(scores[order], cuts)


@quiet
@pytest.mark.parametrize("n_shards", [1, 7])
@pytest.mark.parametrize(
    "kind", ["plain", "line", "wide", "lattice", "copies", "one place", "zeros", "tied scores"]
)
def test_equal_to_one_machine(kind, n_shards):
    Z, scores, new = problem(kind)
    for k, how in [
        (1, {}),
        (5, {"shrinkage": 0.3}),
        (10, {"statistic": "rms", "offset": 0.1, "shrinkage": 0.5}),
    ]:
        expected = FullRescaled(KNN(k), **how).fit(Z, scores).predict_radius(new, LEVELS)
        sharded = ShardedRescaled(KNN(k), **how).fit(*dealt(Z, scores, n_shards))
        np.testing.assert_array_equal(sharded.predict_radius(new, LEVELS), expected)


@quiet
@pytest.mark.parametrize("n", [2, 3, 12])
def test_few_points(n):
    Z, scores, new = problem("lattice", n)
    for k in (1, n - 1):
        expected = FullRescaled(KNN(k)).fit(Z, scores).predict_radius(new, 0.5)
        sharded = ShardedRescaled(KNN(k)).fit(np.split(Z, n), np.split(scores, n))
        np.testing.assert_array_equal(sharded.predict_radius(new, 0.5), expected)


def test_many_points_in_a_tree():
    """Enough for the engines of large sets, and for more than one round of rows."""
    rng = np.random.default_rng(1)
    Z, scores, new = (
        rng.normal(size=(3000, 3)),
        rng.exponential(size=3000),
        rng.normal(size=(5000, 3)),
    )
    expected = FullRescaled(KNN(10), shrinkage=0.2).fit(Z, scores).predict_radius(new, [0.5, 0.9])
    sharded = ShardedRescaled(KNN(10), shrinkage=0.2).fit(*dealt(Z, scores, 3))
    np.testing.assert_array_equal(sharded.predict_radius(new, [0.5, 0.9]), expected)


@quiet
def test_the_median_of_the_bag_decides_between_its_scores():
    """Where the radius lies between the two middle scores, shards look at all their points."""
    Z, scores, new = problem("plain", 30)
    asked = []
    rising = ShardedBag.rising_order_statistic
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ShardedBag, "rising_order_statistic", lambda *how: asked.append(how) or rising(*how)
        )
        sharded = ShardedRescaled(KNN(5), shrinkage=0.8).fit(*dealt(Z, scores, 4))
        found = sharded.predict_radius(new, LEVELS)
    assert asked
    expected = FullRescaled(KNN(5), shrinkage=0.8).fit(Z, scores).predict_radius(new, LEVELS)
    np.testing.assert_array_equal(found, expected)


@quiet
@pytest.mark.parametrize("kind", ["plain", "lattice"])
def test_every_rank_from_the_smallest_to_the_largest(kind):
    """Also where all that lies at the end of a window is entered; of all rows, and of each."""
    Z, scores, new = problem(kind, n=40)
    levels = list(np.arange(1, 41) / 41)
    expected = FullRescaled(KNN(4)).fit(Z, scores).predict_radius(new, levels)
    sharded = ShardedRescaled(KNN(4)).fit(*dealt(Z, scores, 3))
    np.testing.assert_array_equal(sharded.predict_radius(new, levels), expected)
    each = [sharded.predict_radius(row[None], levels) for row in new[:10]]
    np.testing.assert_array_equal(np.vstack(each), expected[:10])


@pytest.mark.parametrize("world", ["many", "largest"])
def test_a_row_that_moves_thresholds_by_many_ranks_or_the_largest_beyond_all(world):
    """It is near a third of all points, or near the one that is strangest without it."""
    rng = np.random.default_rng(3)
    if world == "many":
        Z, scores = rng.normal(size=(50, 10)), np.exp(3 * rng.normal(size=50))
        Z[:15] /= np.sqrt((Z[:15] ** 2).sum(axis=1, keepdims=True))
        Z[15:] += 20
    else:
        Z = np.array([[-0.1], [0.1], [0.2], [1.0], [2.05]])
        scores = np.array([0.01, 0.01, 0.01, 100.0, 30.0])
    new, levels = np.zeros((1, Z.shape[1])), list(np.arange(1, len(Z) + 1) / (len(Z) + 1))
    expected = FullRescaled(KNN(3)).fit(Z, scores).predict_radius(new, levels)
    sharded = ShardedRescaled(KNN(3)).fit(np.array_split(Z, 3), np.array_split(scores, 3))
    np.testing.assert_array_equal(sharded.predict_radius(new, levels), expected)


@quiet
def test_rising_thresholds_are_those_of_one_machine():
    for kind in ("plain", "tied scores", "half of them zero"):
        Z, scores, new = problem(kind)
        if kind == "half of them zero":
            scores[np.argsort(scores)[:60]] = 0.0
        whole, sharded = FullRescaled(KNN(5)).fit(Z, scores), ShardedRescaled(KNN(5))
        bag = sharded.fit(*dealt(Z, scores, 3)).bag_
        for level in LEVELS:
            expected = whole.bag_.rising_order_statistic(new, level, 0.7)
            found = bag.rising_order_statistic(new, level, 0.7)
            np.testing.assert_array_equal(found, expected)


def test_one_machine_does_not_depend_on_the_order_of_points():
    for kind in ("lattice", "copies", "one place"):
        Z, scores, new = problem(kind, seed=3)
        scores = scores + np.random.default_rng(4).exponential(size=len(scores))
        order = np.random.default_rng(5).permutation(len(Z))
        one, other = (FullRescaled(KNN(7)).fit(Z[o], scores[o]) for o in (slice(None), order))
        np.testing.assert_array_equal(one.predict_radius(new), other.predict_radius(new))


@pytest.mark.parametrize("low", [-1070, -300, -30, 0])
def test_exact_sums(low):
    """As Python's exactly rounded sum, but for one last digit; and the same in any parts."""
    rng = np.random.default_rng(6)
    values = np.ldexp(rng.random((50, 40)), rng.integers(low, low + 120, size=(50, 40)))
    values[rng.random(values.shape) < 0.2] = 0.0
    grid = Grid(values)
    digits = grid.sums(values, lambda digit: digit.sum(axis=1))
    found, exact = grid.rounded(digits), np.array([math.fsum(row) for row in values])
    assert (np.abs(found - exact) <= np.spacing(exact)).all()
    parts = [
        grid.sums(part, lambda digit: digit.sum(axis=1)) for part in np.split(values, 4, axis=1)
    ]
    np.testing.assert_array_equal(grid.rounded(sum(parts)), found)


def test_warnings_and_promise_are_those_of_one_machine():
    Z, scores, _ = problem("one place")
    with pytest.warns(ZeroScaleWarning) as sharded:
        method = ShardedRescaled(KNN(3)).fit(*dealt(Z, 0 * scores, 3))
    with pytest.warns(ZeroScaleWarning) as whole:
        expected = FullRescaled(KNN(3)).fit(Z, 0 * scores)
    assert str(sharded[0].message) == str(whole[0].message)
    assert method.guaranteed_coverage(0.9) == expected.guaranteed_coverage(0.9)
    with pytest.warns(SmallCalibrationWarning):
        assert np.isinf(method.predict_radius(Z[:1], 0.999))


@pytest.mark.parametrize(
    ("method", "Z", "scores", "message"),
    [
        (ShardedRescaled(), [np.ones((9, 1))], [np.ones(9)], "shards take KNN"),
        (ShardedRescaled(KNN(2, metric="cityblock")), [np.ones((9, 1))], [np.ones(9)], "Euclidean"),
        (ShardedRescaled(KNN(2), statistic="quantile"), [np.ones((9, 1))], [np.ones(9)], "'mean'"),
        (ShardedRescaled(KNN(2), shrinkage=1), [np.ones((9, 1))], [np.ones(9)], "Split"),
        (ShardedRescaled(KNN(9)), [np.ones((9, 1))], [np.ones(9)], "at least 10 .* got 9"),
        (ShardedRescaled(KNN(2)), np.ones((9, 1)), np.ones(9), "lists of arrays"),
        (ShardedRescaled(KNN(2)), [np.ones((9, 1))] * 2, [np.ones(9), np.ones(8)], "shard 1 has 9"),
        (
            ShardedRescaled(KNN(2)),
            [np.ones((9, 1)), np.ones((9, 2))],
            [np.ones(9)] * 2,
            r"\[1, 2\]",
        ),
        (ShardedRescaled(KNN(2)), [np.ones((0, 1))], [np.ones(0)], "empty"),
        (ShardedRescaled(KNN(2)), [np.full((9, 1), 1e120)], [np.ones(9)], "1e-100 and 1e100"),
        (ShardedRescaled(KNN(2)), [np.full((9, 1), np.nan)], [np.ones(9)], "shard 0"),
        (ShardedRescaled(KNN(2)), [np.ones((9, 1))], [-np.ones(9)], "negative"),
    ],
)
def test_bad_input(method, Z, scores, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            method.fit(Z, scores)


def test_what_shards_do_not_know():
    Z, scores, _ = problem("plain")
    method = ShardedRescaled(KNN(3)).fit([Z], [scores])
    with pytest.raises(CalliperError, match="no extend"):
        method.extend(Z, scores)
    with pytest.raises(CalliperError, match="no predictive distribution"):
        method.predict_distribution(Z, scores)


def test_only_a_scale_that_is_nought_is_counted_as_nought():
    rng = np.random.default_rng(0)
    Z = np.repeat([[0.0], [90.0], [180.0]], 20, axis=0) + rng.normal(size=(60, 1))
    scores = rng.exponential(size=60) * np.repeat([1.0, 1e-200, 0.0], 20)
    with pytest.warns(ZeroScaleWarning, match="zero at 20 of 60"):
        ShardedRescaled(KNN(3)).fit(*dealt(Z, scores, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ShardedRescaled(KNN(3)).fit(*dealt(Z[:40], scores[:40], 3))

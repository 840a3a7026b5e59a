"""LCP, RLCP and LVD equal their definitions, on problems with ties, zeros and duplicates."""

import warnings

import numpy as np
import pytest

from calliper import CalliperError
from calliper.calibrators import LCP, LVD, RLCP, Split, _local_quantiles
from calliper.calibrators._lcp import (
    _left_out,
    tuned_bandwidth,
    weights_by,
)
from calliper.calibrators._local_quantiles import (
    effective_length_scale,
    row_normals,
    widening_factor,
)
from calliper.exceptions import SmallCalibrationWarning
from calliper.kernels import learn_metric
from calliper.quantile import conformal_rank
from cases.problems import small_problem
from oracles import localized as oracles

pytestmark = pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")

LEVELS = [0.1, 0.5, 0.8, 0.9]
rng = np.random.default_rng(5)
Z, SCORES, NEW = rng.normal(size=(60, 2)), rng.exponential(size=60), rng.normal(size=(9, 2))
TRAIN, LABELS = rng.normal(size=(80, 2)), rng.normal(size=80)
LOCALIZERS = ["exponential", "gaussian", "neighbors"]


def bandwidth_of(p):
    return float(np.random.default_rng(p.seed).choice([0.05, 0.3, 1.0, 5.0]))


def bag_of(localizer, p, z, h):
    bag = np.vstack([p.Z, z])
    if localizer == "neighbors":
        return oracles.neighbor_bag(bag, h)
    return oracles.radial_bag(localizer, bag, h)


@pytest.mark.parametrize("localizer", LOCALIZERS)
@pytest.mark.parametrize("batch", range(5))
def test_lcp_equals_trying_every_candidate(localizer, batch):
    for seed in range(50 * batch, 50 * batch + 50):
        p = small_problem(seed)
        h = p.n_neighbors if localizer == "neighbors" else bandwidth_of(p)
        method = LCP(localizer, bandwidth=h).fit(p.Z, p.scores)
        expected = [
            oracles.lcp_radius(bag_of(localizer, p, z, h), p.scores, p.coverage) for z in p.new
        ]
        np.testing.assert_array_equal(method.predict_radius(p.new, p.level), expected, str(seed))


@pytest.mark.parametrize("h", [1, 2])
@pytest.mark.parametrize("seed", [8, 25, 27, 30])
def test_lcp_on_a_line_of_few_places_equals_trying_every_candidate(seed, h):
    """Where new rows are as far as the last neighbour, and shares that are equal by definition."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 9))
    line, scores = rng.integers(0, 4, size=(n, 1)) * 1.0, rng.integers(0, 6, n) * 1.0
    new, levels = np.arange(5.0)[:, None], (0.2, 0.4, 0.6, 0.8)
    found = LCP("neighbors", bandwidth=h).fit(line, scores).predict_radius(new, levels)
    for z, radii in zip(new, found, strict=True):
        bag = oracles.neighbor_bag(np.vstack([line, z]), h)
        assert radii.tolist() == [oracles.lcp_radius(bag, scores, str(c)) for c in levels]


@pytest.mark.parametrize("batch", range(5))
def test_rlcp_equals_the_definition(batch):
    for seed in range(50 * batch, 50 * batch + 50):
        p, h = small_problem(seed), bandwidth_of(small_problem(seed))
        method = RLCP(h, random_state=seed).fit(p.Z, p.scores)
        centres = p.new + h * row_normals(p.new, method.seed_)
        expected = [
            oracles.rlcp_radius(p.Z, p.scores, z, centre, h, p.coverage)
            for z, centre in zip(p.new, centres, strict=True)
        ]
        np.testing.assert_array_equal(method.predict_radius(p.new, p.level), expected, str(seed))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("batch", range(5))
def test_lvd_equals_the_definition(batch):
    """A few steps of learning suffice to have some metric."""
    for columns in (1, 2, 3):
        rng = np.random.default_rng(batch)
        train, labels = rng.normal(1, 2, size=(30, columns)), rng.normal(size=30)
        problems = [small_problem(seed) for seed in range(60 * batch, 60 * batch + 60)]
        for p in problems:
            if p.Z.shape[1] != columns:
                continue
            method = LVD(n_directions=2, max_iter=3, random_state=batch)
            method.fit(p.Z, p.scores, training=(train, None, labels))
            A, mean, sd = method.metric_.matrix, train.mean(axis=0), train.std(axis=0)
            expected = [
                oracles.lvd_radius(A, (p.Z - mean) / sd, p.scores, (z - mean) / sd, p.coverage)
                for z in p.new
            ]
            np.testing.assert_array_equal(method.predict_radius(p.new, p.level), expected)


@pytest.mark.parametrize("localizer", LOCALIZERS)
@pytest.mark.parametrize("seed", range(4))
def test_lcp_tunes_on_points_left_out_one_by_one(localizer, seed):
    """The tuned bandwidth is the best of those tried when each radius comes from a fresh fit."""
    rng = np.random.default_rng(seed)
    Z_train = rng.integers(0, 6, (9, 1)) * 1.0 if seed % 2 else rng.normal(size=(9, 1))
    errors = rng.integers(0, 9, 9) * 0.5 if seed % 3 == 0 else rng.exponential(size=9)
    found = tuned_bandwidth(localizer, Z_train, errors, 0.6)
    order = np.argsort(errors, kind="stable")
    bag, V = Z_train[order], errors[order]

    def mean_radius(h):
        if localizer == "neighbors":
            H = oracles.neighbor_bag(bag, int(h))
        else:
            H = oracles.radial_bag(localizer, bag, h)
        radius = []
        for i in range(9):
            rest = [j for j in range(9) if j != i] + [i]
            permuted = [[H[a][b] for b in rest] for a in rest]
            radius.append(oracles.lcp_radius(permuted, np.delete(V, i), "0.6"))
        infinite = np.isinf(radius)
        return np.where(infinite, V[-1], radius).mean() if infinite.mean() <= 0.05 else np.inf

    if localizer == "neighbors":
        grid = sorted({round(k) for k in np.geomspace(1, 8, 16)})
    else:
        distances = np.abs(bag - bag.T)
        median = np.median(distances[np.triu_indices(9, 1)])
        grid = median * 2.0 ** np.arange(-7, 5.5, 0.75)
    best = min(mean_radius(h) for h in grid)
    assert np.isfinite(best) and mean_radius(found) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(5))
def test_lvd_is_widened_as_far_as_needed(seed):
    rng = np.random.default_rng(seed)
    points, A = rng.normal(size=(60, 2)) * 4, [[1.0, 0.0], [0.0, 1.0]]
    for coverage in (0.5, 0.8, 0.9):
        factor = widening_factor(points / np.sqrt(2), coverage)

        def part(factor, needed=2 / (1 - coverage)):
            sizes = oracles.effective_sizes(A, points, factor)
            return np.mean(np.array(sizes) >= needed * (1 - 1e-9))

        assert part(factor) >= coverage
        assert factor == 1 or part(factor * 1.0001) < coverage


def test_lvd_tuned_equals_the_definition_with_a_smaller_matrix():
    labels = np.sin(9 * TRAIN[:, 0])
    method = LVD(tuned=True, random_state=0).fit(Z, SCORES, training=(5 * TRAIN, None, labels))
    radius = method.predict_radius(NEW, LEVELS)
    X, x = ((rows - 5 * TRAIN.mean(axis=0)) / (5 * TRAIN.std(axis=0)) for rows in (Z, NEW))
    assert any(factor < 1 for factor in method.factors_.values())
    for column, level in enumerate(LEVELS):
        A = method.factors_[level] * method.metric_.matrix
        expected = [oracles.lvd_radius(A, X, SCORES, row, str(level)) for row in x]
        np.testing.assert_array_equal(radius[:, column], expected)


def test_rlcp_length_scale_reaches_the_effective_size():
    Z_train = np.random.default_rng(0).normal(size=(300, 2))
    h = effective_length_scale(Z_train)

    def effective_size(h):
        k = np.exp(-np.square(Z_train[:, None] - Z_train).sum(axis=2) / 2 / h**2)
        H = k / k.sum(axis=1, keepdims=True)
        return 300 / np.linalg.norm(H) ** 2 - 1

    assert effective_size(h) >= 50 > effective_size(h / np.sqrt(2))
    few = effective_length_scale(Z_train[:20])
    apart = np.linalg.norm(Z_train[:20, None] - Z_train[:20], axis=2)[np.triu_indices(20, 1)]
    assert few == pytest.approx(2**6.5 * np.median(apart))  # the end of the grid: nothing suffices


def test_lvd_is_not_widened_where_just_enough_have_enough():
    """Seven of eleven at one place have six neighbours each, the others one; 0.6 asks for seven."""
    points = np.array([0.0] * 7 + [100.0, 101.0, 200.0, 201.0])[:, None]
    assert widening_factor(points, 0.6) == 1.0
    wider = widening_factor(points, 0.65)  # eight: two of the others must see beyond each other
    assert 0 < wider < 1
    # One far from all has the seven for neighbours, whose weights are the same as near by.
    points = np.array([0.0] * 7 + [100.0, 300.0, 301.0, 500.0])[:, None]
    assert widening_factor(points, 0.65) == 1.0


def test_lvd_is_widened_over_any_span_of_distances():
    """Near pairs, far from one another: a pair's weight on others is flat at their distance."""
    rng = np.random.default_rng(0)
    pairs = np.repeat(1e3 * rng.normal(size=(15, 2)), 2, axis=0)
    for within in (0.0, 1e-7, 1.0):
        points = pairs + within * np.tile([[0.0, 0.0], [1.0, 0.0]], (15, 1))
        factor = widening_factor(points / np.sqrt(2), 0.8)
        A = np.eye(2).tolist()

        def part(factor, points=points, A=A):
            return np.mean(np.array(oracles.effective_sizes(A, points, factor)) >= 10 * (1 - 1e-9))

        assert part(factor) >= 0.8 > part(factor * 1.0001)


def test_lvd_with_fewer_points_than_a_level_needs_is_split():
    """λ = 0 up to 2/α points; the sample is no larger than the calibration set."""
    for coverage, needed in [(0.5, 4), (0.8, 10), (0.9, 20)]:
        points = np.random.default_rng(0).normal(size=(needed, 2))
        assert widening_factor(points, coverage) == 0.0
        assert widening_factor(np.vstack([points, points]), coverage) > 0
    metric = learn_metric(TRAIN, LABELS, random_state=0)
    few = LVD(tuned=True, metric=metric, random_state=0)
    few.fit(Z[:20], SCORES[:20], training=(TRAIN, None, LABELS))
    expected = Split().fit(Z[:20], SCORES[:20]).predict_radius(NEW, [0.5, 0.9])
    np.testing.assert_array_equal(few.predict_radius(NEW, [0.5, 0.9])[:, 1], expected[:, 1])
    assert few.factors_[0.9] == 0 < few.factors_[0.5]
    assert few.guaranteed_coverage([0.9, 20 / 21, 0.96]).tolist() == [0.0, 0.0, 1.0]


def test_random_centres_are_finite_and_symmetric(monkeypatch):
    """Whatever bits are drawn; the highest give the negative of the lowest."""
    bits = np.array([[0, 2**64 - 1, 2**63]], dtype=np.uint64)
    monkeypatch.setattr(_local_quantiles, "random_bits", lambda seed, Z: bits)
    low, high, middle = row_normals(np.zeros((1, 3)), 0)[0]
    assert low == -high and np.isfinite(low) and abs(middle) < 1e-15


@pytest.mark.parametrize("localizer", LOCALIZERS)
def test_lcp_without_a_finite_radius_takes_the_widest_bandwidth(localizer):
    """Of 20 points none reaches 0.99; the grid ends at all others or 32 median distances."""
    apart = np.linalg.norm(Z[:20, None] - Z[:20], axis=2)[np.triu_indices(20, 1)]
    found = tuned_bandwidth(localizer, Z[:20], SCORES[:20], 0.99)
    widest = 19 if localizer == "neighbors" else 32 * np.median(apart)
    assert found == pytest.approx(widest)


@pytest.mark.parametrize("localizer", LOCALIZERS)
def test_lcp_in_small_blocks_comes_to_the_same(localizer, monkeypatch):
    def found():
        method = LCP(localizer, random_state=0)
        method.fit(Z, SCORES, training=(TRAIN, np.abs(LABELS)))
        return method.predict_radius(NEW, LEVELS), method.bandwidths_

    expected = found()
    monkeypatch.setattr("calliper._blocks.BLOCK_FLOATS", 500)
    radius, bandwidths = found()
    np.testing.assert_array_equal(radius, expected[0])
    assert bandwidths == expected[1]


def test_rlcp_in_many_dimensions_equals_the_definition():
    """Distances are taken by products there, up to a constant of the row."""
    rng = np.random.default_rng(0)
    points, scores, new = rng.normal(size=(60, 12)), rng.exponential(size=60), np.eye(12) * 4
    method = RLCP(0.9, random_state=0).fit(points, scores)
    centres = new + 0.9 * row_normals(new, method.seed_)
    radius = method.predict_radius(new, 0.6)
    for z, centre, found in zip(new, centres, radius, strict=True):
        assert found == oracles.rlcp_radius(points, scores, z, centre, 0.9, "0.6")
    assert 0 < np.isfinite(radius).sum() < 12


def test_lcp_says_which_neighbours_do_not_exist():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LCP("neighbors", bandwidth=60).fit(Z, SCORES)
    with pytest.warns(
        SmallCalibrationWarning, match="61 neighbours were requested, but there are only 60"
    ):
        LCP("neighbors", bandwidth=61).fit(Z, SCORES)


@pytest.mark.parametrize("method", [LCP(bandwidth=1e9), RLCP(1e9), LVD(max_iter=1)], ids=repr)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scores_below_zero_are_scores(method):
    """Errors on one side; so wide, or with so few points, it is split."""
    train = {"training": (TRAIN, None, LABELS)} if isinstance(method, LVD) else {}
    method.fit(np.zeros((9, 2)), SCORES[:9] - 20, **train)
    expected = Split().fit(Z[:9], SCORES[:9] - 20).predict_radius(Z[:1], [0.35, 0.85])
    where = np.zeros((1, 2)) if train else NEW[:1]
    np.testing.assert_array_equal(method.predict_radius(where, [0.35, 0.85]), expected)


def test_rlcp_far_from_all_points_is_infinite_and_says_nothing():
    """What weighs next to nothing beside the new point is left to vanish, and not to overflow."""
    method = RLCP(0.1, random_state=0).fit(Z, SCORES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(method.predict_radius([[1e3, 1e3], [-1e8, 0.0]], 0.2)).all()


@pytest.mark.parametrize("localizer", LOCALIZERS)
@pytest.mark.parametrize("seed", range(4))
def test_a_point_left_out_has_the_radius_that_all_others_give(localizer, seed):
    """In one go for all points what a fit without each of them says; half of them tie."""
    rng = np.random.default_rng(seed)
    points, scores = rng.normal(size=(14, 2)), np.sort(rng.integers(0, 7, 14) * 1.0)
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    np.fill_diagonal(apart, np.inf)
    for h in (1, 4) if localizer == "neighbors" else (0.3, 1.5):
        for level in (0.3, 0.6, 0.85):
            rank = conformal_rank(level, 13)
            found = _left_out(scores, weights_by(localizer, apart, h), rank)
            for i, others in enumerate(~np.eye(14, dtype=bool)):
                method = LCP(localizer, bandwidth=h).fit(points[others], scores[others])
                assert found[i] == method.predict_radius(points[[i]], level)


@pytest.mark.parametrize(("n", "expected"), [(1, 3), (2, 3), (7, 8), (1999, 2000), (5000, 2000)])
def test_lcp_is_tuned_on_as_many_points_as_a_bag_has(n, expected):
    """Three at least, two thousand at most, and none twice."""
    scores, rng = np.arange(2500.0), np.random.default_rng(0)
    training = scores[:, None], scores
    chosen = LCP().fit(rng.normal(size=(n, 1)), rng.random(n), training=training).sample_
    assert len(chosen) == len(np.unique(chosen)) == expected


def test_lcp_is_tuned_on_three_points_or_more():
    LCP().fit(Z, SCORES, training=(TRAIN[:3], LABELS[:3]))
    with pytest.raises(CalliperError, match="needs 3 training rows; got 2"):
        LCP().fit(Z, SCORES, training=(TRAIN[:2], LABELS[:2]))


def test_rlcp_takes_the_first_length_scale_of_its_grid_that_suffices():
    """Many small sets, so that some lie just below or above fifty effective points."""
    for seed in range(60):
        points = np.random.default_rng(seed).normal(size=(100, 1))
        h, squared = effective_length_scale(points), np.square(points - points.T)

        def size(h, squared=squared):
            k = np.exp(-squared / 2 / h**2)
            return 100 / np.square(k / k.sum(axis=1, keepdims=True)).sum() - 1

        assert size(h) >= 50 > size(h / np.sqrt(2))

"""Covariate shift: weighted thresholds against their definition, coverage where it is shifted."""

import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from calliper import KNN, RBF, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    Grouped,
    JackknifeMinmaxRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
)
from calliper.exceptions import CalliperError, ShiftWarning
from calliper.kernels import TunedRBF
from calliper.quantile import Shares, row_thresholds
from calliper.shift import ShiftReport
from oracles.shift import jackknife_by_weight, p_value_by_weight, weighted_quantile

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

LEVELS = [0.3, 0.6, 0.8]


def problem(seed):
    """A few points, half of the time on a grid with zeros and ties; weights likewise."""
    rng = np.random.default_rng(seed)
    n, discrete = int(rng.integers(3, 12)), seed % 2
    Z = rng.integers(0, 3, size=(n, 1)) * 1.0 if discrete else rng.normal(size=(n, 1))
    new = rng.integers(0, 3, size=(3, 1)) * 1.0 if discrete else rng.normal(size=(3, 1))
    scores = rng.integers(0, 4, size=n) * 0.5 if discrete else rng.exponential(size=n)
    weights = rng.integers(0, 4, size=n) * 1.0 if discrete else rng.exponential(size=n)
    weights[0] += 1.0
    of_new = rng.integers(1, 4, size=3) * 1.0 if discrete else rng.exponential(size=3)
    return Z, scores, weights, new, of_new


FULL = [
    *[({"kernel": KNN(k)}, ("knn", k)) for k in (1, 2, 3)],
    ({"kernel": KNN(2), "statistic": "rms"}, ("knn", 2)),
    ({"kernel": KNN(3), "statistic": "quantile"}, ("knn", 3)),
    ({"kernel": KNN(2), "shrinkage": 0.25}, ("knn", 2)),
    ({"kernel": RBF(0.7)}, ("rbf", 0.7)),
    ({"kernel": RBF(0.7), "shrinkage": 0.25}, ("rbf", 0.7)),
]


@pytest.mark.parametrize(("given", "kernel"), FULL, ids=repr)
def test_full_is_where_the_literal_p_value_falls(given, kernel):
    """p(t) > α just below the radius and p(t) ≤ α just above it."""
    for seed in range(24 if kernel[0] == "knn" else 8):
        Z, scores, weights, new, of_new = problem(seed)
        method = FullRescaled(**given).fit(Z, scores, weights=weights)
        radius = method.predict_radius(new, LEVELS, weights=of_new)
        for z, w, row in zip(new, of_new, radius, strict=True):
            for level, r in zip(LEVELS, row, strict=True):
                exact = Fraction(str(level))
                p = partial(
                    p_value_by_weight,
                    **{"Z": Z, "scores": scores, "z_new": z, "weights": weights, "new": w},
                    **{**given, "kernel": kernel, "level": exact},
                )
                if np.isinf(r):
                    assert p(1e30) > 1 - exact, (seed, level)
                    continue
                assert p(r * (1 - 1e-9)) > 1 - exact, (seed, level)
                assert p(r * (1 + 1e-9) + 1e-290) <= 1 - exact, (seed, level)


@pytest.mark.parametrize("kernel", [("knn", 1), ("knn", 2), ("rbf", 0.7)], ids=repr)
def test_jackknife_equals_its_definition(kernel):
    method = JackknifeRescaled(KNN(kernel[1]) if kernel[0] == "knn" else RBF(kernel[1]))
    for seed in range(30):
        Z, scores, weights, new, of_new = problem(seed)
        method.fit(Z, scores, weights=weights)
        radius = method.predict_radius(new, LEVELS, weights=of_new)
        expected = [
            [jackknife_by_weight(Z, scores, z, weights, w, kernel=kernel, level=Fraction(str(c)))
             for c in LEVELS] for z, w in zip(new, of_new, strict=True)
        ]  # fmt: skip
        np.testing.assert_allclose(radius, expected, rtol=1e-9, err_msg=f"seed {seed}")


def test_long_rows_are_not_sorted_whole_and_come_to_the_same():
    rng = np.random.default_rng(0)
    for seed in range(6):
        values = rng.exponential(size=(7, 1500)).round(1 if seed % 2 else 9)
        values[3:6] = np.sort(values[3:6], axis=1)  # columns in order tell the wrong place
        values[6:, : 300 * seed] = np.inf
        weights = rng.exponential(size=1500) ** 3 * (rng.uniform(size=1500) < 0.7)
        if seed == 5:
            weights[::11] = 0.0  # nothing is told
        weights[rng.integers(1500)] = 1.0
        shares = Shares(weights, rng.exponential(size=7))
        found = row_thresholds(values, LEVELS, shares)
        for row, w, answers in zip(values, shares.new, found, strict=True):
            expected = [weighted_quantile(row, weights, w, Fraction(str(c))) for c in LEVELS]
            np.testing.assert_array_equal(answers, expected)


def data(rng, n):
    Z = rng.normal(size=(n, 2))
    return Z, np.abs(rng.normal(size=n)) * np.exp(Z[:, 0])


FAMILY = [
    Split(),
    MADSplit(),
    NormalizedKNN(),
    RCP(kernel=KNN(10)),
    SLCP(),
    FullRescaled(),
    FullRescaled(KNN(5)),
    FullRescaled(KNN(5), statistic="quantile"),
    FullRescaled(KNN(5), shrinkage=0.3),
    FullRescaled(RBF(0.5)),
    FullRescaled(RBF(0.5, smoothing=1.0), shrinkage=0.2),
    FullRescaled(shrinkage=1.0),
    JackknifeRescaled(KNN(3)),
    JackknifeRescaled(RBF(0.4)),
]


def fitted(method, rng, n=60, **known):
    training = {"training": data(rng, 50)}
    known |= training if method.uses.needs else {}
    return method.fit(*data(rng, n), **known)


@pytest.mark.parametrize("method", FAMILY[:5], ids=repr)
def test_whole_weights_are_repeated_rows_where_scales_are_learnt_elsewhere(method):
    rng = np.random.default_rng(0)
    (Z, scores), (new, _), training = data(rng, 60), data(rng, 40), data(rng, 50)
    times = rng.integers(0, 5, size=60)
    known = {"training": training} if method.uses.needs else {}
    repeated = method.fit(np.repeat(Z, times, axis=0), np.repeat(scores, times), **known)
    expected = repeated.predict_radius(new, LEVELS)
    by_weight = method.fit(Z, scores, weights=times, **known)
    found = by_weight.predict_radius(new, LEVELS, weights=np.ones(40))
    np.testing.assert_array_equal(found, expected)
    heavier = by_weight.predict_radius(new, LEVELS, weights=np.full(40, 30.0))
    assert (heavier >= expected).all() and (heavier > expected).any()


def test_split_equals_the_quantile_of_the_definition():
    rng = np.random.default_rng(0)
    scores, weights, of_new = rng.normal(size=60), *rng.exponential(size=(2, 60))
    split = Split().fit(np.zeros((60, 1)), scores, weights=weights)
    found = split.predict_radius(np.zeros((60, 1)), LEVELS, weights=of_new)
    for column, level in enumerate(LEVELS):
        expected = [weighted_quantile(scores, weights, w, Fraction(str(level))) for w in of_new]
        np.testing.assert_array_equal(found[:, column], expected)


@pytest.mark.parametrize("method", FAMILY, ids=repr)
def test_equal_weights_are_none_bit_for_bit(method):
    new = data(np.random.default_rng(3), 40)[0]
    without = fitted(method, np.random.default_rng(0)).predict_radius(new, LEVELS)
    for w in (0.1, 1.0, 3.7):
        method = fitted(method, np.random.default_rng(0), weights=np.full(60, w))
        same = method.predict_radius(new, LEVELS, weights=np.full(40, w))
        np.testing.assert_array_equal(same, without)
    # The way of unequal weights, on equal ones: no other thresholds, but for last digits.
    by_weight = method._radius(new, LEVELS, Shares(np.ones(60), np.ones(40)))
    np.testing.assert_allclose(by_weight, without, rtol=2e-11)


@pytest.mark.parametrize("method", [FullRescaled, JackknifeRescaled], ids=lambda m: m.__name__)
def test_adversarial_bags_by_weight(adversarial_bags, method):
    """A bag member is the new point as often as it weighs: coverage is enumerated."""
    for (n, coverage, k), (Z, scores) in adversarial_bags.items():
        if n > 50:
            continue
        for seed in range(3):
            weights = (
                np.random.default_rng(seed).exponential(size=n + 1) if seed else np.ones(n + 1)
            )
            covered = 0.0
            for j in range(n + 1):
                rest = np.arange(n + 1) != j
                own = method(KNN(k)).fit(Z[rest], scores[rest], weights=weights[rest])
                radius = own.predict_radius(Z[[j]], float(coverage), weights=weights[[j]])
                covered += weights[j] * (scores[j] <= radius[0])
            promise = own.guaranteed_coverage(float(coverage))
            assert covered / weights.sum() >= promise - 1e-12, (n, coverage, seed)
            assert promise == (float(coverage) if method is FullRescaled else
                               pytest.approx(2 * float(coverage) - 1))  # fmt: skip


@pytest.mark.parametrize(
    "method", [Split(), FullRescaled(KNN(5)), JackknifeRescaled(KNN(5))], ids=repr
)
def test_coverage_where_inputs_are_shifted(method):
    """x ~ N(0, 1) → N(1, 1), errors of size e^x, N = 60."""
    rng, n_draws, level = np.random.default_rng(7), 150, 0.9
    inside, without = np.zeros((2, n_draws))
    for repetition in range(n_draws):
        Z = rng.normal(size=(60, 1))
        scores = np.abs(rng.normal(size=60)) * np.exp(Z[:, 0])
        new = 1 + rng.normal(size=(100, 1))
        truth = np.abs(rng.normal(size=100)) * np.exp(new[:, 0])
        method.fit(Z, scores, weights=np.exp(Z[:, 0]))
        radius = method.predict_radius(new, level, weights=np.exp(new[:, 0]))
        inside[repetition] = np.mean(truth <= radius)
        without[repetition] = np.mean(truth <= method.fit(Z, scores).predict_radius(new, level))
    error = inside.std() / np.sqrt(n_draws)
    assert inside.mean() > level - 4 * error
    assert without.mean() < level - 6 * without.std() / np.sqrt(n_draws), "or there is no shift"


def test_many_ties_and_many_rows_by_weight():
    """Crowded neighbours and blocks of rows take other ways through the code."""
    rng = np.random.default_rng(0)
    Z, scores = rng.integers(0, 3, size=(400, 1)) * 1.0, rng.exponential(size=400)
    new, of_new, weights = rng.integers(0, 3, size=(900, 1)) * 1.0, *rng.exponential(size=(2, 900))
    for method in (FullRescaled(KNN(5)), JackknifeRescaled(KNN(5))):
        method.fit(Z, scores, weights=weights[:400])
        whole = method.predict_radius(new, LEVELS, weights=of_new)
        rows = [method.predict_radius(new[[i]], LEVELS, weights=of_new[[i]])[0] for i in range(30)]
        np.testing.assert_array_equal(whole[:30], rows)


def test_report_and_guarantee():
    weights = np.r_[np.full(10, 1.0), np.zeros(10)]
    split = Split().fit(np.zeros((20, 1)), np.arange(20.0), weights=weights)
    report = split.shift_report([1.0, 1.0, 2.0, 5.0], 0.9)
    assert report == ShiftReport(0.9, 20, 10.0, 0.5, 0.5)
    assert (
        "are worth 10.0" in report.describe()
        and "50 % of the new rows have too much weight" in report.describe()
    )
    with pytest.warns(ShiftWarning, match="50 % of the new rows have too much weight"):
        radius = split.predict_radius(np.zeros((4, 1)), 0.9, weights=[1.0, 1.0, 2.0, 5.0])
    np.testing.assert_array_equal(np.isinf(radius), [False, False, True, True])
    text = split.guarantee(0.9).describe()
    for words in ("density of new inputs", "given the inputs", "count for 10.0", "at least 0.9 "):
        assert words in text
    assert split.guaranteed_coverage([0.5, 0.9]).tolist() == [0.5, 0.9]


def test_one_weight_with_nearly_all_mass_is_pointed_out():
    split = Split().fit(np.zeros((50, 1)), np.arange(50.0), weights=np.r_[1e9, np.ones(49)])
    with pytest.warns(ShiftWarning, match=r"50 calibration rows are worth 1\.0"):
        assert split.predict_radius([[0.0]], 0.9, weights=[1.0])[0] == 0.0


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([-1.0] + [1.0] * 9, r"0 or more, but 1 of 10 values is negative \(-1.0 at position 0"),
        ([0.0] * 10, "all 10 weights are 0"),
        ([np.nan] + [1.0] * 9, "weights must be finite"),
        ([np.inf] + [1.0] * 9, "weights must be finite"),
        ([1.0] * 9, "weights must .* got 9 values for 10"),
        (["heavy"] * 10, "weights must be numbers"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(CalliperError, match=message):
        Split().fit(np.zeros((10, 1)), np.arange(10.0), weights=weights)


def test_bad_weights_of_new_rows():
    split = Split().fit(np.zeros((10, 1)), np.arange(10.0), weights=np.ones(10))
    for new, message in [
        ([1.0, 0.0], r"positive, but 1 of 2 values is 0 or negative \(0.0 at"),
        ([1.0], "weights must .* got 1 values for 2"),
        ([1.0, np.nan], "weights must be finite"),
        (None, "fitted with weights: also pass weights of the new rows"),
    ]:
        with pytest.raises(CalliperError, match=message):
            split.predict_radius(np.zeros((2, 1)), 0.5, weights=new)
    with pytest.raises(CalliperError, match="confidence cannot be combined with weights"):
        split.predict_radius(np.zeros((2, 1)), 0.5, weights=[1.0, 2.0], confidence=0.9)
    split.fit(np.zeros((10, 1)), np.arange(10.0))
    with pytest.raises(
        CalliperError, match="Split was fitted without weights: weights can be passed to"
    ):
        split.predict_radius(np.zeros((2, 1)), 0.5, weights=[1.0, 1.0])
    with pytest.raises(CalliperError, match="fitted without weights"):
        split.shift_report([1.0])


@pytest.mark.parametrize(
    "method",
    [LCP(0.5), RLCP(0.5), LVD(), LoCart(), ConditionalCalibration(), JackknifeMinmaxRescaled()],
    ids=lambda m: type(m).__name__,
)
def test_others_take_no_weights(method):
    with pytest.raises(TypeError, match="weights"):
        method.fit(np.zeros((10, 1)), np.arange(10.0), weights=np.ones(10))


def test_weights_and_folds_are_refused_together():
    rng = np.random.default_rng(0)
    Z, scores = data(rng, 40)
    method = JackknifeRescaled(TunedRBF(length_scales=[0.3, 1.0], n_folds=4), random_state=0)
    with pytest.raises(CalliperError, match="weights combined with folds"):
        method.fit(Z, scores, weights=np.ones(40))


def test_groups_under_shift_are_the_groups_alone():
    rng = np.random.default_rng(0)
    (Z, scores), weights, group = data(rng, 80), rng.exponential(size=80), np.arange(80) % 2
    (new, _), of_new, asked = data(rng, 30), rng.exponential(size=30), np.arange(30) % 3
    method = Grouped(FullRescaled(KNN(5))).fit(Z, scores, groups=group, weights=weights)
    radius = method.predict_radius(new, LEVELS, groups=asked, weights=of_new)
    for label in (0, 1):
        mine, ours = group == label, asked == label
        own = FullRescaled(KNN(5)).fit(Z[mine], scores[mine], weights=weights[mine])
        expected = own.predict_radius(new[ours], LEVELS, weights=of_new[ours])
        np.testing.assert_array_equal(radius[ours], expected)
    assert np.isinf(radius[asked == 2]).all()


def test_one_point_with_weights():
    """Its score, where its weight reaches the level's share; else no bound."""
    one = JackknifeRescaled().fit([[0.0]], [2.0], weights=[3.0])
    found = one.predict_radius([[1.0], [1.0]], [0.3, 0.7], weights=[1.0, 6.0])
    np.testing.assert_array_equal(found, [[2.0, 2.0], [2.0, np.inf]])


def test_new_rows_that_weigh_less_are_pointed_out():
    Z, scores = np.zeros((40, 1)), np.arange(40.0)
    method = Split().fit(Z, scores, weights=np.linspace(0.9, 1.1, 40))
    with pytest.warns(ShiftWarning, match="new rows have 10 % of the weight"):
        method.predict_radius(Z, 0.8, weights=np.full(40, 0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShiftWarning)
        method.predict_radius(Z, 0.8, weights=np.full(40, 1.0))

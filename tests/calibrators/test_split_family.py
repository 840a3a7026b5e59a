"""SLCP, NormalizedKNN, RCP and LoCart: limits, levels, reuse and words."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor

from calliper import KNN, RBF
from calliper.calibrators import RCP, SLCP, LoCart, NormalizedKNN
from calliper.calibrators._learnt_scales import DIFFICULTIES
from calliper.kernels import TunedKNN
from cases.split_family import (
    LEVELS,
    NEW,
    SCORES,
    SPLIT,
    TRAIN,
    Y_TRAIN,
    Z_TRAIN,
    Z,
    each_method,
    fit,
    quiet,
)

rng = np.random.default_rng(1)


@pytest.mark.parametrize(
    "method",
    [
        SLCP(KNN(80)),
        SLCP(RBF(1e8)),
        NormalizedKNN(gamma=1e12),
        NormalizedKNN(form="exp", gamma=0.0),
        NormalizedKNN(difficulty="distance+labels", form="exp", gamma=0, rho=0),
        NormalizedKNN(79, difficulty="residuals", gamma=1e-9),
        RCP(kernel=KNN(80)),
        RCP(DummyRegressor(strategy="quantile")),
        RCP(kernel=KNN(5), offset=1e12),
        LoCart(max_leaves=1),
        LoCart(min_leaf=80),
        LoCart(min_leaf=10**6),
    ],
    ids=repr,
)
def test_nothing_local_is_split(method):
    """Flat weights, a constant difficulty, one leaf."""
    constant = {"training": (Z_TRAIN, TRAIN["training"][1])}
    if method.get_params().get("difficulty") == "residuals":
        constant = {"training": (Z_TRAIN, np.full(80, 3.0))}
    radius = fit(method, train=constant).predict_radius(NEW, LEVELS)
    np.testing.assert_allclose(radius, SPLIT, rtol=1e-9)


def test_constant_labels_duplicates_and_one_neighbour_have_no_spread():
    for labels, k in ((np.full(80, 0.1), 3), (Y_TRAIN, 1)):
        method = NormalizedKNN(k, difficulty="labels")
        method.fit(Z, SCORES, training=(Z_TRAIN, None, labels))
        assert method.units_.tolist() == [1.0]
        np.testing.assert_allclose(method.predict_radius(NEW, LEVELS), SPLIT)
    repeated = np.repeat(Z_TRAIN[:20], 4, axis=0)
    repeated[-3:] += [[1.0], [2.0], [3.0]]
    method = NormalizedKNN(2).fit(Z, SCORES, training=repeated)
    assert method.units_[0] > 0  # the median is 0, so the mean is the unit
    assert np.isfinite(method.predict_radius(NEW, LEVELS)).all()


def test_a_vanishing_length_scale_is_the_nearest_neighbour():
    radial, nearest = SLCP(RBF(1e-4)), SLCP(KNN(1))
    np.testing.assert_array_equal(
        fit(radial).predict_radius(NEW, LEVELS), fit(nearest).predict_radius(NEW, LEVELS)
    )


def test_slcp_radius_is_never_an_empty_interval():
    train = {"training": (np.linspace(0, 1, 80)[:, None], np.r_[[0.0] * 40, [9] * 40])}
    z, s = np.r_[np.full(5, 0.1), np.full(45, 0.9)][:, None], np.full(50, 1.0)
    method = SLCP(KNN(5)).fit(z, s, **train)
    radius = method.predict_radius([[0.1], [0.9]], 0.5)
    np.testing.assert_allclose(radius, [0.0, 1.0], rtol=1e-14)
    below = SLCP(KNN(5)).fit(z, s - 2, **train)  # a score that can be negative: so can the radius
    radius = below.predict_radius([[0.1], [0.9]], 0.5)
    np.testing.assert_allclose(radius, [-10.0, -1.0], rtol=1e-14)


@each_method
@quiet
def test_several_levels_equal_one_at_a_time_in_any_order(method):
    drawn = {"random_state"} & method.get_params().keys()
    seeded = clone(method).set_params(**dict.fromkeys(drawn, 0))
    several = fit(seeded).predict_radius(NEW, LEVELS)
    assert several.shape == (7, 4)
    again = fit(clone(seeded))
    for column in (3, 0, 2, 1):
        one = again.predict_radius(NEW, LEVELS[column])
        np.testing.assert_allclose(one, several[:, column], rtol=1e-12)


@each_method
@quiet
def test_fitting_again_forgets(method):
    drawn = {"random_state"} & method.get_params().keys()
    seeded = clone(method).set_params(**dict.fromkeys(drawn, 0))
    fit(seeded).predict_radius(NEW, LEVELS)
    other = {"training": (Z_TRAIN[:40, :1], TRAIN["training"][1][40:])}
    again = fit(seeded, Z[:30, :1], SCORES[:30], other, Y_TRAIN[:40])
    fresh = fit(clone(seeded), Z[:30, :1], SCORES[:30], other, Y_TRAIN[:40])
    np.testing.assert_array_equal(
        again.predict_radius(NEW[:, :1], LEVELS), fresh.predict_radius(NEW[:, :1], LEVELS)
    )


@each_method
@quiet
def test_clone_and_pickle(method):
    fitted = fit(method)
    radius = fitted.predict_radius(NEW, LEVELS)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_radius(NEW, LEVELS), radius)
    assert repr(clone(fitted)) == repr(method)
    assert not hasattr(clone(fitted), "n_calibration_")


@each_method
@quiet
def test_words(method):
    words = fit(method).guarantee(0.8).describe()
    assert type(method).__name__ in words and "at least 0.8" in words
    if isinstance(method, LoCart):
        assert "each of the" in words and "leaves alone" in words
    else:
        assert "nine cases out of ten" in words


def test_many_rows_are_worked_through_in_blocks():
    new = rng.normal(size=(30000, 2))
    for method in (SLCP(RBF(0.7)), SLCP(KNN(5)), NormalizedKNN(5), RCP(kernel=KNN(5))):
        radius = fit(method).predict_radius(new, LEVELS)
        np.testing.assert_allclose(radius[-7:], method.predict_radius(new[-7:], LEVELS), rtol=1e-9)


def test_default_regressor_and_its_seed():
    method = RCP(random_state=0)
    radius = fit(method).predict_radius(NEW, [0.5, 0.9])
    assert np.isfinite(radius).all() and isinstance(
        method.models_[0.9], HistGradientBoostingRegressor
    )
    assert method.models_[0.9].quantile == 0.9 and method.models_[0.5].quantile == 0.5
    model = method.models_[0.9]
    method.predict_radius(NEW, 0.9)
    assert method.models_[0.9] is model  # fitted once


def test_tuned_kernel_is_tuned_on_training_errors():
    method = fit(SLCP(TunedKNN()))
    assert isinstance(method.kernel_, KNN)


def test_the_unit_of_labels_does_not_matter_where_neighbours_tie():
    """On a lattice places are shared; equal labels far from the mean have a spread of nothing."""
    train = np.repeat(np.arange(9.0), 4)[:, None]
    labels = np.where(train[:, 0] < 5, 1000.1 / 3, -77.7) + np.tile([0.0, 1.0, 0.0, 2.0], 9) * (
        train[:, 0] > 6
    )
    new, scores = np.arange(0.0, 9.0, 0.5)[:, None], np.arange(1.0, 19.0)

    def radius(unit):
        method = NormalizedKNN(6, difficulty="labels", gamma=0.5)
        return method.fit(new, scores, training=(train, None, labels * unit)).predict_radius(new)

    expected = radius(1.0)
    assert (expected[:7] == expected[0]).all() and expected[-1] > 2 * expected[0]
    for unit in (2.0**-30, 2.0**30):
        np.testing.assert_array_equal(radius(unit), expected)


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_difficulties_in_small_chunks_come_to_the_same(difficulty, monkeypatch):
    method = fit(NormalizedKNN(difficulty=difficulty))
    expected = method.predict_radius(Z, LEVELS)
    monkeypatch.setattr("calliper.calibrators._learnt_scales.CHUNK_ROWS", 1)
    np.testing.assert_array_equal(method.predict_radius(Z, LEVELS), expected)


def test_twenty_training_errors_speak_for_a_point():
    for seed in range(5):
        new = np.random.default_rng(seed).normal(size=(30, 2))
        usual, said = (
            fit(method).predict_radius(new, LEVELS) for method in (SLCP(), SLCP(KNN(20)))
        )
        np.testing.assert_array_equal(usual, said)


def test_labels_far_from_zero_keep_their_spread_where_neighbours_tie():
    rng = np.random.default_rng(0)
    train, labels = np.repeat(np.arange(9.0), 4)[:, None], rng.integers(0, 9, size=36) * 0.25
    new, scores = np.arange(0.0, 9.0, 0.5)[:, None], np.arange(1.0, 19.0)
    method = NormalizedKNN(6, difficulty="labels")
    radii = [
        method.fit(new, scores, training=(train, None, labels + far)).predict_radius(new)
        for far in (0.0, 2.0**30)
    ]
    np.testing.assert_allclose(*radii, rtol=1e-6)
    assert np.ptp(radii[0]) > 1


def test_no_more_leaves_than_allowed():
    train = np.repeat([[0.0], [1.0], [2.0], [3.0]], 30, axis=0)
    given = {"training": (train, 10 ** train[:, 0])}
    for most in (2, 3, 4, 9):
        method = LoCart(max_leaves=most, min_leaf=1).fit(train, train[:, 0], **given)
        assert len(method.leaf_sizes_) == min(most, 4)


def test_one_leaf_is_one_however_clear_a_split_would_be():
    train = np.repeat([[0.0], [1.0]], 60, axis=0)
    given = {"training": (train, 1 + 9 * train[:, 0])}
    one = LoCart(max_leaves=1, min_leaf=1).fit(train, train[:, 0], **given)
    assert one.leaf_sizes_.tolist() == [120]
    assert LoCart(min_leaf=1).fit(train, train[:, 0], **given).leaf_sizes_.tolist() == [60, 60]

"""Jackknife-minmax: its definition, its guarantee, and that caution never saves width."""

import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone

from calliper import KNN, RBF, CalliperError, JackknifeRescaled, Split
from calliper.calibrators import JackknifeMinmaxRescaled
from calliper.exceptions import SmallCalibrationWarning, ZeroScaleWarning
from calliper.kernels import ForestProximity, TunedKNN
from cases.problems import small_problem
from oracles import rescaled as oracles
from oracles import split as split_oracles

rng = np.random.default_rng(0)
Z, SCORES, NEW = rng.normal(size=(50, 2)), rng.exponential(size=50), rng.normal(size=(7, 2))
LEVELS = [0.1, 0.5, 0.8, 0.9]
quiet = pytest.mark.filterwarnings("ignore::UserWarning")


@quiet
@pytest.mark.parametrize("batch", range(3))
def test_knn_equals_the_definition(batch):
    for seed in range(50 * batch, 50 * batch + 50):
        p = small_problem(seed)
        method = JackknifeMinmaxRescaled(KNN(p.n_neighbors), offset=p.offset, random_state=seed)
        radius = method.fit(p.Z, p.scores, magnitudes=p.magnitudes).predict_radius(p.new, p.level)
        kernel = ("knn", float(p.n_neighbors))
        expected = [
            split_oracles.minmax_radius(
                p.Z, p.magnitudes, p.scores, z, kernel, p.coverage, p.offset
            )
            for z in p.new
        ]
        np.testing.assert_allclose(radius, expected, rtol=1e-10, err_msg=f"seed {seed}")


@quiet
@pytest.mark.parametrize("log10", [-2.0, -0.5, 0.0, 0.5, 3.0])
@pytest.mark.parametrize("batch", range(2))
def test_rbf_equals_the_definition(batch, log10):
    for seed in range(15 * batch, 15 * batch + 15):
        p = small_problem(seed, smallest=2, largest=11)
        length_scale = 10.0 ** max(log10, -0.5 if p.discrete else log10)
        positive = p.magnitudes + 0.01  # an underflowing weight times zero has no exact float value
        scores = np.minimum(p.scores, positive)
        method = JackknifeMinmaxRescaled(RBF(length_scale), offset=p.offset)
        radius = method.fit(p.Z, scores, magnitudes=positive).predict_radius(p.new, p.level)
        kernel = ("rbf", length_scale)
        expected = [
            split_oracles.minmax_radius(p.Z, positive, scores, z, kernel, p.coverage, p.offset)
            for z in p.new
        ]
        np.testing.assert_allclose(radius, expected, rtol=1e-8, err_msg=f"seed {seed}")


@quiet
@pytest.mark.parametrize("kernel", ["knn", "rbf"])
def test_never_narrower_than_the_jackknife(kernel):
    for seed in range(100):
        p = small_problem(seed, largest=40)
        chosen = KNN(p.n_neighbors) if kernel == "knn" else RBF(10.0 ** (seed % 4 - 1))
        fitted = [
            method(chosen, offset=p.offset, random_state=seed).fit(
                p.Z, p.scores, magnitudes=p.magnitudes
            )
            for method in (JackknifeMinmaxRescaled, JackknifeRescaled)
        ]
        minmax, jackknife = (method.predict_radius(p.new, LEVELS) for method in fitted)
        assert (minmax >= jackknife * (1 - 1e-9)).all(), seed


def test_adversarial_bags(adversarial_bags):
    """Bags on which the Jackknife+ falls below the level (see statistical/test_coverage.py)."""
    for (_, coverage, k), (bag, scores) in adversarial_bags.items():

        def radius(Z, s, z, coverage, k=k):
            fitted = JackknifeMinmaxRescaled(KNN(k), random_state=0).fit(Z, s)
            return float(fitted.predict_radius(np.reshape(z, (1, -1)), float(coverage))[0])

        assert oracles.bag_coverage(bag, scores, radius, coverage) >= Fraction(coverage)


@quiet
@pytest.mark.parametrize("kernel", [KNN(5), RBF(0.2)], ids=repr)
@pytest.mark.parametrize("n", [20, 60])
def test_coverage(n, kernel):
    draws, levels = np.random.default_rng(n), [0.5, 0.8, 0.9]
    covered = np.empty((300, 3))
    for repetition in range(300):
        z = draws.uniform(size=(n + 200, 1))
        s = np.abs(draws.normal(size=n + 200)) * (0.05 + np.abs(np.sin(6 * z[:, 0])))
        method = JackknifeMinmaxRescaled(kernel).fit(z[:n], s[:n])
        covered[repetition] = (s[n:, None] <= method.predict_radius(z[n:], levels)).mean(axis=0)
    mean, error = covered.mean(axis=0), covered.std(axis=0) / np.sqrt(300)
    assert (mean > method.guaranteed_coverage(levels) - 4 * error).all(), mean


def test_flat_scales_are_close_to_split():
    """A constant scale is split; all others as neighbours leaves the largest mean of N−1."""
    split = Split().fit(Z, SCORES).predict_radius(NEW, LEVELS)
    for kernel in (KNN(5), RBF(0.5)):
        method = JackknifeMinmaxRescaled(kernel, offset=1e9).fit(Z, SCORES)
        np.testing.assert_allclose(method.predict_radius(NEW, LEVELS), split, rtol=1e-6)
        equal = JackknifeMinmaxRescaled(kernel).fit(Z, np.full(50, 2.5))
        np.testing.assert_allclose(equal.predict_radius(NEW, LEVELS), 2.5)
    mean_of_others = (SCORES.sum() - SCORES) / 49
    by_hand = np.sort(SCORES / mean_of_others)[[5, 25, 40, 45]] * mean_of_others.max()
    for kernel in (KNN(49), RBF(1e8)):
        radius = JackknifeMinmaxRescaled(kernel).fit(Z, SCORES).predict_radius(NEW, LEVELS)
        np.testing.assert_allclose(radius, np.tile(by_hand, (7, 1)), rtol=1e-9)


def test_many_rows_are_worked_through_in_blocks():
    new = rng.normal(size=(20000, 2))
    for kernel in (KNN(5), RBF(0.5)):
        method = JackknifeMinmaxRescaled(kernel, random_state=0).fit(Z, SCORES)
        radius = method.predict_radius(new, LEVELS)
        np.testing.assert_allclose(radius[-7:], method.predict_radius(new[-7:], LEVELS), rtol=1e-10)


def test_few_points_zeros_and_levels():
    few = JackknifeMinmaxRescaled().fit(Z[:18], SCORES[:18])
    with pytest.warns(SmallCalibrationWarning, match="18 calibration rows") as caught:
        radius = few.predict_radius(NEW, [0.5, 0.95])
    assert len(caught) == 1
    assert np.isfinite(radius[:, 0]).all() and np.isinf(radius[:, 1]).all()
    assert few.guaranteed_coverage(0.95) == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallCalibrationWarning)
        one = JackknifeMinmaxRescaled().fit(Z[:1], [3.0]).predict_radius(NEW, [0.4, 0.9])
    np.testing.assert_array_equal(one, np.tile([3.0, np.inf], (7, 1)))
    for kernel in (KNN(5), RBF(1.0)):
        with pytest.warns(ZeroScaleWarning, match="zero at 50 of 50"):
            zero = JackknifeMinmaxRescaled(kernel).fit(Z, np.zeros(50))
        assert np.isinf(zero.predict_radius(NEW)).all()
        moved = JackknifeMinmaxRescaled(kernel, offset=0.1).fit(Z, np.zeros(50))
        np.testing.assert_array_equal(moved.predict_radius(NEW), 0.0)
    fitted = JackknifeMinmaxRescaled(random_state=0).fit(Z, SCORES)
    several = fitted.predict_radius(NEW, LEVELS)
    for column, level in enumerate(LEVELS):
        np.testing.assert_array_equal(several[:, column], fitted.predict_radius(NEW, level))
    assert (np.diff(several, axis=1) >= 0).all()


def test_bad_input():
    method = JackknifeMinmaxRescaled()
    with pytest.raises(CalliperError, match=r"NaN or infinite .nan at position 49"):
        method.fit(Z, np.r_[SCORES[:-1], np.nan])
    with pytest.raises(CalliperError, match="scores must not be negative"):
        method.fit(Z, SCORES - 5)
    with pytest.raises(CalliperError, match=r"magnitudes must .* got 3 values for 50 rows"):
        method.fit(Z, SCORES, magnitudes=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="2 features"):
        method.fit(Z, SCORES).predict_radius(NEW[:, :1])
    with pytest.raises(ValueError, match="offset must be"):
        JackknifeMinmaxRescaled(offset=-1).fit(Z, SCORES)
    with pytest.raises(CalliperError, match="needs training inputs"):
        JackknifeMinmaxRescaled(RBF("median")).fit(Z, SCORES)
    with pytest.raises(CalliperError, match="Pass training="):
        JackknifeMinmaxRescaled(TunedKNN()).fit(Z, SCORES)
    tuned = JackknifeMinmaxRescaled(TunedKNN()).fit(Z, SCORES, training=(-Z, SCORES))
    assert isinstance(tuned.kernel_, KNN)


def test_clone_pickle_and_words():
    fitted = JackknifeMinmaxRescaled(RBF(0.7), offset=0.1, random_state=3).fit(Z, SCORES)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_radius(NEW), fitted.predict_radius(NEW))
    copy = clone(fitted)
    assert copy.get_params()["offset"] == 0.1 and not hasattr(copy, "n_calibration_")
    assert "JackknifeMinmaxRescaled" in fitted.guarantee(0.9).describe()
    assert not fitted.guarantee(0.9).has_law


@pytest.mark.parametrize("kernel", [RBF(0.7, smoothing=1.0), ForestProximity()])
def test_kernels_of_any_weights(kernel):
    """The largest leave-two-out mean, one by one: weights that are not a distance's alone."""
    rng = np.random.default_rng(5)
    Z, Z_new = rng.integers(0, 4, size=(12, 3)), rng.integers(0, 4, size=(5, 3))
    scores = rng.exponential(size=12)

    def weight(a, b):
        if isinstance(kernel, ForestProximity):
            return np.mean(a == b)
        return np.exp(-np.sum((a - b) ** 2) / (2 * 0.7**2)) + 1 / 12

    def mean(row, left_out):
        kept = [j for j in range(12) if j not in left_out]
        w = np.array([weight(row, Z[j]) for j in kept])
        return (w / w.sum() if w.sum() > 0 else np.full(len(w), 1 / len(w))) @ scores[kept]

    ratio = np.sort([scores[i] / mean(Z[i], {i}) for i in range(12)])
    largest = np.array([max(mean(row, {i}) for i in range(12)) for row in Z_new])
    expected = largest * ratio[int(np.ceil(0.8 * 13)) - 1]
    found = JackknifeMinmaxRescaled(kernel).fit(Z, scores).predict_radius(Z_new, 0.8)
    np.testing.assert_allclose(found, expected, rtol=1e-9)

"""Limits in which an adaptive method must equal a simpler one."""

import numpy as np
import pytest

from calliper import KNN, RBF, FullRescaled, JackknifeRescaled, Split

LEVELS = [0.1, 0.5, 0.8, 0.9]
rng = np.random.default_rng(1)
Z, SCORES, NEW = rng.normal(size=(40, 2)), rng.exponential(size=40), rng.normal(size=(9, 2))
SPLIT = Split().fit(Z, SCORES).predict_radius(NEW, LEVELS)


def test_jackknife_with_all_others_as_neighbours_is_split():
    """ŝ_{N+1,i} = ŝ_{i,N+1}: both are the mean of all but i, so the products are the scores."""
    radius = JackknifeRescaled(KNN(39)).fit(Z, SCORES).predict_radius(NEW, LEVELS)
    np.testing.assert_allclose(radius, SPLIT)


def test_jackknife_with_flat_weights_is_split():
    radius = JackknifeRescaled(RBF(1e8)).fit(Z, SCORES).predict_radius(NEW, LEVELS)
    np.testing.assert_allclose(radius, SPLIT, rtol=1e-9)


def test_full_with_all_as_neighbours_is_split():
    """s_i (S − s_i + t)… the order of s/(rest) is the order of s, so t_(Q) = s_(Q)."""
    radius = FullRescaled(KNN(40)).fit(Z, SCORES).predict_radius(NEW, LEVELS)
    np.testing.assert_allclose(radius, SPLIT)
    radius = FullRescaled(RBF(1e8)).fit(Z, SCORES).predict_radius(NEW, LEVELS)
    np.testing.assert_allclose(radius, SPLIT, rtol=1e-9)


@pytest.mark.parametrize("kernel", [KNN(5), RBF(0.5)], ids=repr)
@pytest.mark.parametrize("method", [JackknifeRescaled, FullRescaled])
def test_equal_scores_give_that_score(method, kernel):
    radius = method(kernel).fit(Z, np.full(40, 2.5)).predict_radius(NEW, LEVELS)
    np.testing.assert_allclose(radius, 2.5)


def test_huge_offset_is_split():
    """A scale that is a constant adapts to nothing."""
    for method in (JackknifeRescaled, FullRescaled):
        for kernel in (KNN(5), RBF(0.5)):
            radius = method(kernel, offset=1e9).fit(Z, SCORES).predict_radius(NEW, LEVELS)
            np.testing.assert_allclose(radius, SPLIT, rtol=1e-6)


def test_rms_is_the_mean_of_squares():
    rms = FullRescaled(KNN(5), statistic="rms").fit(Z, SCORES).predict_radius(NEW, LEVELS)
    mean = FullRescaled(KNN(5)).fit(Z, SCORES**2).predict_radius(NEW, LEVELS)
    np.testing.assert_allclose(rms, np.sqrt(mean))


def test_all_statistics_agree_for_one_neighbour():
    radii = [
        FullRescaled(KNN(1), statistic=s).fit(Z, SCORES).predict_radius(NEW, LEVELS)
        for s in ("mean", "rms", "quantile")
    ]
    np.testing.assert_allclose(radii[0], radii[1])
    np.testing.assert_allclose(radii[0], radii[2])


def test_jackknife_and_full_are_close_on_ordinary_data():
    rng = np.random.default_rng(0)
    Z, new = rng.uniform(size=(500, 1)), rng.uniform(size=(2000, 1))
    scores = np.abs(rng.normal(size=500)) * (0.1 + Z[:, 0])
    jackknife = JackknifeRescaled().fit(Z, scores).predict_radius(new)
    full = FullRescaled(KNN(10)).fit(Z, scores).predict_radius(new)
    assert abs(full.mean() / jackknife.mean() - 1) < 0.01


def test_one_sided_scores_are_rescaled_by_the_magnitudes_of_both_sides():
    errors = rng.normal(size=40)
    above = np.maximum(errors, 0)
    for method in (JackknifeRescaled(KNN(3)), FullRescaled(KNN(3))):
        method.fit(Z, above, magnitudes=np.abs(errors))
        assert np.isfinite(method.predict_radius(NEW, [0.5, 0.9])).all()

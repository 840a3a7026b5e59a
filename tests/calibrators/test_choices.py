"""What is tried, and looked at, where a method chooses something by itself."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from calliper import KNN, RBF, FullRescaled
from calliper.calibrators import LVD, RLCP, SLCP
from calliper.calibrators._full_rescaled import Locality, _candidates, _interval_scores
from calliper.calibrators._lcp import (
    _grid,
    _left_out,
    tuned_bandwidth,
    weights_by,
)
from calliper.calibrators._local_quantiles import effective_length_scale, widening_factor
from calliper.exceptions import ZeroScaleWarning
from calliper.kernels import TunedKNN, learn_metric
from calliper.quantile import conformal_rank

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize(
    ("size", "most"), [(200, [40, 57]), (80, [40]), (81, [40]), (82, [40, 41])]
)
def test_kernels_that_are_tried_besides_the_rule(size, most):
    """From a third of the rule's K to three times it, and half of the bag at most."""
    rule = Locality(KNN(20), 0.358, "rule")
    kernels, shares = _candidates(rule, size, free=True)
    assert [kernel.n_neighbors for kernel in kernels] == [20, 7, 10, 14, 28, *most]
    assert shares == [0.358, 0.0, 0.1, 0.2, 0.5, 0.75]
    assert _candidates(rule, size, free=False)[1] == [0.358]
    assert _candidates(Locality(KNN(20), 0.2, "rule"), size, True)[1] == [0.2, 0.0, 0.1, 0.5, 0.75]


def test_a_smoothed_kernel_has_its_global_part_already():
    rule = Locality(RBF(0.5, smoothing=1.0), 0.0, "rule")
    kernels, shares = _candidates(rule, 100, free=True)
    lengths = 0.5 * np.sqrt(2.0) ** np.array([0, -3, -2, -1, 1, 2, 3])
    np.testing.assert_allclose([kernel.length_scale for kernel in kernels], lengths, rtol=1e-2)
    assert shares == [0.0]
    assert _candidates(Locality(RBF(0.5), 0.0, "rule"), 100, free=True)[1][1:]


@pytest.mark.parametrize("n", [3, 17, 50, 2000])
def test_lcp_tries_all_other_points_first_and_one_last(n):
    grid = _grid("neighbors", np.zeros((n, n)))
    assert grid[0] == n - 1 and grid[-1] == 1 and grid == sorted(grid, reverse=True)


@pytest.mark.parametrize("localizer", ["exponential", "gaussian"])
def test_lcp_takes_the_smallest_mean_radius_of_few_infinite_ones(localizer):
    """At most one in twenty, each counting as the largest error; of equals, the widest."""
    few = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        Z = np.append(rng.normal(size=38), [9.0, -9.0])[:, None]
        errors = rng.exponential(size=40) * (0.2 + Z[:, 0] ** 2) ** (seed % 2)
        order = np.argsort(errors)
        apart, ordered = np.abs(Z - Z.T)[np.ix_(order, order)], errors[order]
        np.fill_diagonal(apart, np.inf)
        means = {}
        for h in _grid(localizer, apart):
            radius = _left_out(ordered, weights_by(localizer, apart, h), conformal_rank(0.79, 39))
            if np.isinf(radius).sum() <= 2:
                few += np.isinf(radius).any()
                means[h] = np.minimum(radius, errors.max()).mean()
        assert tuned_bandwidth(localizer, Z, errors, 0.79) == min(means, key=means.get)
    assert few > 20


def test_lvd_is_widened_on_as_many_training_points_as_calibrate():
    rng = np.random.default_rng(0)
    Z, labels = rng.normal(size=(40, 2)), rng.normal(size=40)
    metric = learn_metric(Z, labels, n_directions=2, max_iter=3, random_state=0)
    metric = replace(metric, matrix=1000 * metric.matrix)
    method = LVD(tuned=True, metric=metric, random_state=0)
    method.fit(Z, np.abs(labels), training=(Z, None, labels)).predict_radius(Z, [0.8, 0.9])
    points = metric.transform(Z)
    for level, factor in method.factors_.items():
        assert 0 < factor < 1 and factor == pytest.approx(widening_factor(points, level), rel=1e-9)
    twice = {"training": (np.vstack([Z, Z + 0.1]), None, np.append(labels, labels))}
    few = method.fit(Z[:9], np.abs(labels[:9]), **twice)  # 10 others are needed
    few.predict_radius(Z, 0.8)
    assert few.factors_[0.8] == 0


def test_rlcp_looks_at_as_many_training_points_as_calibrate():
    """Fifty of sixty points are nearly all of them, and of two thousand a few near by."""
    train = np.random.default_rng(0).uniform(size=(1500, 1))
    method = RLCP(random_state=0).fit(train[:60], train[:60, 0], training=train)
    assert method.length_scale_ > 5 * effective_length_scale(train)


def test_slcp_tunes_its_kernel_on_the_sizes_of_training_errors():
    rng = np.random.default_rng(0)
    Z, sizes = rng.uniform(size=(300, 1)), rng.exponential(size=300)
    sizes *= 0.1 + Z[:, 0] ** 4
    for kernel in (TunedKNN(), TunedKNN(n_neighbors=(2, 5, 100))):
        for seed in range(3):
            signed = sizes * rng.choice([-1.0, 1.0], size=300)
            made = [
                SLCP(kernel, random_state=seed).fit(Z, sizes, training=(Z, errors))
                for errors in (sizes, signed)
            ]
            assert repr(made[0].kernel_) == repr(made[1].kernel_)


def test_too_many_scales_of_zero_are_infinite_interval_scores():
    """Of four ratios two are infinite: whoever is left out, the largest of the others is."""
    errors, scale = np.array([1.0, 2.0, 3.0, 4.0]), np.array([[0.0, 0.0, 1.0, 1.0], np.ones(4)])
    nothing, plain = _interval_scores(errors, scale, 0.75)
    assert (nothing == np.inf).all()
    np.testing.assert_allclose(plain, [4.0, 4.0, 4.0, 3.0 + 1.0 / 0.25])


def test_half_of_the_neighbours_without_error_are_a_scale_of_zero():
    """At the median, by which a quantile is judged, and the mean of them all is none."""
    Z, scores = np.arange(40.0)[:, None], np.tile([0.0, 0.0, 0.0, 1.0], 10)
    with pytest.warns(ZeroScaleWarning):
        FullRescaled(KNN(8), statistic="quantile").fit(Z, scores)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ZeroScaleWarning)
        FullRescaled(KNN(8)).fit(Z, scores)

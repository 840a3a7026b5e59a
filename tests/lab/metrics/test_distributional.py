"""Measures of distributions: equal to their definitions, and bands that hold what they say."""

import numpy as np
import pytest

from calliper import CalliperError, Split
from calliper.lab.metrics import crps, pit_histogram, quantile_calibration


def batch(errors, m):
    split = Split().fit(np.zeros((len(errors), 1)), abs(errors), signs=np.sign(errors))
    return split.predict_distribution(np.zeros((m, 1)), np.zeros(m))


def test_crps_is_the_mean_over_rows_and_prefers_the_truth():
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    right, wide, off = (batch(rng.normal(at, s, 999), 400) for at, s in ((0, 1), (0, 3), (1, 1)))
    assert crps(y, right) == pytest.approx(right.crps(y).mean())
    assert crps(y, right) == pytest.approx(1 / np.sqrt(np.pi), rel=0.1)  # of N(0, 1)
    assert crps(y, right) < min(crps(y, wide), crps(y, off))


def test_histogram_counts_every_target_once_and_sees_what_is_wrong():
    rng = np.random.default_rng(1)
    y = rng.normal(size=3000)
    right, wide = (batch(rng.normal(0, s, 999), 3000) for s in (1, 2))
    table = pit_histogram(y, right)
    assert table.share.sum() == pytest.approx(1) and table.n == 3000
    np.testing.assert_allclose(table.expected, 0.1)
    assert table.n_outside <= 2
    assert pit_histogram(y, wide).n_outside >= 6
    assert list(table.to_frame().columns) == ["place", "share", "expected", "lower", "upper"]
    assert len(pit_histogram(y, right, n_bins=4).place) == 4


@pytest.mark.parametrize("measure", [pit_histogram, quantile_calibration])
@pytest.mark.long
def test_bands_hold_over_draws_of_the_calibration_set(measure):
    """With 40 points most of the scatter is theirs: a binomial band would be left by a third."""
    rng, outside = np.random.default_rng(2), []
    for _ in range(150):
        table = measure(rng.normal(size=400), batch(rng.normal(size=40), 400))
        outside.append(table.n_outside / len(table.share))
    error = np.std(outside) / np.sqrt(len(outside))
    assert abs(np.mean(outside) - 0.05) < 4 * error + 0.01  # 0.01: shares are steps of 1/400


def test_quantiles_expect_their_rank():
    rng = np.random.default_rng(3)
    y = rng.normal(size=500)
    table = quantile_calibration(y, batch(rng.normal(size=99), 500), p=[0.255, 0.5])
    np.testing.assert_allclose(table.expected, [0.26, 0.5])
    np.testing.assert_allclose(table.place, [0.255, 0.5])
    assert (table.lower < table.share).all() and (table.share < table.upper).all()


def test_bad_input():
    with pytest.raises(CalliperError, match="n_bins"):
        pit_histogram([0.0], batch(np.ones(5), 1), n_bins=0)
    with pytest.raises(CalliperError, match="p must lie"):
        quantile_calibration([0.0], batch(np.ones(5), 1), p=[2])


@pytest.mark.parametrize("measure", [crps, pit_histogram, quantile_calibration])
def test_intervals_are_no_distribution(measure):
    with pytest.raises(TypeError, match=r"must come from predict_distribution\(X\); got tuple"):
        measure([1.0], ([0.0], [2.0]))

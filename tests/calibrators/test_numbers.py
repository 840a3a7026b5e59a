"""Scores, offsets and features of any size: never NaN, never less covered, never all of memory."""

import math
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

from calliper import KNN, RBF, CalliperError, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import RLCP, JackknifeMinmaxRescaled
from calliper.calibrators._full_rescaled import LARGEST, SMALL
from calliper.kernels import rescale
from calliper.quantile import exponent, power_of_two

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
rng = np.random.default_rng(0)
Z, NOISE = rng.normal(size=(60, 2)), rng.exponential(size=60)
METHODS = [
    FullRescaled(KNN(5)),
    FullRescaled(KNN(5), statistic="rms"),
    FullRescaled(KNN(5), statistic="quantile"),
    FullRescaled(KNN(5), shrinkage=0.4),
    FullRescaled(RBF(1.0)),
    JackknifeRescaled(KNN(5)),
    JackknifeMinmaxRescaled(KNN(5)),
]


@pytest.mark.parametrize("log2", [-1030, -900, -300, 300, 990])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_power_of_two_changes_no_digit(method, log2):
    """But for those that numbers below the smallest normal one have not got."""
    expected = method.fit(Z[:50], NOISE[:50]).predict_radius(Z[50:], 0.8)
    found = method.fit(Z[:50], np.ldexp(NOISE[:50], log2)).predict_radius(Z[50:], 0.8)
    tolerance = 0 if log2 > -1000 else 1e-3
    np.testing.assert_allclose(np.ldexp(found, -log2), expected, rtol=tolerance)


@pytest.mark.parametrize("kind", [JackknifeRescaled, JackknifeMinmaxRescaled])
def test_means_of_the_smallest_numbers_have_all_their_digits(kind):
    """Only the radius itself is rounded: up, to a multiple of the smallest number."""
    scores, least = np.arange(50.0) * 7 % 8 + 1, 5e-324
    expected = kind(KNN(3)).fit(Z[:50], scores).predict_radius(Z[50:], 0.8)
    found = kind(KNN(3)).fit(Z[:50], scores * least).predict_radius(Z[50:], 0.8) / least
    assert ((expected <= found) & (found <= expected + 1.5)).all()


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("size", [1e-310, 1.0, 1e200])
@pytest.mark.parametrize("offset", [1e-300, 1.0, 1e300])
def test_any_offset_gives_numbers_or_says_why_not(method, size, offset):
    scores, method = NOISE * size, clone(method).set_params(offset=offset)
    decades, most = math.log10(offset) - math.log10(size), 105 if "rms" in repr(method) else 430
    if isinstance(method, FullRescaled) and decades > most:
        with pytest.raises(CalliperError, match="differ too much to"):
            method.fit(Z[:50], scores[:50])
        return
    radius = method.fit(Z[:50], scores[:50]).predict_radius(Z[50:], 0.8)
    assert not np.isnan(radius).any()
    assert np.median(radius) >= np.median(scores[:50]) / 100


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_scores_near_the_largest_number_are_refused(method):
    with pytest.raises(CalliperError, match=r"scores must be at most 1e\+302 .* got 1\.\de\+308"):
        method.fit(Z, NOISE / NOISE.max() * 1.7e308)
    Split().fit(Z, NOISE * 1e300)


@pytest.mark.parametrize("decades", [(-300, 0), (-150, 150)])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_scores_over_hundreds_of_decades_keep_their_coverage(method, decades):
    """Products of tiny scores vanish: a radius of zero would cover nothing."""
    share = []
    for number in range(40):
        rng = np.random.default_rng(number)
        rows, scores = rng.integers(3, size=(59, 1)) * 1.0, 10.0 ** rng.uniform(*decades, 59)
        if "rms" in repr(method):
            with pytest.raises(CalliperError, match="differ too much to"):
                method.fit(rows[:39], scores[:39])
            return
        radius = method.fit(rows[:39], scores[:39]).predict_radius(rows[39:], 0.9)
        assert not np.isnan(radius).any()
        share.append(np.mean(scores[39:] <= radius))
    proved = method.guaranteed_coverage(0.9)
    assert np.mean(share) >= proved - 3.5 * np.std(share) / math.sqrt(len(share))


def test_a_ratio_that_vanishes_is_not_zero():
    found = rescale(np.array([1e-200, 0.0, 3e-300, 1.0]), np.array([1e200, 1.0, 1e20, 0.0]))
    assert 0 < found[0] < 1e-320 and found[1] == 0 and found[2] >= 3e-320 and np.isinf(found[3])


@pytest.mark.parametrize("largest", [5e-324, 1e-310, 0.5, 0.75, 1.0, 3.0, 1e300, 1.7e308])
def test_power_of_two(largest):
    unit = power_of_two(np.array([0.0, -largest]))
    assert unit >= largest or exponent(np.array([largest])) == 1024
    assert unit / 2 < largest or largest == 5e-324
    assert power_of_two(np.zeros(3)) == 1.0


def test_extreme_offsets_beside_left_out_errors():
    left_out = {"left_out": (np.vstack([Z, Z]), np.append(NOISE, NOISE))}
    for offset in (1e200, 1e-200):
        for statistic in ("mean", "quantile"):
            method = FullRescaled(statistic=statistic, offset=offset).fit(Z, NOISE, **left_out)
            assert np.isfinite(method.predict_radius(Z)).all()
    with pytest.raises(CalliperError, match="with an offset of 1e\\+200, differ too much"):
        FullRescaled(KNN(5), statistic="rms", offset=1e200).fit(Z, NOISE)
    FullRescaled(statistic="rms", offset=1e50).fit(Z, NOISE, **left_out)


def test_rlcp_chooses_its_length_scale_beside_one_calibration_point():
    method = RLCP(random_state=0).fit(Z[:1], NOISE[:1], training=Z)
    assert method.length_scale_ > 0 and not np.isnan(method.predict_radius(Z, 0.5)).any()


@pytest.mark.parametrize(("n", "m", "d"), [(300, 200, 2000), (1200, 1500, 100)])
def test_memory_stays_within_a_few_times_the_data(n, m, d):
    """In high dimension nearly all pairs are in doubt: they are settled in blocks."""
    rng = np.random.default_rng(0)
    rows, new, scores = rng.normal(size=(n, d)), rng.normal(size=(m, d)), rng.exponential(size=n)
    tracemalloc.start()
    try:
        FullRescaled().fit(rows, scores).predict_radius(new)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * (rows.nbytes + new.nbytes) + 35e6


@pytest.mark.parametrize("power", [1, 2])
def test_where_products_of_small_scores_begin_to_vanish(power):
    """From 2 to SMALL on, where the largest is 2 to LARGEST, a radius of 0 is no rounding."""
    smallest = 2.0 ** ((SMALL - LARGEST) // power)
    scores = np.append(np.zeros(30), [smallest, 1.0])
    rows = np.arange(32.0)[:, None]
    method = FullRescaled(KNN(31), statistic="rms" if power == 2 else "mean")
    assert method.fit(rows, scores).predict_radius([[5.0]], 0.5) == 0
    scores[30] = np.nextafter(smallest, 0)
    if power == 2:
        with pytest.raises(CalliperError, match="differ too much to"):
            method.fit(rows, scores)
        return
    assert 0 < method.fit(rows, scores).predict_radius([[5.0]], 0.5) < 1e-200


def test_one_point_after_very_small_scores():
    """What the smallest were lifted by is forgotten with them."""
    method = JackknifeMinmaxRescaled(KNN(5)).fit(Z[:50], np.ldexp(NOISE[:50], -1000))
    assert method.fit(Z[:1], [3.0]).predict_radius(Z[50:51], 0.5) == 3.0
    two = method.fit(Z[:2], [1.0, 3.0])  # ratios 1/3 and 3, and 3 is the larger scale of a new one
    np.testing.assert_allclose(two.predict_radius(Z[50:51], [0.3, 0.6]), [[1.0, 9.0]], rtol=1e-9)

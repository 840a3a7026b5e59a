"""The paper's 1-D task: its law, its oracle and its two readings."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import brentq

from calliper.exceptions import CalliperError
from calliper.lab.datasets import one_dimensional
from calliper.lab.metrics import empirical_coverage, mean_width, r2_sqi, tau_sqi

GRID = ((np.arange(100_000) + 0.5) / 100_000)[:, None]


def test_shapes_range_and_seed():
    problem, again = one_dimensional(50, random_state=3), one_dimensional(50, random_state=3)
    assert problem.X.shape == (50, 1) and problem.y.shape == (50,)
    assert problem.X.min() >= 0 and problem.X.max() <= 1
    np.testing.assert_array_equal(problem.X, again.X)
    np.testing.assert_array_equal(problem.y, again.y)
    assert not np.array_equal(problem.y, one_dimensional(50, random_state=4).y)
    assert not np.array_equal(one_dimensional(50).y, one_dimensional(50).y)


def test_generators_and_random_states_move_on():
    for rng in np.random.default_rng(0), np.random.RandomState(0):
        first, second = (one_dimensional(5, random_state=rng) for _ in range(2))
        assert not np.array_equal(first.X, second.X)


def test_the_printed_equations_at_hand_picked_points():
    problem = one_dimensional(1, noise="radians")
    assert problem.mean([[0.0]])[0] == 0.1
    assert problem.mean([[0.5]])[0] == pytest.approx(0.1 + np.sin(5.5) / 4)
    assert problem.mean([[1.0]])[0] == pytest.approx(0.1 + np.sin(10.5))
    assert problem.standard_deviation([[0.0]])[0] == pytest.approx(0.1 * (0.01 + np.sin(0.3)))
    assert problem.standard_deviation([[1.0]])[0] == pytest.approx(0.1 * (0.01 + np.sin(2.3)))
    assert problem.standard_deviation([[(np.pi - 0.3) / 2]])[0] == pytest.approx(0.001)


def test_two_cycles_repeat_after_a_quarter():
    problem = one_dimensional(1)
    assert problem.noise == "cycles"
    spread = problem.standard_deviation(GRID)
    np.testing.assert_allclose(spread[:25_000], spread[25_000:50_000], atol=1e-12)
    assert spread.min() == pytest.approx(0.001, abs=1e-5)
    assert spread.max() == pytest.approx(0.101, abs=1e-8)


@pytest.mark.parametrize("noise", ["cycles", "radians"])
def test_the_noise_is_standard_normal_after_rescaling(noise):
    problem = one_dimensional(20_000, noise=noise, random_state=0)
    z = (problem.y - problem.mean(problem.X)) / problem.standard_deviation(problem.X)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert stats.kstest(problem.X[:, 0], "uniform").pvalue > 1e-3


def test_both_readings_share_the_rows_and_the_standardised_noise():
    one, two = (one_dimensional(100, noise=n, random_state=0) for n in ("cycles", "radians"))
    np.testing.assert_array_equal(one.X, two.X)
    z_one, z_two = ((p.y - p.mean(p.X)) / p.standard_deviation(p.X) for p in (one, two))
    np.testing.assert_allclose(z_one, z_two)


@pytest.mark.parametrize(
    ("noise", "mean_sine"),
    [("cycles", 2 / np.pi), ("radians", (np.cos(0.3) - np.cos(2.3)) / 2)],
)
def test_mean_half_width_of_the_oracle_in_closed_form(noise, mean_sine):
    oracle = one_dimensional(1, noise=noise).oracle(GRID, 0.95)
    expected = stats.norm.ppf(0.975) * 0.1 * (0.01 + mean_sine)
    assert mean_width(oracle, half=True) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("noise", "least"), [("cycles", 0.1224), ("radians", 0.1596)])
def test_the_least_mean_half_width_of_any_intervals_that_cover_95_percent(noise, least):
    spread = one_dimensional(1, noise=noise).standard_deviation(GRID)

    # Mean width is least, for its mean coverage, where the density at every end is the same.
    def radius(log_density):
        excess = log_density + np.log(spread * np.sqrt(2 * np.pi))
        return spread * np.sqrt(np.maximum(-2 * excess, 0))

    def surplus(log_density):
        return np.mean(2 * stats.norm.cdf(radius(log_density) / spread) - 1) - 0.95

    narrowest = radius(brentq(surplus, -10, 5)).mean()
    assert narrowest == pytest.approx(least, abs=5e-5)
    assert narrowest < mean_width(one_dimensional(1, noise=noise).oracle(GRID, 0.95), half=True)


def test_the_oracle_is_centred_and_covers_its_level_in_every_bin():
    problem = one_dimensional(100_000, random_state=1)
    oracle = problem.oracle(problem.X, 0.9)
    middle = (oracle.lower + oracle.upper) / 2
    np.testing.assert_allclose(middle, problem.mean(problem.X), atol=1e-12)
    assert oracle.coverage == 0.9
    assert empirical_coverage(problem.y, oracle) == pytest.approx(0.9, abs=0.004)
    assert tau_sqi(problem.y, oracle) == 1.0
    assert r2_sqi(problem.y, oracle) > 0.99


def test_several_levels_equal_one_at_a_time():
    problem = one_dimensional(7, random_state=0)
    several = problem.oracle(problem.X, [0.5, 0.9])
    assert several.lower.shape == (7, 2) and several.coverage == (0.5, 0.9)
    for level in (0.5, 0.9):
        one, picked = problem.oracle(problem.X, level), several.at(level)
        np.testing.assert_array_equal(one.lower, picked.lower)
        np.testing.assert_array_equal(one.upper, picked.upper)


def test_high_levels_keep_their_digits():
    oracle = one_dimensional(1).oracle([[0.0]], 1 - 2**-53)
    spread = 0.1 * (0.01 + np.sin(0.3))
    assert oracle.width[0] / 2 == pytest.approx(stats.norm.isf(2**-54) * spread, rel=1e-12)


def test_a_frame_keeps_its_index_and_the_problem_a_pickle():
    problem = pickle.loads(pickle.dumps(one_dimensional(3, random_state=0)))
    frame = pd.DataFrame(problem.X, index=["a", "b", "c"])
    assert list(problem.oracle(frame, 0.9).to_frame().index) == ["a", "b", "c"]


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "10"])
def test_a_wrong_number_of_rows(n):
    with pytest.raises(CalliperError, match="n must be an integer of at least 1"):
        one_dimensional(n)


def test_a_wrong_reading_level_or_shape():
    with pytest.raises(CalliperError, match="noise must be 'cycles' or 'radians'; got 'degrees'"):
        one_dimensional(3, noise="degrees")
    problem = one_dimensional(3)
    with pytest.raises(CalliperError, match="strictly between 0 and 1; got 95"):
        problem.oracle(problem.X, 95)
    for ask in problem.mean, problem.standard_deviation, problem.oracle:
        with pytest.raises(CalliperError, match=r"one column, shape \(m, 1\); got shape \(4, 2\)"):
            ask(np.zeros((4, 2)))


def test_the_oracle_takes_plain_lists():
    oracle = one_dimensional(5, random_state=0).oracle([[0.1], [0.2]])
    assert oracle.index is None and oracle.to_frame().shape == (2, 2)

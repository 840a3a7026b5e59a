"""Markov's and Cantelli's inequalities for scores divided by their exact mean."""

import numpy as np
import pytest
from scipy import stats

from calliper import CalliperError
from calliper.lab.bounds import cantelli_local_coverage, cantelli_threshold, markov_local_coverage
from oracles import tuning as oracles

LAWS = {
    "gamma": stats.gamma(0.5, scale=3.0),
    "near-constant gamma": stats.gamma(50.0, scale=0.02),
    "exponential in small units": stats.expon(scale=0.01),
    "lognormal": stats.lognorm(1.0),
    "heavy lognormal": stats.lognorm(2.0, scale=0.1),
    "Pareto": stats.pareto(2.5),
    "Pareto without variance": stats.pareto(1.5),
}
THRESHOLDS = np.array([0.1, 0.5, 1.0, 1.01, 1.5, 2.0, 3.0, 5.0, 20.0, 1000.0])


@pytest.mark.parametrize("name", LAWS)
def test_below_the_true_coverage(name):
    law = LAWS[name]
    variation = law.std() / law.mean()
    truth = law.cdf(THRESHOLDS * law.mean())
    assert (markov_local_coverage(THRESHOLDS) <= truth).all()
    assert (cantelli_local_coverage(THRESHOLDS, variation) <= truth).all()
    sample = law.rvs(20_000, random_state=0) / law.mean()
    seen = (sample[:, None] < THRESHOLDS).mean(axis=0)
    error = np.sqrt(0.25 / len(sample))
    assert (markov_local_coverage(THRESHOLDS) <= seen + 4 * error).all()
    assert (cantelli_local_coverage(THRESHOLDS, variation) <= seen + 4 * error).all()


@pytest.mark.parametrize("name", [name for name in LAWS if name != "Pareto without variance"])
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_the_threshold_reaches_the_level(name, coverage):
    law = LAWS[name]
    threshold = cantelli_threshold(coverage, law.std() / law.mean())
    assert law.cdf(threshold * law.mean()) >= coverage


def test_one_threshold_for_all_inputs_of_equal_variation():
    """The paper's reading: scores of one shape and any local scale are covered everywhere."""
    local_mean = np.array([0.001, 1.0, 500.0])
    threshold = cantelli_threshold(0.9, 1.0)  # exponential scores
    coverage = stats.expon(scale=local_mean).cdf(threshold * local_mean)
    assert (coverage >= 0.9).all() and np.ptp(coverage) < 1e-12


def test_two_point_laws_attain_cantelli():
    """Values τ and 1 − r²/(τ−1) with mean 1 and standard deviation r."""
    for tau, r in [(2.0, 0.5), (3.0, 1.0), (10.0, 2.5)]:
        value = np.array([tau, 1 - r**2 / (tau - 1)])
        chance = np.array([r**2, (tau - 1) ** 2]) / (r**2 + (tau - 1) ** 2)
        assert value @ chance == pytest.approx(1) and (value >= 0).all()
        assert (value - 1) ** 2 @ chance == pytest.approx(r**2)
        assert cantelli_local_coverage(tau, r) == pytest.approx(chance[1])  # P(s < τ)


def test_the_printed_denominator_is_wrong():
    """s̄ in place of s̄² lets a change of units break the inequality."""
    tau = 2.0

    def printed(law):
        return law.var() / (law.var() + (tau - 1) ** 2 * law.mean())

    metres, kilometres = stats.expon(scale=10.0), stats.expon(scale=0.01)
    truth = metres.sf(tau * metres.mean())
    assert truth == pytest.approx(kilometres.sf(tau * kilometres.mean()))
    assert printed(kilometres) < 0.01 < 0.13 < truth  # claims at most 1 %, true are 13.5 %
    assert printed(metres) != pytest.approx(printed(kilometres))
    assert 1 - cantelli_local_coverage(tau, 1.0) >= truth  # corrected: 50 %, in any unit


def test_equal_to_the_oracles():
    for tau in THRESHOLDS:
        assert markov_local_coverage(tau) == pytest.approx(oracles.markov_bound(float(tau)))
        for r in (0.0, 0.3, 1.0, 8.0):
            miss = oracles.cantelli_bound(r, float(tau))
            assert cantelli_local_coverage(tau, r) == pytest.approx(1 - miss, abs=1e-14)
    for r in (0.0, 0.3, 8.0):
        expected = oracles.cantelli_threshold(r, "0.05")
        assert cantelli_threshold(0.95, r) == pytest.approx(expected)


def test_shapes_and_limits():
    assert isinstance(markov_local_coverage(2), float) and markov_local_coverage(2) == 0.5
    assert markov_local_coverage(np.inf) == 1 and markov_local_coverage(0.0) == 0
    assert markov_local_coverage(np.full((2, 3), 4.0)).shape == (2, 3)
    both = cantelli_local_coverage(THRESHOLDS[:, None], [0.1, 1.0])
    assert both.shape == (10, 2) and both[5, 1] == cantelli_local_coverage(2.0, 1.0)
    assert cantelli_local_coverage(np.inf, np.inf) == 1
    assert cantelli_local_coverage(5.0, np.inf) == 0
    assert cantelli_local_coverage(1.0, 0.0) == 0 and cantelli_local_coverage(1.1, 0.0) == 1
    assert cantelli_local_coverage(1 + 1e-15, 1e300) == 0  # no overflow
    with np.errstate(divide="raise"):  # at the mean itself nothing follows, nor is divided by
        np.testing.assert_array_equal(cantelli_local_coverage([0.5, 1.0], 2.0), 0)
    assert isinstance(cantelli_threshold(0.9, 1.0), float)
    levels = [0.5, 0.9, 0.99]
    back = [cantelli_local_coverage(cantelli_threshold(c, 0.7), 0.7) for c in levels]
    np.testing.assert_allclose(back, levels)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: markov_local_coverage(-1.0), "threshold must be >= 0; got -1"),
        (lambda: markov_local_coverage([1.0, np.nan]), "threshold must be.*got nan at position 1"),
        (lambda: markov_local_coverage("x"), "threshold must be a number or an array; got 'x'"),
        (lambda: cantelli_local_coverage(2.0, -0.1), "variation must be >= 0; got -0.1"),
        (lambda: cantelli_local_coverage(np.nan, 1.0), "threshold must be.*nan"),
        (lambda: cantelli_local_coverage([1, 2], [1, 2, 3]), r"threshold \(2,\) and variation"),
        (lambda: cantelli_threshold(1.0, 1.0), "coverage must lie strictly between 0 and 1"),
        (lambda: cantelli_threshold([0.8, 0.9], 1.0), "coverage must be one level"),
        (lambda: cantelli_threshold(0.9, np.nan), "variation must be >= 0; got nan"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(CalliperError, match=message):
        call()

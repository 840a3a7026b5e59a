import warnings
from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calliper import FullRescaled, JackknifeRescaled, Split, guarantees
from calliper.calibrators import MADSplit
from calliper.exceptions import CalliperError, SmallCalibrationWarning
from calliper.quantile import as_fraction
from oracles import rescaled as oracles


@given(thousandths=st.integers(1, 999), n=st.integers(1, 500))
def test_proved_values(thousandths, n):
    level = Fraction(thousandths, 1000)
    q = oracles.conformal_rank(level, n)
    full = guarantees.conformal_coverage(float(level), n)
    assert full == pytest.approx(float(Fraction(q, n + 1)))
    assert full >= float(level) - 1e-12
    jackknife = guarantees.jackknife_coverage(float(level), n)
    assert jackknife >= 0
    assert jackknife >= float(1 - 2 * (1 - level)) - 1e-12
    assert jackknife <= full + 1e-12
    if q >= n:
        assert jackknife == pytest.approx(full)


def test_words_say_what_is_and_is_not_promised():
    rng = np.random.default_rng(0)
    Z, scores = rng.normal(size=(99, 1)), rng.exponential(size=99)
    split = Split().fit(Z, scores).guarantee(0.9)
    assert split.proved == 0.9
    words = split.describe()
    for part in (
        "at least 0.9 ",
        "exchangeable",
        "marginal",
        "nine cases out of ten",
        "99 calibration",
    ):
        assert part in words
    assert "0.847 and 0.944" in words
    begins = ("Split: ", "This holds if", "and if", "This probability", "For this", "calliper ")
    for line, begin in zip(words.splitlines(), begins, strict=True):
        assert line.startswith(begin) and len(line) < 150
    jackknife = JackknifeRescaled().fit(Z, scores).guarantee(0.9).describe()
    assert "at least 0.81 " in jackknife and "no bound on the difference is known" in jackknife
    assert "guarantee" not in jackknife
    full = FullRescaled().fit(Z, scores).guarantee(0.9).describe()
    assert "at least 0.9 " in full
    mad = MADSplit().fit(Z, scores, training=(Z, scores)).guarantee(0.9)
    assert mad.has_law
    few = Split().fit(Z[:5], scores[:5]).guarantee(0.9).describe()
    assert "5 calibration rows cannot support coverage 0.9" in few
    assert len(split.assumptions) == 2


def test_no_law_for_an_infinite_radius():
    with pytest.raises(ValueError, match="5 rows are too few"):
        guarantees.coverage_law(0.9, 5)


@pytest.mark.parametrize("level", [0.3, 0.5, 0.9])
def test_points_required_for_a_confidence_are_the_fewest(level):
    """Also where the logarithms are all but a whole multiple of one another."""
    for n in (1, 2, 3, 5, 8, 13):
        for confidence in (1 - level**n, 1 - level**n - 1e-9, 1 - level**n + 1e-9):
            found = guarantees.required_for_confidence(level, confidence)
            enough = (
                m for m in range(1, 20) if guarantees.confident_rank(level, m, confidence) <= m
            )
            assert found == next(enough)


def test_a_confidence_that_few_points_cannot_support():
    """One warning where rows are asked for, none where the promise is."""
    split = Split().fit(np.zeros((5, 1)), np.arange(5.0))
    with pytest.warns(SmallCalibrationWarning, match=r"5 calibration .* Use at least 22 rows"):
        assert split.predict_radius(np.zeros((1, 1)), 0.9, confidence=0.9) == np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert split.guarantee(0.9, confidence=0.9).confidence == 0.9
        assert split.predict_radius(np.zeros((1, 1)), 0.5, confidence=0.8) == 3.0  # 13 of 16


def test_the_spread_is_known_where_the_law_is():
    """Nine of ten draws, as ``coverage_law`` says; nothing where it says nothing."""
    promise = guarantees.Guarantee("Some", 0.9, 99, 0.9, has_law=True)
    low, high = promise._spread()
    assert (round(low, 3), round(high, 3)) == (0.847, 0.944)
    assert replace(promise, n_calibration=9)._spread() is not None  # rank 9 of 9
    for other in (
        {"has_law": False},
        {"tails": 2},
        {"note": "nothing"},
        {"n_effective": 50.0},
        {"confidence": 0.9},
        {"n_calibration": 8},
    ):
        assert replace(promise, **other)._spread() is None, other
        assert replace(promise, **other).assumptions[1:] == guarantees.ASSUMPTIONS[1:]


def exact_confidence(level, n, rank):
    """P(Binomial(N, level) < rank) in whole numbers."""
    p = as_fraction(level)
    return sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(rank))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("n", [1, 5, 12, 40])
def test_confident_ranks_next_to_their_edges(level, n):
    """A confidence that a rank reaches exactly, and one that it misses by a millionth."""
    for rank in range(1, n + 1):
        reached = exact_confidence(level, n, rank)
        margin = min(reached, 1 - reached) / 10**6
        if margin > 1e-13:
            assert guarantees.confident_rank(level, n, float(reached - margin)) == rank
            assert guarantees.confident_rank(level, n, float(reached + margin)) == rank + 1
        if margin > 1e-10:  # else a confidence has too few digits of its own
            assert guarantees.confident_rank(level, n, float(reached)) == rank


def test_the_smallest_score_reaches_the_least_confidence_exactly():
    """So little that no margin for rounding is left beside one: what is equal suffices."""
    for n in range(5, 41):
        assert guarantees.confident_rank(0.5, n, 2.0**-n) == 1


@pytest.mark.parametrize(
    ("promise", "fewest"),
    [
        ({}, 9),
        ({"tails": 2}, 19),  # each at 0.95
        ({"confidence": 0.95}, 29),
        ({"tails": 2, "confidence": 0.95}, 72),  # each at 0.95 with confidence 0.975
    ],
)
def test_an_infinite_interval_is_said_to_be_one(promise, fewest):
    """One point less than is needed is too few; weights and notes speak for themselves."""
    enough = guarantees.Guarantee("Some", 0.9, fewest, 0.9, **promise)
    few = replace(enough, n_calibration=fewest - 1)
    assert "cannot support" not in enough.describe()
    words = f"Some: {fewest - 1} calibration rows cannot support coverage 0.9"
    assert few.describe().startswith(words)
    for other in ({"note": "nothing"}, {"n_effective": 3.0}):
        assert "cannot support" not in replace(few, **other).describe()


def test_a_promise_says_no_more_than_it_is_given():
    words = guarantees.Guarantee("Some", 0.9, 99, 0.9).describe()
    assert "no bound on the difference" in words and "marginal: an average over all" in words
    for part in (
        "within each group",
        "nine cases",
        "by weight",
        "These intervals",
        "confidence",
    ):
        assert part not in words
    more = {"around": "centred on a mean", "n_effective": 40.0, "groups": 3}
    words = guarantees.Guarantee("Some", 0.9, 99, 0.9, **more).describe()
    for part in (
        "These intervals are centred on a mean.",
        "count for 40.0",
        "Weights ŵ that are estimated",
        "This holds if within each group calibration and new rows are independent draws",
        "within each group: an average over its inputs and over draws of its calibration rows "
        "(99 in the group with this guarantee)",
    ):
        assert part in words


@pytest.mark.parametrize("law", ["coverage_law", "conformal_coverage", "jackknife_coverage"])
def test_levels_as_percentages_are_refused(law):
    with pytest.raises(CalliperError, match=r"coverage must lie strictly .* divide by 100"):
        getattr(guarantees, law)(90, 500)

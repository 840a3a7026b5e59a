"""The interval score against its definition, and its scorer inside scikit-learn."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.lab.metrics import interval_score, interval_scorer
from oracles.rescaled import interval_score as slow_interval_score

INF = float("inf")
rows = st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 3), min_size=1, max_size=30)
levels = st.sampled_from(["0.5", "0.8", "0.9", "0.95", "0.999"])


@given(rows, levels)
def test_equals_the_definition(rows, level):
    y, one, two = np.array(rows).T
    lower, upper = np.minimum(one, two), np.maximum(one, two)
    fast = interval_score(y, (lower, upper), coverage=float(level))
    assert fast == pytest.approx(slow_interval_score(y, lower, upper, level), rel=1e-12)


@given(st.lists(st.tuples(*[st.integers(-99, 99)] * 3), min_size=1), st.integers(-9, 9))
def test_scales_with_the_unit_and_ignores_order_and_origin(rows, shift):
    y, one, two = np.array(rows, float).T
    lower, upper = np.minimum(one, two), np.maximum(one, two)
    score = interval_score(y, (lower, upper), coverage=0.75)
    assert interval_score(
        4 * y + shift, (4 * lower + shift, 4 * upper + shift), coverage=0.75
    ) == pytest.approx(4 * score)
    assert interval_score(y[::-1], (lower[::-1], upper[::-1]), coverage=0.75) == score
    assert interval_score(-y, (-upper, -lower), coverage=0.75) == score


def test_inside_it_is_the_width_and_outside_twice_the_distance_over_the_miss_rate_more():
    assert interval_score([0.5], ([0.0], [1.0]), coverage=0.9) == 1.0
    assert interval_score([1.0], ([0.0], [1.0]), coverage=0.9) == 1.0
    assert interval_score([1.5], ([0.0], [1.0]), coverage=0.9) == 1.0 + 0.5 * 20
    assert interval_score([-0.5], ([0.0], [1.0]), coverage=0.9) == 1.0 + 0.5 * 20


def test_the_fine_is_exact_where_one_minus_the_level_rounds():
    # 1 - 0.95 is 0.050000000000000044; a fine of 2 / that would give 39.99999999999997.
    assert interval_score([2.0], ([0.0], [1.0]), coverage=0.95) == 41.0


def test_true_quantiles_of_a_normal_law_give_the_closed_form():
    y = norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    z = norm.ppf(0.95)
    # E|Y| beyond z: 2 (phi(z) - z alpha / 2), so the score is 4 phi(z) / alpha.
    expected = 4 * norm.pdf(z) / 0.1
    ends = np.full_like(y, z)
    assert interval_score(y, (-ends, ends), coverage=0.9) == pytest.approx(expected, rel=1e-4)
    for factor in (0.9, 1.1):
        assert interval_score(y, (-factor * ends, factor * ends), coverage=0.9) > expected


def test_the_level_of_the_intervals_is_the_default_and_an_explicit_one_wins():
    intervals = Intervals(np.zeros(1), np.ones(1), 0.9)
    assert interval_score([2.0], intervals) == 21.0
    assert interval_score([2.0], intervals, coverage=0.5) == 5.0


def test_an_infinite_width_gives_an_infinite_score():
    assert interval_score([0.0, 5.0], ([-INF, 0.0], [INF, 1.0]), coverage=0.9) == INF
    assert interval_score([9.0], ([-INF], [1.0]), coverage=0.9) == INF


def test_one_column_is_one_level():
    intervals = Intervals(np.zeros((1, 1)), np.ones((1, 1)), (0.9,))
    assert interval_score([2.0], intervals) == 21.0


def test_several_levels_are_refused_with_the_way_out():
    several = Intervals(np.zeros((2, 2)), np.ones((2, 2)), (0.8, 0.95))
    with pytest.raises(CalliperError, match=r"got 2 \(0\.8, 0\.95\): pass intervals\.at\(level\)"):
        interval_score([0.0, 0.0], several)
    unnamed = Intervals(np.zeros((2, 2)), np.ones((2, 2)))
    with pytest.raises(CalliperError, match=r"got 2, unnamed: .* sets the levels"):
        interval_score([0.0, 0.0], unnamed, coverage=0.9)


def test_a_level_must_come_from_somewhere_and_make_sense():
    with pytest.raises(CalliperError, match=r"is not known: pass coverage="):
        interval_score([0.0], ([0.0], [1.0]))
    with pytest.raises(
        CalliperError, match=r"strictly between 0 and 1; got 95\. If it is a percentage"
    ):
        interval_score([0.0], ([0.0], [1.0]), coverage=95)
    with pytest.raises(CalliperError, match="coverage must be one level"):
        interval_score([0.0], ([0.0], [1.0]), coverage=[0.8, 0.9])


def test_targets_are_checked():
    with pytest.raises(CalliperError, match=r"y must .* got 2 values for 1 rows"):
        interval_score([0.0, 1.0], ([0.0], [1.0]), coverage=0.9)


class Constant(BaseEstimator):
    """Intervals of one radius around 0, whatever the data."""

    def __init__(self, radius: float = 1.0) -> None:
        self.radius = radius

    def fit(self, X: Any, y: Any) -> Constant:
        return self

    def predict_interval(self, X: Any, coverage: float) -> Intervals:
        ends = np.full(len(X), self.radius * coverage)
        return Intervals(-ends, ends, coverage)


def test_the_scorer_is_minus_the_score_at_its_level():
    y = np.array([0.0, 3.0])
    score = interval_scorer(0.8)(Constant(1.0), np.zeros((2, 1)), y)
    assert score == -interval_score(y, ([-0.8, -0.8], [0.8, 0.8]), coverage=0.8)
    assert score == pytest.approx(-(1.6 + 10 * 2.2 / 2))


def test_the_scorer_survives_a_pickle_and_shows_its_level():
    scorer = interval_scorer(0.8)
    assert "coverage=0.8" in repr(scorer)
    assert repr(pickle.loads(pickle.dumps(scorer))) == repr(scorer)


def test_grid_search_finds_the_right_radius():
    y = norm.ppf((np.random.default_rng(0).permutation(1000) + 0.5) / 1000)
    grid = {"radius": [0.5, norm.ppf(0.95) / 0.9, 5.0]}
    search = GridSearchCV(Constant(), grid, scoring=interval_scorer(0.9), cv=3)
    search.fit(np.zeros((1000, 1)), y)
    assert search.best_params_["radius"] == grid["radius"][1]
    assert search.best_score_ == pytest.approx(-4.1254, abs=0.02)
    scores = cross_val_score(Constant(), np.zeros((9, 1)), y[:9], scoring=interval_scorer(0.9))
    assert np.isfinite(scores).all()


def test_the_scorer_refuses_a_model_without_intervals_and_a_wrong_level():
    with pytest.raises(TypeError, match="got LinearRegression: wrap it in ConformalRegressor"):
        interval_scorer(0.9)(LinearRegression(), [[0.0]], [0.0])
    with pytest.raises(CalliperError, match=r"strictly between 0 and 1; got 1\.5"):
        interval_scorer(1.5)
    with pytest.raises(CalliperError, match="coverage must be one level"):
        interval_scorer([0.8, 0.9])


def test_the_slow_oracle_agrees_on_a_value_by_hand():
    assert slow_interval_score([1.0, 2.5], [0, 0], [2, 2], Fraction(4, 5)) == 4.5
    assert interval_score([1.0, 2.5], ([0, 0], [2, 2]), coverage=0.8) == 4.5

"""Excess risk of the target coverage: row by row, and where the answer is known."""

from __future__ import annotations

from math import isnan, log

import numpy as np
import pytest
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeClassifier

from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.lab.metrics import excess_risk_of_target_coverage as ert
from oracles import metrics as metric_oracles

LOSSES = pytest.mark.parametrize("loss", ["l1", "l2", "kl"])


def two_halves(n, seed, low=0.8, high=1.0):
    """Inputs 0 and 1, covered with probability low and high."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, n)
    y = np.where(rng.random(n) < np.where(x == 0, low, high), 0.0, 9.0)
    return x.astype(float), y, Intervals(y * 0 - 1, y * 0 + 1, 0.9)


@LOSSES
@pytest.mark.parametrize("side", ["both", "under", "over"])
def test_it_equals_the_definition(loss, side):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.where(rng.random(300) < 1 / (1 + np.exp(-2 - X[:, 0])), 0.0, 9.0)
    covered = y == 0
    state = np.random.RandomState(3)
    forecast = np.empty(300)
    for train, test in KFold(4, shuffle=True, random_state=state).split(X):
        model = LogisticRegression().fit(X[train], covered[train])
        forecast[test] = model.predict_proba(X[test])[:, 1]
    slow = metric_oracles.excess_risk(forecast, covered, 0.9, loss, side)
    fast = ert(
        y,
        (y * 0 - 1, y * 0 + 1),
        X,
        loss=loss,
        side=side,
        coverage=0.9,
        classifier=LogisticRegression(),
        n_folds=4,
        random_state=3,
    )
    assert fast == pytest.approx(slow, rel=1e-9)


def kl(p, q):
    return sum(a * log(a / b) for a, b in ((p, q), (1 - p, 1 - q)) if a)


def test_the_known_answer_is_found():
    """E|p − c| = 0.1, E(p − c)² = 0.01, E KL(p ‖ c) of p = 0.8 and p = 1 with equal chance."""
    x, y, intervals = two_halves(4000, 0)
    expected = {"l1": 0.1, "l2": 0.01, "kl": (kl(0.8, 0.9) + kl(1.0, 0.9)) / 2}
    for loss, value in expected.items():
        options = {"loss": loss, "max_points": 4000, "random_state": 0}
        assert ert(y, intervals, x, **options) == pytest.approx(value, rel=0.15)
    halves = [ert(y, intervals, x, side=side, random_state=0) for side in ("under", "over")]
    assert halves == pytest.approx([0.05, 0.05], abs=0.012)
    assert sum(halves) == pytest.approx(ert(y, intervals, x, random_state=0))


@LOSSES
def test_no_fault_gives_nothing_above_zero_on_average(loss):
    values = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 2))
        y = np.where(rng.random(300) < 0.9, 0.0, 9.0)
        tree = DecisionTreeClassifier(max_depth=2)
        values.append(ert(y, (y * 0 - 1, y * 0 + 1), X, loss=loss, coverage=0.9, classifier=tree))
    assert np.mean(values) < 4 * np.std(values) / np.sqrt(len(values))


def test_all_covered_is_too_much_by_what_is_missing():
    x, y, intervals = two_halves(200, 0, low=1.0)
    assert ert(y, intervals, x) == pytest.approx(0.1)
    assert ert(y, intervals, x, side="over") == pytest.approx(0.1)
    assert ert(y, intervals, x, side="under") == 0.0
    assert ert(y, intervals, x, loss="kl") == pytest.approx(log(1 / 0.9), abs=1e-5)


def test_the_seed_fixes_the_value_and_large_sets_are_sampled():
    x, y, intervals = two_halves(3000, 1)
    tree = DecisionTreeClassifier(max_depth=1)
    options = {"classifier": tree, "max_points": 200}
    values = [ert(y, intervals, x, random_state=seed, **options) for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]


def test_few_rows_have_no_value():
    x, y, intervals = two_halves(19, 0)
    with pytest.warns(UndefinedMetricWarning, match="19 rows are too few"):
        assert isnan(ert(y, intervals, x))


def test_bad_input_is_refused():
    x, y, intervals = two_halves(40, 0)
    with pytest.raises(CalliperError, match="loss must be 'l1', 'l2' or 'kl'; got 'l3'"):
        ert(y, intervals, x, loss="l3")
    with pytest.raises(CalliperError, match="side must be"):
        ert(y, intervals, x, side="left")
    with pytest.raises(CalliperError, match="n_folds must be an integer of at least 2"):
        ert(y, intervals, x, n_folds=1)
    with pytest.raises(CalliperError, match=r"n_folds must be at most .*; got 41 for 40"):
        ert(y, intervals, x, n_folds=41)
    with pytest.raises(CalliperError, match="got 21 for 20"):
        ert(y, intervals, x, n_folds=21, max_points=20)
    with pytest.raises(CalliperError, match="pass coverage="):
        ert(y, tuple(intervals), x)

"""Jackknife+, CV+ and Jackknife+-after-bootstrap: laws, and what is promised."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.linear_model import Ridge

from calliper import guarantees
from calliper.exceptions import InEveryBootstrapWarning
from calliper.refitting import (
    CVPlus,
    JackknifeAfterBootstrap,
    JackknifePlus,
)
from cases.refitting import NEW, Nearest, X, Y

pytestmark = pytest.mark.long


@pytest.mark.filterwarnings("ignore::calliper.exceptions.InEveryBootstrapWarning")
@pytest.mark.parametrize(
    "method",
    [
        JackknifePlus(Nearest()),
        JackknifePlus(Nearest(), minmax=True),
        CVPlus(Nearest(), 4, random_state=0),
        CVPlus(Nearest(), 7, random_state=0),
        CVPlus(Nearest(), 4, minmax=True, random_state=0),
        JackknifeAfterBootstrap(Nearest(), 20, random_state=np.random.RandomState(0)),
        JackknifeAfterBootstrap(
            Nearest(), 5, aggregate="median", random_state=np.random.RandomState(0)
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("heavy", [False, True])
def test_coverage_over_draws(method, heavy):
    rng, levels, n, n_draws = np.random.default_rng(1), [0.5, 0.8, 0.9], 20, 200
    covered = np.empty((n_draws, 3))
    for draw in range(n_draws):
        x = rng.uniform(size=(n + 20, 1))
        noise = rng.standard_t(2, size=n + 20) if heavy else rng.normal(size=n + 20)
        y = np.sin(6 * x[:, 0]) + x[:, 0] * noise
        method.fit(x[:n], y[:n])
        covered[draw] = method.predict_interval(x[n:], levels).contains(y[n:]).mean(axis=0)
    mean, error = covered.mean(axis=0), covered.std(axis=0) / np.sqrt(n_draws)
    assert (mean > method.guaranteed_coverage(levels) - 4 * error).all(), mean
    assert (mean > np.array(levels) - 0.1).all(), mean  # what is seen on ordinary data


class Adversary(RegressorMixin, BaseEstimator):
    """Rows are numbers 0 … 4 and y is 0; two rows a, b make an error of 1 at (a+b)/2 modulo 5."""

    def fit(self, X, y):
        self.wrong_ = 3 * int(X.sum()) % 5 if len(X) == 2 else -1
        return self

    def predict(self, X):
        return (X[:, 0] == self.wrong_) * 1.0


def test_cv_minmax_does_not_reach_the_level_and_its_bound_is_sharp():
    """All 120 orders of five points, two folds of two: coverage 2/3 at level 0.8."""
    covered = 0
    for order in permutations(range(5)):
        bag = np.array(order, dtype=float)[:, None]
        method = CVPlus(Adversary(), 2, minmax=True, random_state=0).fit(bag[:4], np.zeros(4))
        covered += int(method.predict_interval(bag[4:], 0.8).contains([0.0])[0])
    assert Fraction(covered, 120) == Fraction(2, 3)
    assert method.guaranteed_coverage(0.8) == pytest.approx(2 / 3)


@pytest.mark.parametrize("n_folds", [2, 5, 8])
def test_minmax_contains_plus(n_folds):
    levels = [0.5, 0.8, 0.9]
    plus = CVPlus(Nearest(), n_folds, random_state=0).fit(X, Y).predict_interval(NEW, levels)
    wide = CVPlus(Nearest(), n_folds, minmax=True, random_state=0).fit(X, Y)
    wide = wide.predict_interval(NEW, levels)
    assert (wide.lower <= plus.lower).all() and (plus.upper <= wide.upper).all()


def test_the_number_of_bootstraps_is_binomial():
    counts = [
        len(JackknifeAfterBootstrap(Ridge(), 50, random_state=s)._folds(None, np.zeros(10), None))
        for s in range(2000)
    ]
    chance = (10 / 11) ** 10
    trials = round(50 / chance)
    error = np.sqrt(trials * chance * (1 - chance) / 2000)
    assert abs(np.mean(counts) - trials * chance) < 4 * error
    assert np.var(counts) == pytest.approx(trials * chance * (1 - chance), rel=0.2)
    fixed = JackknifeAfterBootstrap(Ridge(), 50, draw_number=False, random_state=0)
    assert len(fixed.fit(X, Y).models_) == 50


def test_proved_values():
    n, levels = 120, [0.8, 0.9]
    jackknife = JackknifePlus(Ridge()).fit(X, Y)
    expected = [guarantees.jackknife_coverage(level, n) for level in levels]
    np.testing.assert_array_equal(jackknife.guaranteed_coverage(levels), expected)
    exact = JackknifePlus(Ridge(), minmax=True).fit(X, Y)
    assert exact.guaranteed_coverage(0.9) == guarantees.conformal_coverage(0.9, n)
    for n_folds in (7, 10):
        folds = CVPlus(Ridge(), n_folds).fit(X, Y)
        assert folds.guaranteed_coverage(0.9) == guarantees.fold_coverage(0.9, n, n_folds)
    assert CVPlus(Ridge(), 7, minmax=True).fit(X, Y).guaranteed_coverage(0.9) == (
        guarantees.fold_coverage(0.9, n, 7)
    )
    assert CVPlus(Ridge(), 10, minmax=True).fit(X, Y).guaranteed_coverage(0.9) == 109 / 132
    drawn = JackknifeAfterBootstrap(Ridge(), 100, random_state=0).fit(X, Y)
    assert drawn.guaranteed_coverage(0.9) == guarantees.jackknife_coverage(0.9, n)
    with pytest.warns(InEveryBootstrapWarning):
        few = clone(drawn).set_params(n_bootstraps=5).fit(X, Y)
    assert 0.5 < few.guaranteed_coverage(0.9) < drawn.guaranteed_coverage(0.9) - 0.001
    fixed = clone(drawn).set_params(draw_number=False).fit(X, Y)
    assert fixed.guaranteed_coverage(0.9) == 0.0
    assert fixed.guaranteed_coverage(0.999) == 1.0


def test_words_say_what_is_and_is_not_promised():
    words = JackknifePlus(Ridge()).fit(X, Y).guarantee(0.9).describe()
    for part in (
        "JackknifePlus: ",
        "at least 0.8099 (requested: 0.9)",
        "exchangeable",
        "whatever their order",
        "marginal",
        "120 training rows",
        "without one row",
    ):
        assert part in words
    assert "calibration" not in words
    minmax = JackknifePlus(Ridge(), minmax=True).fit(X, Y).guarantee(0.9).describe()
    assert "at least 0.9008" in minmax and "usually well above" in minmax
    folds = CVPlus(Ridge(), 10).fit(X, Y).guarantee(0.9).describe()
    assert "CVPlus: " in folds and "without a fold" in folds
    bagged = JackknifeAfterBootstrap(Ridge(), 50, random_state=0).fit(X, Y)
    assert "at least 0.8099" in bagged.guarantee(0.9).describe()
    fixed = bagged.set_params(draw_number=False).fit(X, Y).guarantee(0.9).describe()
    assert "no coverage is proved" in fixed and "approximately" in fixed
    assert "draw_number=True" in fixed and "50 chosen beforehand" in fixed
    few = JackknifePlus(Ridge()).fit(X[:5], Y[:5]).guarantee(0.9).describe()
    assert "5 training rows cannot support coverage 0.9" in few
    assert len(JackknifePlus(Ridge()).fit(X, Y).guarantee(0.9).assumptions) == 2

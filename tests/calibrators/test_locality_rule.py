"""How local to be by default: the rule, what it guarantees, and what is refused."""

from fractions import Fraction

import numpy as np
import pytest

from calliper import KNN, RBF, CalliperError, FullRescaled
from calliper.calibrators._full_rescaled import locality_rule
from calliper.kernels import GradedKNN, TunedKNN
from cases.problems import small_problem
from oracles import rescaled as oracles

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 10, 60, 500, 2000, 100_000])
def test_the_rule_asks_for_no_more_points_than_there_are(n):
    rule = locality_rule(n, None, None, statistic=None, dimensions=64)
    graded = isinstance(rule.kernel, GradedKNN)
    assert graded == (n >= 8) and rule.statistic == ("rms" if graded else "mean")
    widest = rule.kernel.parts[1] if graded else rule.kernel
    assert 1 <= widest.n_neighbors <= max(1, n // 2) and 0 <= rule.shrinkage < 1
    assert rule.chosen_by == "rule" and "chosen by the number of" in rule.describe()
    radial = locality_rule(n, 0.5, None, statistic="mean")
    assert isinstance(radial.kernel, RBF)
    assert isinstance(locality_rule(n, 0.5, None, statistic="quantile").kernel, KNN)
    for length_scale in (None, 0.5):
        assert locality_rule(n, length_scale, 0.7, statistic="mean").shrinkage == 0.7
        assert locality_rule(n, length_scale, 0.0, statistic="mean").shrinkage == 0.0


@pytest.mark.parametrize(
    ("n", "k", "m"), [(30, 3, 0.5), (100, 5, 0.5), (500, 6, 0.232), (2000, 8, 0.029)]
)
def test_without_a_unit_few_neighbours_and_a_share_that_fades(n, k, m):
    rule = locality_rule(n, None, None, statistic=None, dimensions=64)
    assert repr(rule.kernel) == f"GradedKNN(n_neighbors={k})" and rule.shrinkage == m
    assert f"GradedKNN(n_neighbors={k}) (rms), shrinkage {m:g}, chosen by" in rule.describe()
    line = locality_rule(n, None, None, statistic=None, dimensions=1)
    assert line.kernel.n_neighbors == min(20, n // 2) and line.statistic == "mean"
    few = locality_rule(n, None, None, statistic=None, dimensions=63)
    assert (few.kernel.n_neighbors, few.statistic) == (line.kernel.n_neighbors, "mean")
    asked = locality_rule(n, None, None, statistic="mean", dimensions=64)
    assert (asked.statistic, asked.kernel.n_neighbors, asked.shrinkage) == ("mean", k, m)
    quantile = locality_rule(n, None, None, statistic="quantile")
    assert quantile.kernel.n_neighbors == min(20, n // 2) and quantile.statistic == "quantile"
    assert locality_rule(n, 0.5, None, statistic=None).statistic == "mean"


def test_a_statistic_of_ones_own_and_what_goes_without_one():
    rng = np.random.default_rng(0)
    Z, scores = rng.normal(size=(90, 64)), rng.exponential(size=90)
    for given, length_scale, used in [
        (FullRescaled(), None, "rms"),
        (FullRescaled(), 0.5, "mean"),
        (FullRescaled(KNN(5)), None, "mean"),
        (FullRescaled(statistic="mean"), None, "mean"),
        (FullRescaled(KNN(5), statistic="rms"), None, "rms"),
    ]:
        fitted = given.fit(Z, scores, length_scale=length_scale)
        assert fitted.statistic_ == fitted.locality_.statistic == used
        same = FullRescaled(fitted.kernel_, shrinkage=fitted.shrinkage_, statistic=used)
        radius = same.fit(Z, scores).predict_radius(Z, [0.5, 0.9])
        np.testing.assert_array_equal(fitted.predict_radius(Z, [0.5, 0.9]), radius)
    with pytest.raises(TypeError, match=r"GradedKNN.* does not support statistic"):
        FullRescaled(GradedKNN(5), statistic="quantile").fit(Z, scores)


def test_the_default_in_many_dimensions_covers_over_draws():
    """Errors with tails that differ from place to place, as those of a network do."""
    rng, level, draws = np.random.default_rng(0), 0.9, 150
    covered = []
    for _ in range(draws):
        Z = np.maximum(rng.normal(size=(230, 5)) @ rng.normal(size=(5, 64)), 0.0)
        wrong = rng.random(230) < np.where(Z[:, 0] > 1, 0.3, 0.02)
        errors = rng.exponential(size=230) * np.where(wrong, 20.0, 1.0)
        radius = FullRescaled().fit(Z[:200], errors[:200]).predict_radius(Z[200:], level)
        covered.append((errors[200:] <= radius).mean())
    proved = np.ceil(level * 201) / 201
    assert abs(np.mean(covered) - proved) < 4 * np.std(covered) / np.sqrt(draws)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_defaults_work_on_very_few_points(n):
    rng = np.random.default_rng(n)
    Z, scores = rng.normal(size=(n, 2)), rng.exponential(size=n)
    radius = FullRescaled(random_state=0).fit(Z, scores).predict_radius(Z, 0.4)
    assert np.isfinite(radius).all()


@pytest.mark.parametrize("with_errors", [False, True])
def test_the_defaults_cover_every_bag(with_errors):
    """The choice depends on the number of calibration rows alone, so no bag is missed."""
    extras = {}
    for seed in range(0, 12, 4 if with_errors else 1):
        p = small_problem(seed, smallest=8)
        if with_errors:
            rng = np.random.default_rng(seed)
            extras = {"left_out": (rng.normal(size=(80, p.Z.shape[1])), rng.exponential(size=80))}

        def radius(Z, s, z, coverage, extras=extras):
            full = FullRescaled(random_state=0).fit(Z, s, **extras)
            return full.predict_radius([z], float(coverage))[0]

        assert oracles.bag_coverage(p.Z, p.magnitudes, radius, p.coverage) >= Fraction(p.coverage)


@pytest.mark.parametrize(
    ("extras", "words"),
    [
        ({"left_out": np.ones((5, 1))}, "Z of left_out has 1 columns, Z has 2"),
        ({"left_out": (np.ones((5, 2)), np.ones(4))}, "4 values for 5 rows"),
        ({"left_out": (np.ones((5, 2)), -np.ones(5))}, "must not be negative"),
        ({"left_out": (np.ones((5, 2)), 0, 0, 0)}, "rows must be"),
    ],
)
def test_bad_left_out_errors_are_refused(extras, words):
    with pytest.raises(CalliperError, match=words):
        FullRescaled().fit(np.ones((9, 2)), np.ones(9), **extras)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, "far"])
def test_bad_length_scales_are_refused(bad):
    with pytest.raises(ValueError, match="length_scale must be a positive, finite number; got"):
        FullRescaled().fit(np.ones((9, 2)), np.ones(9), length_scale=bad)


def test_left_out_rows_without_errors_choose_nothing():
    rng = np.random.default_rng(0)
    Z, scores = rng.normal(size=(90, 2)), rng.exponential(size=90)
    fitted = FullRescaled().fit(Z, scores, left_out=Z)
    assert fitted.locality_.describe() == FullRescaled().fit(Z, scores).locality_.describe()


def test_left_out_errors_are_asked_for_only_where_they_matter():
    assert "left_out" in FullRescaled().uses and "left_out" in FullRescaled(TunedKNN()).uses
    assert "left_out" not in FullRescaled(KNN(10)).uses


@pytest.mark.parametrize(("n", "step"), [(2_000, 0.5), (2_001, 1.5), (1_000_000, 1.5)])
def test_where_the_space_has_a_unit_many_points_lie_in_larger_cells(n, step):
    rule = locality_rule(n, 0.3, None, statistic=None)
    assert repr(rule.kernel) == f"RBF(length_scale=0.3, smoothing=1.0, step={step})"
    assert rule.shrinkage == 0
    k = round(2 * np.sqrt(n))
    assert locality_rule(n, 0.3, None, statistic="quantile").kernel.n_neighbors == k

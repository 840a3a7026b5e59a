"""What must not change a radius, and what must change it in a known way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from calliper import KNN, RBF, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import ConditionalCalibration, MADSplit

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

METHODS = {
    "split": Split(),
    "mad-split": MADSplit(KNN(3), random_state=0),
    "jackknife": JackknifeRescaled(KNN(3), random_state=0),
    "jackknife-rbf": JackknifeRescaled(RBF(0.7)),
    "full": FullRescaled(KNN(3), random_state=0),
    "full-rms": FullRescaled(KNN(3), statistic="rms", random_state=0),
    "full-quantile": FullRescaled(KNN(3), statistic="quantile", random_state=0),
    "full-rbf": FullRescaled(RBF(0.7)),
    "conditional": ConditionalCalibration(),
}
every_method = pytest.mark.parametrize("name", METHODS)
LEVELS = [0.2, 0.5, 0.8]


def fit(name, Z, scores):
    if name == "mad-split":
        train = np.random.default_rng(5)
        extra = {"training": (train.normal(size=(20, 2)), train.exponential(size=20))}
        return METHODS[name].fit(Z, scores, **extra)
    return METHODS[name].fit(Z, scores)


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(5, 40))
    scores = np.round(rng.exponential(size=n), draw(st.sampled_from([1, 3, 12])))
    return rng.normal(size=(n, 2)), scores, rng.normal(size=(6, 2)), rng


@every_method
@given(problem=problems(), log_factor=st.floats(-20, 20))
@settings(max_examples=30, deadline=None)
def test_scaling_scores_scales_the_radius(name, problem, log_factor):
    Z, scores, new, _ = problem
    c = 2.0**log_factor
    expected = c * fit(name, Z, scores).predict_radius(new, LEVELS)
    np.testing.assert_allclose(fit(name, Z, c * scores).predict_radius(new, LEVELS), expected)


@every_method
@given(problem=problems())
@settings(max_examples=30, deadline=None)
def test_order_of_calibration_rows_does_not_matter(name, problem):
    Z, scores, new, rng = problem
    order = rng.permutation(len(Z))
    expected = fit(name, Z, scores).predict_radius(new, LEVELS)
    shuffled = fit(name, Z[order], scores[order]).predict_radius(new, LEVELS)
    np.testing.assert_allclose(shuffled, expected, rtol=1e-9)


@every_method
@given(problem=problems())
@settings(max_examples=30, deadline=None)
def test_a_row_has_its_radius_in_any_company(name, problem):
    Z, scores, new, _ = problem
    method = fit(name, Z, scores)
    together = method.predict_radius(np.vstack([new, Z]), LEVELS)[: len(new)]
    alone = np.vstack([method.predict_radius(row[None], LEVELS) for row in new])
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("full-quantile", "conditional")])
@given(problem=problems())
@settings(max_examples=30, deadline=None)
def test_radius_grows_with_the_level(name, problem):
    Z, scores, new, _ = problem
    radius = fit(name, Z, scores).predict_radius(new, np.arange(0.05, 1, 0.05))
    assert (radius[:, 1:] >= radius[:, :-1]).all()


@every_method
@given(problem=problems())
@settings(max_examples=20, deadline=None)
def test_many_levels_at_once_equal_one_by_one(name, problem):
    Z, scores, new, _ = problem
    method = fit(name, Z, scores)
    together = method.predict_radius(new, LEVELS)
    for column, level in enumerate(LEVELS):
        np.testing.assert_array_equal(together[:, column], method.predict_radius(new, level))
    assert (method.guaranteed_coverage(LEVELS) == [*map(method.guaranteed_coverage, LEVELS)]).all()


@pytest.mark.parametrize("name", ["jackknife", "jackknife-rbf", "full", "full-rbf", "conditional"])
@given(problem=problems(), shift=st.floats(-1e3, 1e3), angle=st.floats(0, 6.3))
@settings(max_examples=30, deadline=None)
def test_moving_and_turning_the_space_does_not_matter(name, problem, shift, angle):
    Z, scores, new, _ = problem
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    expected = fit(name, Z, scores).predict_radius(new, LEVELS)
    moved = fit(name, Z @ turn + shift, scores).predict_radius(new @ turn + shift, LEVELS)
    np.testing.assert_allclose(moved, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "method", [FullRescaled(KNN(3)), JackknifeRescaled(KNN(3)), FullRescaled(RBF(1.0))], ids=repr
)
def test_ties_are_shared_and_not_drawn(method):
    """Seed, order of rows and copies asked for at once make no difference."""
    rng = np.random.default_rng(0)
    Z, scores, new = rng.integers(0, 2, (30, 2)), rng.exponential(size=30), np.eye(2)
    expected = clone(method).fit(Z, scores).predict_radius(new)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(30)
        again = clone(method).set_params(random_state=seed).fit(Z[order], scores[order])
        found = again.predict_radius(np.repeat(new, 3, axis=0))
        np.testing.assert_allclose(found, np.repeat(expected, 3), rtol=1e-12)

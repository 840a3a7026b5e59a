"""Jackknife+, CV+ and Jackknife+-after-bootstrap: definitions, levels, grammar."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus, _base
from cases.refitting import METHODS, NEW, Nearest, X, Y, ends, small_problem
from oracles import refitting as refit_oracles


@pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")
@pytest.mark.parametrize("minmax", [False, True])
@pytest.mark.parametrize(("estimator", "n_problems"), [(Nearest(), 80), (Ridge(), 20)])
def test_jackknife_plus_equals_its_definition(estimator, n_problems, minmax):
    infinite = 0
    for seed in range(n_problems):
        X, y, new, coverage, _ = small_problem(seed)
        found = JackknifePlus(estimator, minmax=minmax).fit(X, y)
        found = found.predict_interval(new, float(coverage))
        folds = [[i] for i in range(len(y))]
        expected = refit_oracles.fold_intervals(estimator, X, y, folds, new, coverage, minmax)
        np.testing.assert_allclose(ends(found), expected, atol=1e-10)
        infinite += np.isinf(found.width).any()
    assert infinite > n_problems / 16


@pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")
@pytest.mark.parametrize("minmax", [False, True])
@pytest.mark.parametrize(("estimator", "n_problems"), [(Nearest(), 80), (Ridge(), 20)])
def test_cv_plus_equals_its_definition(estimator, n_problems, minmax):
    for seed in range(n_problems):
        X, y, new, coverage, rng = small_problem(seed)
        n_folds = int(rng.integers(2, len(y) + 1))
        method = CVPlus(estimator, n_folds, minmax=minmax, random_state=seed).fit(X, y)
        folds = [np.flatnonzero(method.fold_ == k) for k in range(n_folds)]
        assert {len(fold) for fold in folds} <= {len(y) // n_folds, -(-len(y) // n_folds)}
        expected = refit_oracles.fold_intervals(estimator, X, y, folds, new, coverage, minmax)
        np.testing.assert_allclose(
            ends(method.predict_interval(new, float(coverage))), expected, atol=1e-10
        )


@pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")
@pytest.mark.filterwarnings("ignore::calliper.exceptions.InEveryBootstrapWarning")
@pytest.mark.parametrize("aggregate", ["mean", "median"])
@pytest.mark.parametrize(("estimator", "n_problems"), [(Nearest(), 80), (Ridge(), 20)])
def test_jackknife_after_bootstrap_equals_its_definition(estimator, n_problems, aggregate):
    unjudged = 0
    for seed in range(n_problems):
        X, y, new, coverage, rng = small_problem(seed)
        method = JackknifeAfterBootstrap(
            estimator, int(rng.integers(1, 12)), aggregate=aggregate, random_state=seed
        )
        bootstraps = method._draw_bootstraps(len(y))
        found = method.fit(X, y).predict_interval(new, float(coverage))
        expected = refit_oracles.bootstrap_intervals(
            estimator, X, y, bootstraps, new, coverage, aggregate
        )
        np.testing.assert_allclose(ends(found), expected, atol=1e-10)
        unjudged += np.isinf(method.residuals_).any()
    assert unjudged > n_problems / 8


def test_as_many_folds_as_rows_are_the_jackknife():
    one = JackknifePlus(Ridge()).fit(X, Y)
    other = CVPlus(Ridge(), len(Y), random_state=0).fit(X, Y)
    np.testing.assert_allclose(ends(one.predict_interval(NEW)), ends(other.predict_interval(NEW)))
    assert one.guaranteed_coverage(0.9) == other.guaranteed_coverage(0.9)


def test_ends_out_of_order_below_one_half_become_a_point():
    class Cycle(Nearest):
        """Right about the row left out, and at odds about any other."""

        def predict(self, X):
            missing = (set(range(9)) - set(self.X_.astype(int)) or {0}).pop()
            return np.where(X[:, 0] == missing, 0.0, missing)

    method = JackknifePlus(Cycle()).fit(np.arange(9.0)[:, None], np.zeros(9))
    np.testing.assert_array_equal(method.residuals_, 0)
    lower, upper = method.predict_interval(np.array([[20.0]]), [0.3, 0.5, 0.7])
    np.testing.assert_array_equal(lower, [[4, 4, 2]])  # at 0.3: seventh and third, 6 and 2
    np.testing.assert_array_equal(upper, [[4, 4, 6]])


def test_predictions():
    for method in (JackknifePlus(Ridge()), CVPlus(Ridge())):
        fitted = method.fit(X, Y)
        np.testing.assert_array_equal(fitted.predict(NEW), Ridge().fit(X, Y).predict(NEW))
        assert fitted.score(X, Y) > 0
    bagged = JackknifeAfterBootstrap(Ridge(), 20, aggregate="median", random_state=0).fit(X, Y)
    expected = np.median([model.predict(NEW) for model in bagged.models_], axis=0)
    np.testing.assert_array_equal(bagged.predict(NEW), expected)


@pytest.mark.parametrize("method", METHODS, ids=lambda value: type(value).__name__)
def test_levels_blocks_and_jobs(method, monkeypatch):
    fitted = clone(method).fit(X, Y)
    many = fitted.predict_interval(NEW, [0.3, 0.8, 0.9])
    assert many.lower.shape == (30, 3) and many.coverage == (0.3, 0.8, 0.9)
    for level in (0.3, 0.8, 0.9):
        one = fitted.predict_interval(NEW, level)
        np.testing.assert_array_equal(ends(many.at(level)), ends(one))
    monkeypatch.setattr(_base, "CHUNK_FLOATS", 7 * len(fitted.models_))
    np.testing.assert_allclose(ends(fitted.predict_interval(NEW, [0.3, 0.8, 0.9])), ends(many))
    parallel = clone(method).set_params(n_jobs=2).fit(X, Y)
    np.testing.assert_allclose(ends(parallel.predict_interval(NEW, [0.3, 0.8, 0.9])), ends(many))
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(ends(again.predict_interval(NEW)), ends(many.at(0.9)))


@pytest.mark.parametrize("method", METHODS, ids=lambda value: type(value).__name__)
def test_frames_and_pipelines(method):
    table = pd.DataFrame(X[:40], columns=["a", "b"], index=[f"row {i}" for i in range(40)])
    piped = clone(method).set_params(estimator=make_pipeline(StandardScaler(), Ridge()))
    intervals = piped.fit(table, pd.Series(Y[:40])).predict_interval(table[30:])
    plain = clone(piped).fit(X[:40], Y[:40]).predict_interval(X[30:40])
    np.testing.assert_allclose(ends(intervals), ends(plain))
    assert list(intervals.to_frame().index[:2]) == ["row 30", "row 31"]
    with pytest.raises(ValueError, match="feature names"):
        piped.predict_interval(table.rename(columns={"a": "c"}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(JackknifePlus(Ridge()), marks=pytest.mark.long),  # as many fits as rows
        CVPlus(Ridge(), random_state=0),
        JackknifeAfterBootstrap(Ridge(), 5, random_state=0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_scikit_learn_grammar(method):
    check_estimator(method)

"""Jackknife+, CV+ and Jackknife+-after-bootstrap: definitions, levels, grammar."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from calliper import CalliperError, ConformalRegressor, PredictWith, QuantileError, Split
from calliper.exceptions import RowOrderWarning, SplitGroupsWarning
from calliper.guarantees import fold_coverage
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
        bootstraps = [rows for rows, _ in method._folds(X, y, None)]
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
    np.testing.assert_array_equal(
        ends(again.predict_interval(NEW)), ends(fitted.predict_interval(NEW))
    )


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


class Spread(Nearest):
    """The mean of the targets of the nearest row and of all, and as much below as above it."""

    def predict(self, X):
        nearest, usual = super().predict(X), self.y_.mean()
        return np.stack([np.minimum(nearest, usual), np.maximum(nearest, usual)], axis=1)


@pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")
@pytest.mark.parametrize("method", [CVPlus(Spread(), 3, random_state=0), JackknifePlus(Spread())])
def test_cqr_without_a_calibration_set(method):
    """Against its definition, row by row: q_lo − R and q_hi + R of the models without the row."""
    inside = 0
    for seed in range(40):
        X, y, new, coverage, _ = small_problem(seed)
        if len(y) < 3 or float(coverage) < 0.5:
            continue
        method = clone(method).set_params(score_function=QuantileError()).fit(X, y)
        models = [
            Spread().fit(X[method.fold_ != fold], y[method.fold_ != fold]) for fold in method.fold_
        ]
        pairs = [model.predict(x[None])[0] for model, x in zip(models, X, strict=True)]
        errors = [max(low - t, t - high) for (low, high), t in zip(pairs, y, strict=True)]
        np.testing.assert_allclose(method.residuals_, errors, atol=1e-12)
        inside += sum(error < 0 for error in errors)
        expected = [
            refit_oracles.quantile_fold_interval(
                [model.predict(x[None])[0] for model in models], errors, coverage
            )
            for x in new
        ]
        in_order = [lower <= upper for lower, upper in expected]
        found = ends(method.predict_interval(new, float(coverage)))
        np.testing.assert_allclose(
            found[in_order], np.array(expected)[in_order], rtol=1e-12, atol=1e-12
        )
    assert inside > 20


def test_cqr_without_a_calibration_set_keeps_what_cv_plus_promises():
    """Over many draws coverage is at least 1 − 2α, of which no more is claimed."""
    rng, hits = np.random.default_rng(0), []
    for seed in range(150):
        X, noise = rng.uniform(size=(60, 1)), rng.normal(size=60)
        y = X[:, 0] * noise
        method = CVPlus(Spread(), 5, score_function=QuantileError(), random_state=seed)
        hits += [*method.fit(X[:50], y[:50]).predict_interval(X[50:], 0.8).contains(y[50:])]
    proved = method.guaranteed_coverage(0.8)
    assert proved < 0.6 and np.mean(hits) > proved
    assert "usually" not in method.guarantee(0.8).describe()
    with pytest.raises(CalliperError, match="needs a score with one tail"):
        method.set_params(score_function=QuantileError("asymmetric")).fit(X, y)


@pytest.mark.parametrize("cv", [KFold(4), PredefinedSplit(np.arange(120) % 4), GroupKFold(4)])
def test_own_splitters(cv):
    groups = np.arange(120) // 3
    known = {"split_groups": groups} if isinstance(cv, GroupKFold) else {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        method = CVPlus(Ridge(), cv).fit(X, Y, **known)
    assert [each.category for each in said] == [SplitGroupsWarning] * len(known)
    for k, (train, left_out) in enumerate(cv.split(X, Y, groups)):
        assert (method.fold_[left_out] == k).all()
        model = Ridge().fit(X[train], Y[train])
        np.testing.assert_allclose(
            method.residuals_[left_out], np.abs(Y[left_out] - model.predict(X[left_out]))
        )
    proved = method.guaranteed_coverage(0.9)
    if type(cv) is KFold:
        assert proved == fold_coverage(0.9, 120, 4)
    else:
        assert proved == 0
        assert method.guarantee(0.9).note == (
            f"no coverage is proved at level 0.9. {method.no_guarantee_}"
        )
        assert "may depend on the rows" in method.no_guarantee_ or "groups" in method.no_guarantee_


def test_rows_in_order_of_time_are_pointed_out():
    frame = pd.DataFrame(X, index=pd.date_range("2026-01-01", periods=120))
    with pytest.warns(RowOrderWarning, match=r"at random.*cv=KFold\(5\) leaves out runs"):
        CVPlus(Ridge(), 5).fit(frame, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CVPlus(Ridge(), KFold(5)).fit(frame, Y)


def test_a_number_of_folds_keeps_groups_together():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(site=np.arange(120) // 6 * 1.0)
    with pytest.warns(SplitGroupsWarning, match="120 calibration rows come from 20 groups"):
        method = CVPlus(Ridge(), 5, random_state=0).fit(frame, Y, split_groups="site")
    assert all(len({*method.fold_[frame["site"] == site]}) == 1 for site in range(20))
    with pytest.raises(CalliperError, match=r"number of groups = 20"):
        CVPlus(Ridge(), 21).fit(frame, Y, split_groups="site")


class Scaled(Ridge):
    """Its prediction takes a word."""

    def predict(self, X, times=1.0):
        return times * super().predict(X)


@pytest.mark.parametrize("front", [CVPlus, ConformalRegressor])
def test_words_for_predict_are_handed_through(front):
    model = front(PredictWith(Scaled(), {"times": 3.0}), random_state=0).fit(X, Y / 3)
    trained = model.estimator_.estimator_
    np.testing.assert_allclose(model.predict(NEW), 3 * Ridge.predict(trained, NEW))
    if front is ConformalRegressor:
        fitted = PredictWith(Scaled().fit(X, Y), {"times": 1.0})
        made = front(fitted, Split()).calibrate(X, 2 * Y).predict_interval(NEW)
        plain = front(Ridge().fit(X, Y), Split()).calibrate(X, 2 * Y).predict_interval(NEW)
        np.testing.assert_array_equal(made.lower, plain.lower)


class Foreign:
    """A model and a splitter of another library: no more than what is asked of them."""

    def fit(self, X, y):
        self.weights = np.linalg.lstsq(X, y, rcond=None)[0]
        return self

    def predict(self, X, shift=0.0):
        return X @ self.weights + shift

    def split(self, X, y=None, groups=None):
        return KFold(4).split(X)


def test_models_and_splitters_of_other_libraries_will_do():
    asked = PredictWith(Foreign(), {"shift": 1.0}).fit(X, Y)
    lower, upper = ConformalRegressor(asked, Split()).calibrate(X, Y).predict_interval(NEW)
    np.testing.assert_allclose((lower + upper) / 2, asked.predict(NEW))
    ours, theirs = (CVPlus(Ridge(), cv=each).fit(X, Y) for each in (KFold(4), Foreign()))
    np.testing.assert_array_equal(
        ends(ours.predict_interval(NEW, 0.8)), ends(theirs.predict_interval(NEW, 0.8))
    )

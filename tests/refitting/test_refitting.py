"""Jackknife+, CV+ and Jackknife+-after-bootstrap: definitions, laws, peers, edges."""

import pickle
from fractions import Fraction
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import refit_oracles
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import KFold, LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from calliper import CalliperError, SmallCalibrationWarning, guarantees
from calliper.refitting import (
    CVPlus,
    InEveryBootstrapWarning,
    JackknifeAfterBootstrap,
    JackknifePlus,
    _left_out_models,
)

COVERAGES = ["0.1", "0.3", "0.5", "0.75", "0.8", "0.9"]
rng = np.random.default_rng(0)
X = rng.uniform(size=(120, 2))
Y = X[:, 0] + X[:, 0] * rng.normal(size=120)
NEW = rng.uniform(size=(30, 2))


class Nearest(RegressorMixin, BaseEstimator):
    """The target of the nearest training row, the smallest among ties: quick and unstable."""

    def fit(self, X, y):
        order = np.argsort(y, kind="stable")
        self.X_, self.y_ = X[order, 0], y[order]
        return self

    def predict(self, X):
        return self.y_[np.abs(X[:, :1] - self.X_).argmin(axis=1)]


def small_problem(seed):
    """Few rows; every second problem is full of ties."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 13))
    draw = (lambda *s: rng.integers(0, 4, s) * 1.0) if seed % 2 else (lambda *s: rng.normal(size=s))
    return draw(n, 2), draw(n), draw(4, 2), str(rng.choice(COVERAGES)), rng


def ends(intervals):
    return np.stack(list(intervals), axis=1)


# --- definitions ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::calliper.SmallCalibrationWarning")
@pytest.mark.parametrize("minmax", [False, True])
@pytest.mark.parametrize("estimator", [Nearest(), Ridge()], ids=lambda value: type(value).__name__)
def test_jackknife_plus_equals_its_definition(estimator, minmax):
    infinite = 0
    for seed in range(80):
        X, y, new, coverage, _ = small_problem(seed)
        found = JackknifePlus(estimator, minmax=minmax).fit(X, y)
        found = found.predict_interval(new, float(coverage))
        folds = [[i] for i in range(len(y))]
        expected = refit_oracles.fold_intervals(estimator, X, y, folds, new, coverage, minmax)
        np.testing.assert_allclose(ends(found), expected, atol=1e-10)
        infinite += np.isinf(found.width).any()
    assert infinite > 5


@pytest.mark.filterwarnings("ignore::calliper.SmallCalibrationWarning")
@pytest.mark.parametrize("minmax", [False, True])
@pytest.mark.parametrize("estimator", [Nearest(), Ridge()], ids=lambda value: type(value).__name__)
def test_cv_plus_equals_its_definition(estimator, minmax):
    for seed in range(80):
        X, y, new, coverage, rng = small_problem(seed)
        n_folds = int(rng.integers(2, len(y) + 1))
        method = CVPlus(estimator, n_folds, minmax=minmax, random_state=seed).fit(X, y)
        folds = [np.flatnonzero(method.fold_ == k) for k in range(n_folds)]
        assert {len(fold) for fold in folds} <= {len(y) // n_folds, -(-len(y) // n_folds)}
        expected = refit_oracles.fold_intervals(estimator, X, y, folds, new, coverage, minmax)
        np.testing.assert_allclose(
            ends(method.predict_interval(new, float(coverage))), expected, atol=1e-10
        )


@pytest.mark.filterwarnings("ignore::calliper.SmallCalibrationWarning")
@pytest.mark.filterwarnings("ignore::calliper.refitting.InEveryBootstrapWarning")
@pytest.mark.parametrize("aggregate", ["mean", "median"])
@pytest.mark.parametrize("estimator", [Nearest(), Ridge()], ids=lambda value: type(value).__name__)
def test_jackknife_after_bootstrap_equals_its_definition(estimator, aggregate):
    unjudged = 0
    for seed in range(80):
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
    assert unjudged > 10


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


METHODS = [
    JackknifePlus(Ridge()),
    JackknifePlus(Ridge(), minmax=True),
    CVPlus(Ridge(), random_state=0),
    CVPlus(Ridge(), 7, minmax=True, random_state=0),
    JackknifeAfterBootstrap(Ridge(), 30, random_state=0),
    JackknifeAfterBootstrap(Ridge(), 30, aggregate="median", random_state=0),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda value: type(value).__name__)
def test_levels_blocks_and_jobs(method, monkeypatch):
    fitted = clone(method).fit(X, Y)
    many = fitted.predict_interval(NEW, [0.3, 0.8, 0.9])
    assert many.lower.shape == (30, 3) and many.coverage == (0.3, 0.8, 0.9)
    for level in (0.3, 0.8, 0.9):
        one = fitted.predict_interval(NEW, level)
        np.testing.assert_array_equal(ends(many.at(level)), ends(one))
    monkeypatch.setattr(_left_out_models, "CHUNK_FLOATS", 7 * len(fitted.models_))
    np.testing.assert_allclose(ends(fitted.predict_interval(NEW, [0.3, 0.8, 0.9])), ends(many))
    parallel = clone(method).set_params(n_jobs=2).fit(X, Y)
    np.testing.assert_allclose(ends(parallel.predict_interval(NEW, [0.3, 0.8, 0.9])), ends(many))
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(ends(again.predict_interval(NEW)), ends(many.at(0.9)))


@pytest.mark.parametrize("method", METHODS, ids=lambda value: type(value).__name__)
def test_frames_and_pipelines(method):
    table = pd.DataFrame(X, columns=["a", "b"], index=[f"row {i}" for i in range(120)])
    piped = clone(method).set_params(estimator=make_pipeline(StandardScaler(), Ridge()))
    intervals = piped.fit(table, pd.Series(Y)).predict_interval(table[100:])
    plain = clone(piped).fit(X, Y).predict_interval(X[100:])
    np.testing.assert_allclose(ends(intervals), ends(plain))
    assert list(intervals.to_frame().index[:2]) == ["row 100", "row 101"]
    with pytest.raises(ValueError, match="feature names"):
        piped.predict_interval(table.rename(columns={"a": "c"}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS, ids=lambda value: type(value).__name__)
def test_scikit_learn_grammar(method):
    check_estimator(method)


# --- laws ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::calliper.refitting.InEveryBootstrapWarning")
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
    rng, levels, n, n_draws = np.random.default_rng(1), [0.5, 0.8, 0.9], 20, 400
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
        len(JackknifeAfterBootstrap(Ridge(), 50, random_state=s)._draw_bootstraps(10))
        for s in range(2000)
    ]
    chance = (10 / 11) ** 10
    trials = round(50 / chance)
    error = np.sqrt(trials * chance * (1 - chance) / 2000)
    assert abs(np.mean(counts) - trials * chance) < 4 * error
    assert np.var(counts) == pytest.approx(trials * chance * (1 - chance), rel=0.2)
    fixed = JackknifeAfterBootstrap(Ridge(), 50, draw_number=False, random_state=0)
    assert len(fixed.fit(X, Y).models_) == 50


# --- what is promised ----------------------------------------------------------------------


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
        "at least 0.8099 (asked for: 0.9)",
        "exchangeable",
        "whatever their order",
        "marginal",
        "120 training points",
        "one row is left out",
    ):
        assert part in words
    assert "calibration" not in words
    minmax = JackknifePlus(Ridge(), minmax=True).fit(X, Y).guarantee(0.9).describe()
    assert "at least 0.9008" in minmax and "usually well above" in minmax
    folds = CVPlus(Ridge(), 10).fit(X, Y).guarantee(0.9).describe()
    assert "CVPlus: " in folds and "when a fold is left out" in folds
    bagged = JackknifeAfterBootstrap(Ridge(), 50, random_state=0).fit(X, Y)
    assert "at least 0.8099" in bagged.guarantee(0.9).describe()
    fixed = bagged.set_params(draw_number=False).fit(X, Y).guarantee(0.9).describe()
    assert "no coverage is proved" in fixed and "approximately" in fixed
    assert "draw_number=True" in fixed and "50 chosen beforehand" in fixed
    few = JackknifePlus(Ridge()).fit(X[:5], Y[:5]).guarantee(0.9).describe()
    assert "5 training points cannot support coverage 0.9" in few
    assert len(JackknifePlus(Ridge()).fit(X, Y).guarantee(0.9).assumptions) == 2


# --- edges ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS[:4], ids=lambda value: type(value).__name__)
def test_too_few_rows_for_the_level(method):
    fitted = clone(method).fit(X[:9], Y[:9]) if not hasattr(method, "n_folds") else (
        clone(method).set_params(n_folds=3).fit(X[:9], Y[:9])
    )  # fmt: skip
    assert np.isfinite(fitted.predict_interval(NEW, 0.9).width).all()
    with pytest.warns(SmallCalibrationWarning, match="9 calibration points cannot support"):
        intervals = fitted.predict_interval(NEW, [0.5, 0.95])
    assert np.isinf(intervals.at(0.95).width).all() and np.isfinite(intervals.at(0.5).width).all()
    assert fitted.guaranteed_coverage(0.95) == 1.0


def test_one_and_two_rows():
    for method in (JackknifePlus(Ridge()), CVPlus(Ridge(), 2), JackknifeAfterBootstrap(Ridge())):
        with pytest.raises(CalliperError, match=r"needs at least 2 rows.*n_samples = 1"):
            method.fit(X[:1], Y[:1])
    two = [0.0, 3.0]
    for method in (JackknifePlus(Nearest()), CVPlus(Nearest(), 2)):
        fitted = method.fit(X[:2], two)  # each model knows one row: 3 and 0, both wrong by 3
        lower, upper = fitted.predict_interval(NEW[:1], 0.6)
        assert (lower, upper) == (-3.0, 6.0)


def test_rows_in_every_bootstrap_are_counted():
    method = JackknifeAfterBootstrap(Ridge(), 2, draw_number=False, random_state=0)
    with pytest.warns(InEveryBootstrapWarning, match=r"\d+ of 120 rows are in every .* 2 boot"):
        method.fit(X, Y)
    unjudged = method.in_bag_.all(axis=0)
    assert 20 < unjudged.sum() < 80
    np.testing.assert_array_equal(np.isinf(method.residuals_), unjudged)
    assert np.isinf(method.predict_interval(NEW, 0.9).width).all()
    assert np.isfinite(method.predict_interval(NEW, 0.4).width).all()


@pytest.mark.parametrize("n_folds", [121, 1, 0, 2.5, None])
def test_bad_numbers_of_folds(n_folds):
    with pytest.raises(CalliperError, match="n_folds must be a whole number between 2 and"):
        CVPlus(Ridge(), n_folds).fit(X, Y)


@pytest.mark.parametrize("n_bootstraps", [0, -1, 2.5, None])
def test_bad_numbers_of_bootstraps(n_bootstraps):
    with pytest.raises(CalliperError, match="n_bootstraps must be a whole number >= 1"):
        JackknifeAfterBootstrap(Ridge(), n_bootstraps).fit(X, Y)


@pytest.mark.parametrize("method", METHODS, ids=lambda value: type(value).__name__)
def test_bad_input(method):
    with pytest.raises(NotFittedError):
        clone(method).predict_interval(NEW)
    with pytest.raises(CalliperError, match="y must be finite: 120 of 120"):
        clone(method).fit(X, np.full(120, np.nan))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(method).fit(X, Y[:-1])
    with pytest.raises(TypeError, match="dense"):
        clone(method).fit(sparse.csr_array(X), Y)
    fitted = clone(method).fit(X, Y)
    with pytest.raises(ValueError, match="1 features"):
        fitted.predict_interval(NEW[:, :1])
    with pytest.raises(CalliperError, match="Reshape your data"):
        fitted.predict_interval(NEW[0])
    for coverage in (0, 1, 95, [0.9, 0.8]):
        with pytest.raises(CalliperError):
            fitted.predict_interval(NEW, coverage)
    with pytest.raises(ValueError, match="aggregate must be 'mean' or 'median'"):
        JackknifeAfterBootstrap(Ridge(), aggregate="max").fit(X, Y)


# --- peers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("method", ["plus", "minmax"])
def test_mapie_agrees_on_jackknife_and_cv(method, coverage):
    """The same definitions and folds; MAPIE (1.6) raises where the interval is infinite."""
    mapie = pytest.importorskip("mapie.regression")
    for n in (39, 50, 120):
        for cv, ours in [
            (LeaveOneOut(), JackknifePlus(Ridge())),
            (KFold(5, shuffle=True, random_state=1), CVPlus(Ridge(), 5, random_state=1)),
        ]:
            peer = mapie.CrossConformalRegressor(Ridge(), coverage, method=method, cv=cv)
            _, theirs = peer.fit_conformalize(X[:n], Y[:n]).predict_interval(NEW)
            ours.set_params(minmax=method == "minmax").fit(X[:n], Y[:n])
            np.testing.assert_allclose(
                ends(ours.predict_interval(NEW, coverage)), theirs[..., 0], atol=1e-9
            )


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_mapie_agrees_on_the_bootstrap(aggregate, monkeypatch):
    """With MAPIE's bootstraps, a fixed number, and no row that is in all of them.

    MAPIE (1.6) leaves such rows out of the order statistic, where here they are infinitely wrong.
    """
    mapie = pytest.importorskip("mapie.regression")
    subsample = pytest.importorskip("mapie.subsample")
    drawn = subsample.Subsample(40, random_state=3)
    bootstraps = [rows for rows, _ in subsample.Subsample(40, random_state=3).split(X)]
    monkeypatch.setattr(JackknifeAfterBootstrap, "_draw_bootstraps", lambda self, n: bootstraps)
    ours = JackknifeAfterBootstrap(LinearRegression(), aggregate=aggregate).fit(X, Y)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        peer = mapie.JackknifeAfterBootstrapRegressor(
            LinearRegression(), coverage, resampling=drawn, aggregation_method=aggregate
        )
        _, theirs = peer.fit_conformalize(X, Y).predict_interval(NEW)
        np.testing.assert_allclose(
            ends(ours.predict_interval(NEW, coverage)), theirs[..., 0], atol=1e-9
        )

"""Jackknife+, CV+ and Jackknife+-after-bootstrap: too few rows and bad input."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    ShuffleSplit,
    TimeSeriesSplit,
)

from calliper import CalliperError
from calliper.exceptions import InEveryBootstrapWarning, SmallCalibrationWarning, SplitGroupsWarning
from calliper.refitting import (
    CVPlus,
    JackknifeAfterBootstrap,
    JackknifePlus,
)
from cases.refitting import METHODS, NEW, Nearest, X, Y


@pytest.mark.parametrize("method", METHODS[:4], ids=lambda value: type(value).__name__)
def test_too_few_rows_for_the_level(method):
    fitted = clone(method).fit(X[:9], Y[:9]) if not hasattr(method, "cv") else (
        clone(method).set_params(cv=3).fit(X[:9], Y[:9])
    )  # fmt: skip
    assert np.isfinite(fitted.predict_interval(NEW, 0.9).width).all()
    with pytest.warns(SmallCalibrationWarning, match="9 calibration rows cannot support"):
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
        assert (lower[0], upper[0]) == pytest.approx((-3.0, 6.0), rel=1e-14)


def test_rows_in_every_bootstrap_are_counted():
    method = JackknifeAfterBootstrap(Ridge(), 2, draw_number=False, random_state=0)
    with pytest.warns(InEveryBootstrapWarning, match=r"\d+ of 120 rows are in all 2 boot"):
        method.fit(X, Y)
    unjudged = method.in_bag_.all(axis=0)
    assert 20 < unjudged.sum() < 80
    np.testing.assert_array_equal(np.isinf(method.residuals_), unjudged)
    assert np.isinf(method.predict_interval(NEW, 0.9).width).all()
    assert np.isfinite(method.predict_interval(NEW, 0.4).width).all()


@pytest.mark.parametrize("cv", [121, 1, 0, True, 2.5, None, TimeSeriesSplit(), ShuffleSplit()])
def test_bad_numbers_of_folds(cv):
    with pytest.raises(
        CalliperError, match=r"cv must (be a (whole )?number|leave out each row once)"
    ):
        CVPlus(Ridge(), cv).fit(X, Y)


class Peeking(KFold):
    """Folds that train on all rows, those left out too."""

    def split(self, X, y=None, groups=None):
        for _, left_out in super().split(X, y, groups):
            yield np.arange(len(X)), left_out


class Sorted(KFold):
    """Folds that look at the targets."""

    def split(self, X, y=None, groups=None):
        order = np.argsort(y)
        for others, left_out in super().split(X, y, groups):
            yield order[others], order[left_out]


def test_folds_that_train_on_what_they_leave_out_are_refused():
    with pytest.raises(CalliperError, match=r"Peeking.* trains on row 0, which .* leaves out"):
        CVPlus(Ridge(), Peeking(4)).fit(X, Y)
    groups = np.arange(120) % 7
    with pytest.raises(CalliperError, match=r"KFold.* trains on group 0, .* GroupKFold\(5\)"):
        CVPlus(Ridge(), KFold(5)).fit(X, Y, split_groups=groups)
    for cv in (GroupKFold(5), LeaveOneGroupOut(), 5):
        with pytest.warns(SplitGroupsWarning):
            CVPlus(Ridge(), cv).fit(X, Y, split_groups=groups)


def test_only_folds_that_are_known_are_proved():
    assert CVPlus(Ridge(), KFold(5)).fit(X, Y).guaranteed_coverage(0.9) > 0.5
    made = CVPlus(Ridge(), Sorted(5)).fit(X, Y)
    assert made.guaranteed_coverage(0.9) == 0 and "may depend on the rows" in made.no_guarantee_


@pytest.mark.parametrize("n_bootstraps", [0, -1, 2.5, None])
def test_bad_numbers_of_bootstraps(n_bootstraps):
    with pytest.raises(CalliperError, match="n_bootstraps must be an integer of at least 1"):
        JackknifeAfterBootstrap(Ridge(), n_bootstraps).fit(X, Y)


@pytest.mark.parametrize("method", METHODS, ids=lambda value: type(value).__name__)
def test_bad_input(method):
    with pytest.raises(NotFittedError):
        clone(method).predict_interval(NEW)
    with pytest.raises(CalliperError, match="y must be finite, but 120 of 120"):
        clone(method).fit(X, np.full(120, np.nan))
    with pytest.raises(ValueError, match=r"got [0-9]+ rows and [0-9]+ values"):
        clone(method).fit(X, Y[:-1])
    of_sparse = clone(method).fit(sparse.csr_array(X), Y)
    assert np.isfinite(of_sparse.predict_interval(sparse.csr_array(NEW)).lower).all()
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

"""Jackknife+, CV+ and Jackknife+-after-bootstrap agree with MAPIE."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import KFold, LeaveOneOut

from calliper.refitting import CVPlus, JackknifeAfterBootstrap, JackknifePlus
from cases.refitting import NEW, X, Y, ends


@pytest.mark.parametrize("method", ["plus", "minmax"])
def test_mapie_agrees_on_jackknife_and_cv(method):
    """The same definitions and folds; MAPIE (1.6) raises where the interval is infinite."""
    mapie = pytest.importorskip("mapie.regression")
    levels = [0.5, 0.8, 0.9, 0.95]
    for n in (39, 50, 120):
        for cv, ours in [
            (LeaveOneOut(), JackknifePlus(Ridge())),
            (KFold(5, shuffle=True, random_state=1), CVPlus(Ridge(), 5, random_state=1)),
        ]:
            peer = mapie.CrossConformalRegressor(Ridge(), levels, method=method, cv=cv)
            _, theirs = peer.fit_conformalize(X[:n], Y[:n]).predict_interval(NEW)
            ours.set_params(minmax=method == "minmax").fit(X[:n], Y[:n])
            for i, level in enumerate(levels):
                found = ends(ours.predict_interval(NEW, level))
                np.testing.assert_allclose(found, theirs[..., i], atol=1e-9)


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_mapie_agrees_on_the_bootstrap(aggregate, monkeypatch):
    """With MAPIE's bootstraps, a fixed number, and no row that is in all of them.

    MAPIE (1.6) leaves such rows out of the order statistic, where here they are infinitely wrong.
    """
    mapie = pytest.importorskip("mapie.regression")
    subsample = pytest.importorskip("mapie.subsample")
    drawn = subsample.Subsample(40, random_state=3)
    bootstraps = [rows for rows, _ in subsample.Subsample(40, random_state=3).split(X)]
    folds = [(rows, np.setdiff1d(np.arange(len(X)), rows)) for rows in bootstraps]
    monkeypatch.setattr(JackknifeAfterBootstrap, "_folds", lambda *given: folds)
    ours = JackknifeAfterBootstrap(LinearRegression(), aggregate=aggregate).fit(X, Y)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        peer = mapie.JackknifeAfterBootstrapRegressor(
            LinearRegression(), coverage, resampling=drawn, aggregation_method=aggregate
        )
        _, theirs = peer.fit_conformalize(X, Y).predict_interval(NEW)
        np.testing.assert_allclose(
            ends(ours.predict_interval(NEW, coverage)), theirs[..., 0], atol=1e-9
        )

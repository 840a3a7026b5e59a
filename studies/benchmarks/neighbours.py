"""Rescaling with K = 10 neighbours, against the bare searches it needs and against peers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.base import clone
from sklearn.neighbors import KNeighborsRegressor, NearestNeighbors

from calliper import KNN, FullRescaled, JackknifeRescaled
from studies.benchmarks.timing import best_times, table, verdict

SIZES = [
    (100_000, 10_000, 1),
    (100_000, 10_000, 3),
    (10_000, 100_000, 10),
    (10_000, 100_000, 128),
    (2_000, 1_000_000, 8),
]
K = 10


def bare_searches(Z: Any, new: Any) -> dict[str, Any]:
    """K nearest of each calibration row and K+1 of each new one, by engines that may win."""

    def by_scipy() -> None:
        tree = cKDTree(Z)
        tree.query(Z, K + 1, workers=-1)
        tree.query(new, K + 1, workers=-1)

    def by_sklearn(algorithm: str) -> None:
        search = NearestNeighbors(algorithm=algorithm, n_jobs=-1).fit(Z)
        search.kneighbors(Z, K + 1)
        search.kneighbors(new, K + 1)

    if Z.shape[1] <= 3:
        return {"scipy tree": by_scipy, "sklearn tree": lambda: by_sklearn("kd_tree")}
    if Z.shape[1] <= 10:
        return {"scipy tree": by_scipy, "sklearn brute": lambda: by_sklearn("brute")}
    return {"sklearn brute": lambda: by_sklearn("brute")}


def peers(Z: Any, new: Any, y: Any, y_new: Any) -> dict[str, Any]:
    """The same intervals from crepes and MAPIE: errors rescaled by 10-NN difficulty."""
    from crepes import ConformalRegressor
    from crepes.extras import DifficultyEstimator
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor
    from sklearn.dummy import DummyRegressor

    def by_crepes() -> None:
        difficulty = DifficultyEstimator()
        difficulty.fit(X=Z, residuals=y, k=K, scaler=False, beta=1e-9)
        regressor = ConformalRegressor().fit(residuals=y, sigmas=difficulty.apply(Z))
        regressor.predict_int(y_new, sigmas=difficulty.apply(new), confidence=0.9)

    def by_mapie() -> None:
        # Fitted beforehand to all rows: left to itself, MAPIE would search only half of them.
        difficulty = KNeighborsRegressor(K, n_jobs=-1).fit(Z, np.abs(y))
        score = ResidualNormalisedScore(residual_estimator=difficulty, prefit=True)
        model = DummyRegressor(strategy="constant", constant=0.0).fit(Z, y)
        regressor = SplitConformalRegressor(
            model, confidence_level=0.9, conformity_score=score, prefit=True
        )
        regressor.conformalize(Z, y)
        regressor.predict_interval(new)

    return {"crepes": by_crepes, "MAPIE": by_mapie}


def main(rounds: int, *, with_peers: bool = True) -> str:
    rows = []
    for n, m, d in SIZES:
        rng = np.random.default_rng(0)
        Z, new = rng.normal(size=(n, d)), rng.normal(size=(m, d))
        y, y_new = rng.normal(size=n), np.zeros(m)
        scores = np.abs(y)
        engines = bare_searches(Z, new)
        ours = {
            "jackknife": lambda: JackknifeRescaled(KNN(K)).fit(Z, scores).predict_radius(new),  # noqa: B023
            "full": lambda: FullRescaled(KNN(K)).fit(Z, scores).predict_radius(new),  # noqa: B023
        }
        time = best_times({**engines, **ours}, rounds)
        winner = min(engines, key=time.__getitem__)
        others = best_times(peers(Z, new, y, y_new), 1) if with_peers else {}
        rows.append(
            [
                f"{n:,} × {m:,} × {d}",
                winner,
                verdict(time["jackknife"] / time[winner], 1.25),
                verdict(time["full"] / time["jackknife"], 2.5),
                *(f"{others[name] / time['jackknife']:.1f} ×" for name in others),
            ]
        )
        print(f"  done: {rows[-1][0]}", flush=True)
    header = ["N × M × d", "fastest bare search", "Jackknife / bare", "Full / Jackknife"]
    return table(header + [f"{name} takes" for name in others], rows)


def weighted(rounds: int) -> str:
    """Prediction with weights of a covariate shift, against the same without."""
    n, d = 10_000, 5
    rng = np.random.default_rng(0)
    Z, new, scores = rng.normal(size=(n, d)), rng.normal(size=(n, d)), rng.exponential(size=n)
    rows = []
    for method in (FullRescaled(KNN(K)), FullRescaled(), JackknifeRescaled(KNN(K))):
        plain, shifted = clone(method).fit(Z, scores), clone(method)
        shifted.fit(Z, scores, weights=np.exp(0.3 * Z[:, 0]))
        ask = {
            "plain": partial(plain.predict_radius, new),
            "weighted": partial(shifted.predict_radius, new, weights=np.exp(0.3 * new[:, 0])),
        }
        time = best_times(ask, rounds)
        rows.append([repr(method), verdict(time["weighted"] / time["plain"], 2)])
    return table([f"prediction, {n:,} × {n:,} × {d}", "weighted / without weights"], rows)

"""Models of distributions by calliper and by CQR: ``python -m studies.experiments.quantile_peers``.

The tables and draws of ``peers.py``: one fitted model, 500 calibration rows and 1,000 test rows at
90 %. CQR moves the quantiles at 5 and 95 %; calliper is asked with calibration rows alone, without
learning from a part of them, and with training rows (a forest has errors out of bag, NGBoost is
trained five times more). Interval scores over that of CQR are printed.

``… quantile_peers heavy_tail`` asks the other way round, on blog feedback, half of whose targets
are 0 and some in the hundreds: point models in three lines, and with training rows and five refits,
over CQR by boosted quantiles (3,000 training, 1,000 calibration and 2,000 test rows, eight draws).
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from calliper import ConformalRegressor, QuantileError, Split, metrics
from calliper.models import QuantileModel
from studies.experiments.nearness.problems import N_TEST, N_TRAIN, TABLES, Rows, _data, estimator

N, LEVEL, N_DRAWS, N_HEAVY = 500, 0.9, 2, 8
TAILS = (1 - LEVEL) / 2, (1 + LEVEL) / 2


def quantile_forest(seed: int, **how: Any) -> Any:
    from quantile_forest import RandomForestQuantileRegressor

    return RandomForestQuantileRegressor(random_state=seed, **how)


def large_leaves(seed: int) -> Any:
    return quantile_forest(seed, min_samples_leaf=10)


def ngboost(seed: int) -> Any:
    from ngboost import NGBRegressor

    return NGBRegressor(random_state=seed, verbose=False)


def of_draw(table: str, seed: int, fresh: Any) -> list[float]:
    """By calliper, by calliper without learning, and with training rows, over CQR."""
    rng = np.random.default_rng(seed)
    X, y = _data(table, rng)
    order, n = rng.permutation(len(y)), min(N_TRAIN, int(0.4 * len(y)))
    train, calibration, test = (
        Rows(X[rows], y[rows])
        for rows in (order[:n], order[n : 2 * n][:N], order[2 * n :][:N_TEST])
    )
    model = fresh(seed).fit(train.X, train.y)
    pair = QuantileModel(model, TAILS)
    return over_cqr(
        [
            (ConformalRegressor(pair, Split(), score_function=QuantileError()), None),
            (ConformalRegressor(model, random_state=seed), None),
            (ConformalRegressor(model, random_state=seed, learning_part=None), None),
            (ConformalRegressor(model, random_state=seed, refits=5), train),
        ],
        calibration,
        test,
    )


def of_heavy_tail(model: str, seed: int) -> list[float]:
    """Three lines, and training rows with five refits, over CQR."""
    rng = np.random.default_rng(seed)
    X, y = _data("blog", rng)
    order = rng.permutation(len(y))
    train, calibration, test = (
        Rows(X[rows], y[rows]) for rows in (order[:3_000], order[3_000:4_000], order[4_000:])
    )
    boosting = HistGradientBoostingRegressor(loss="quantile", random_state=seed)
    pair = QuantileModel(boosting, TAILS).fit(train.X, train.y)
    fitted = estimator(model, seed).fit(train.X, train.y)
    return over_cqr(
        [
            (ConformalRegressor(pair, Split(), score_function=QuantileError()), None),
            (ConformalRegressor(fitted, random_state=seed), None),
            (ConformalRegressor(fitted, random_state=seed, refits=5), train),
        ],
        calibration,
        test,
    )


def over_cqr(
    fronts: list[tuple[ConformalRegressor, Rows | None]], calibration: Rows, test: Rows
) -> list[float]:
    """Interval scores over the first one's, each with its training rows if there are any."""
    scores = []
    for front, train in fronts:
        known = {} if train is None else {"X_train": train.X, "y_train": train.y}
        made = front.calibrate(calibration.X, calibration.y, **known)
        scores.append(metrics.interval_score(test.y, made.predict_interval(test.X, LEVEL)))
    return [score / scores[0] for score in scores[1:]]


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["heavy_tail"]:
        for name in ("forest", "histogram boosting", "LightGBM"):
            draws = [of_heavy_tail(name, seed) for seed in range(N_HEAVY)]
            error = np.std(draws, axis=0, ddof=1) / np.sqrt(N_HEAVY)
            print(name, np.mean(draws, axis=0).round(3), "standard error", error.round(3))
        return
    for name in sys.argv[1:] or ("quantile_forest", "ngboost"):
        found = {}
        for table in TABLES:
            draws = [of_draw(table, seed, globals()[name]) for seed in range(N_DRAWS)]
            found[table] = np.mean(draws, axis=0)
            print(name, table, *(f"{score:.3f}" for score in found[table]), flush=True)
        worst = np.max([*found.values()], axis=0)
        print(name, "worst", *(f"{score:.3f}" for score in worst))
        print(name, "mean", *(f"{score:.3f}" for score in np.mean([*found.values()], axis=0)))


if __name__ == "__main__":
    main()

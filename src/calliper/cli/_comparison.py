"""The numbers of the demonstration: one problem, one model, every method on the same points."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calliper import metrics
from calliper._types import FloatArray
from calliper.calibrators import FullRescaled, JackknifeRescaled, MADSplit, Split
from calliper.datasets import OneDimensional, one_dimensional
from calliper.intervals import Intervals
from calliper.kernels import KNN, RBF
from calliper.regressor import ConformalRegressor

N_TRAINING, N_CALIBRATION, N_TEST = 2000, 1000, 5000
K = 20


def calibrators(seed: int) -> dict[str, Any]:
    """Every method, by the name that the table gives it."""
    return {
        "Split": Split(),
        "MADSplit, KNN": MADSplit(KNN(K), random_state=seed),
        "MADSplit, RBF": MADSplit(RBF("median"), random_state=seed),
        "JackknifeRescaled": JackknifeRescaled(KNN(K), random_state=seed),
        "FullRescaled": FullRescaled(KNN(K), random_state=seed),
        "FullRescaled, rms": FullRescaled(KNN(K), statistic="rms", random_state=seed),
        "FullRescaled, quantile": FullRescaled(KNN(K), statistic="quantile", random_state=seed),
    }


@dataclass(frozen=True)
class Measures:
    """A row of the table; NaN where a measure does not exist."""

    method: str
    proved: float | None
    coverage: float
    width: float
    half_width: float
    tau_si: float
    tau_sqi: float
    r2_sqi: float
    interval_score: float


class Comparison:
    """A random forest on the one-dimensional task, with calibration and test points apart."""

    def __init__(self, coverage: float, seed: int) -> None:
        from sklearn.ensemble import RandomForestRegressor

        self.coverage, self.seed = coverage, seed
        rows = one_dimensional(N_TRAINING + N_CALIBRATION + N_TEST, random_state=seed)
        cuts = [N_TRAINING, N_TRAINING + N_CALIBRATION]
        self.train, self.calibration, self.test = (
            OneDimensional(X, y, rows.noise)
            for X, y in zip(np.split(rows.X, cuts), np.split(rows.y, cuts), strict=True)
        )
        self.model = RandomForestRegressor(min_samples_leaf=20, random_state=seed)
        self.model.fit(self.train.X, self.train.y)
        self.y_pred: FloatArray = self.model.predict(self.test.X)

    def methods(self) -> Iterator[tuple[str, ConformalRegressor]]:
        """Each method, calibrated on the same points."""
        for name, calibrator in calibrators(self.seed).items():
            method = ConformalRegressor(self.model, calibrator)
            X, y = self.train.X, self.train.y
            yield (
                name,
                method.calibrate(self.calibration.X, self.calibration.y, X_train=X, y_train=y),
            )

    def measure(self, name: str, method: ConformalRegressor) -> Measures:
        """What the test points say about a method."""
        intervals = method.predict_interval(self.test.X, self.coverage)
        proved = float(method.guaranteed_coverage(self.coverage))
        return self._measures(name, proved, intervals, self.y_pred)

    def measure_oracle(self) -> Measures:
        """The same of the best intervals there are, around the true mean."""
        oracle = self.test.oracle(self.test.X, self.coverage)
        return self._measures("(oracle)", None, oracle, self.test.mean(self.test.X))

    def _measures(
        self, name: str, proved: float | None, intervals: Intervals, y_pred: FloatArray
    ) -> Measures:
        y, level = self.test.y, self.coverage
        with warnings.catch_warnings():
            # Where all widths are equal there is no rank to compare: the table shows a dash.
            warnings.simplefilter("ignore")
            return Measures(
                name,
                proved,
                float(metrics.empirical_coverage(y, intervals)),
                float(metrics.mean_width(intervals)),
                float(metrics.mean_width(intervals, half=True)),
                metrics.tau_si(y, intervals, y_pred=y_pred),
                metrics.tau_sqi(y, intervals, y_pred=y_pred, coverage=level),
                metrics.r2_sqi(y, intervals, y_pred=y_pred, coverage=level),
                metrics.interval_score(y, intervals, coverage=level),
            )

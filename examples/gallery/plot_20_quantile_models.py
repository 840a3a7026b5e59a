"""
Calibrating a quantile model
============================

Some models predict a low and a high quantile. The range between them is often used as an interval,
and often contains fewer targets than it should. Calibration fixes that.
"""

# %%
# Two boosters for the 5 % and the 95 % quantile of how diabetes progresses. ``QuantileModel``
# trains both.

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor

from calliper import ConformalRegressor, QuantileError, QuantileModel, Split

X, y = load_diabetes(return_X_y=True)
booster = GradientBoostingRegressor(loss="quantile", n_estimators=60, max_depth=2, random_state=0)

raw, calibrated = [], []
for seed in range(12):
    rows = np.random.default_rng(seed).permutation(len(y))
    train, cal, new = rows[:180], rows[180:320], rows[320:]
    pair = QuantileModel(booster, [0.05, 0.95]).fit(X[train], y[train])
    low, high = pair.predict(X[new]).T[[0, -1]]
    raw.append(np.mean((low <= y[new]) & (y[new] <= high)))
    model = ConformalRegressor(pair, Split(), score_function=QuantileError())
    intervals = model.calibrate(X[cal], y[cal]).predict_interval(X[new], coverage=0.9)
    calibrated.append(intervals.contains(y[new]).mean())

# %%
# Twelve draws of patients. Each line is one draw: the share of targets between the raw quantiles,
# and the share after calibration.

from matplotlib import pyplot

figure, ax = pyplot.subplots(figsize=(6.4, 4.6), layout="constrained")
ax.axhline(0.9, color="#000000", linestyle=(0, (4, 2)), linewidth=1.1)
ax.annotate("asked for", (0.62, 0.905), fontsize=9)
for before, after in zip(raw, calibrated, strict=True):
    ax.plot([0, 1], [before, after], color="#9cc9e3")
ax.plot(np.zeros(12), raw, "o", color="#D55E00")
ax.plot(np.ones(12), calibrated, "o", color="#0072B2")
ax.set_xticks([0, 1], ["quantiles as they come", "calibrated"])
ax.set(xlim=(-0.3, 1.3), yticks=[0.75, 0.8, 0.85, 0.9, 0.95], ylabel="share of new patients inside")
ax.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
ax.set_title("Quantiles trained for 90 %", loc="left", weight="bold")
ax.spines[["top", "right"]].set_visible(False)
pyplot.show()

# %%
# This is known as conformalised quantile regression, CQR. Both ends are moved by the same amount,
# outwards if too few targets were inside, inwards if too many.

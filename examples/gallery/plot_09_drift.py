"""
When the data drift
===================

A model of bicycle hires is trained once and never again, while more and more people hire bicycles.
Its intervals are correct at first. What happens later?
"""

# %%
# Hourly rows in time order, simulated for this page, with rush hours and growing demand. Train on
# the first weeks, calibrate on the next ones, and predict every sixth hour of the rest.

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

rng = np.random.default_rng(0)
day, hour = np.repeat(np.arange(400), 24), np.tile(np.arange(24), 400)
warmth = rng.normal(size=400)[day]
working = day % 7 < 5
rush = np.exp(-((hour - 8) ** 2) / 3) + 1.3 * np.exp(-((hour - 17) ** 2) / 6)
usual = 20 + 400 * np.where(working, rush, 0.6 * np.exp(-((hour - 14) ** 2) / 30))
growth = 1 + np.maximum(0, day - 75) / 150
X = np.column_stack([hour, working, warmth])
y = usual * growth * np.exp(0.2 * warmth) * rng.gamma(12, 1 / 12, size=len(day))
train, cal, later = slice(0, 1300), slice(1300, 1800), slice(1800, None, 6)
booster = HistGradientBoostingRegressor(max_iter=60, random_state=0).fit(X[train], y[train])

# %%
# There are three options. *Calibrated once*: nothing is done. *Level follows*: a ``Controller``
# raises the level after each miss and lowers it slightly after each hit. *New labels join*: in
# addition, the latest 500 hours are used to calibrate.

from calliper import ConformalRegressor, Split
from calliper.online import Controller

outside = {}
for name, follows, joins in [
    ("calibrated once", False, False),
    ("level follows", True, False),
    ("level follows, new labels join", True, True),
]:
    model = ConformalRegressor(booster, Split(), embed="prediction").calibrate(X[cal], y[cal])
    control, missed = Controller(0.9, rate=0.02), []
    for x, target in zip(X[later], y[later], strict=True):
        ask = control if follows else None
        row = x[None]
        now = ask.predict_interval(model, row) if ask else model.predict_interval(row)
        inside = now.contains([target])
        missed.append(not inside[0])
        if follows:
            control.update(inside)
        if joins:
            model.extend(row, [target], window=500)
    outside[name] = np.array(missed)

# %%

from matplotlib import pyplot

from calliper.lab.report import RunningCoverageDisplay

figure, ax = pyplot.subplots(figsize=(8.4, 4.4), layout="constrained")
for (name, missed), color in zip(outside.items(), ("#8C8C8C", "#E69F00", "#0072B2"), strict=True):
    RunningCoverageDisplay.from_outside(missed, coverage=0.9, window=150).plot(
        ax, name=name, color=color
    )
pyplot.show()

# %%
# If calibrated once, intervals cover fewer and fewer targets. The other two return to nine of ten.
# This is proved for the long run, for any data; there is no guarantee for a single step.

"""
When the world changes
======================

A model of bicycle hires is trained once and never again, while more and more people hire bicycles.
Its intervals are right at first. What happens to them later?
"""

# %%
# Hours in order of time, made up for this page: there are rush hours, and demand grows. Train on
# the first weeks, calibrate on the weeks after, and follow the rest, every sixth hour.

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
# Three ways to go on. *Calibrated once*: nothing is done. *Level follows*: a ``Controller`` asks
# for a higher level after each miss and for a slightly lower one after each hit. *New labels join*:
# the newest 500 hours take the place of the oldest, too.

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
# Calibrated once, intervals hold fewer and fewer of the targets. The other two come back to nine of
# ten, whatever happens: this is proved for the long run, with no assumption on the data. Nothing is
# promised for a single step.

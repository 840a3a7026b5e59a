"""
A day of bicycle hires, as a fan
================================

An interval answers one question. A *distribution* answers many: what is the median, how likely are
more than 500 hires at eight in the morning, which value is exceeded once in twenty days?
"""

# %%
# Hourly hires, simulated for this page, with different weather each day. Hold out whole days, so
# that these days are new to the model.

import numpy as np
from sklearn.ensemble import RandomForestRegressor

rng = np.random.default_rng(0)
day, hour = np.repeat(np.arange(400), 24), np.tile(np.arange(24), 400)
warmth = rng.normal(size=400)[day]
working = day % 7 < 5
rush = np.exp(-((hour - 8) ** 2) / 3) + 1.3 * np.exp(-((hour - 17) ** 2) / 6)
usual = 20 + 400 * np.where(working, rush, 0.6 * np.exp(-((hour - 14) ** 2) / 30))
mood = np.exp(0.15 * rng.normal(size=400))[day]  # of the day, unknown to the model
X = np.column_stack([hour, working, warmth])
y = np.round(usual * np.exp(0.2 * warmth) * mood * rng.gamma(20, 1 / 20, size=len(day)))
part = rng.permutation(400)[day]
train, cal, new = part < 100, (part >= 100) & (part < 240), part >= 300
forest = RandomForestRegressor(30, min_samples_leaf=3, random_state=0).fit(X[train], y[train])

# %%
# Hold out days, not single hours: hours of one day are alike, and calibration hours must differ
# from training hours as much as new hours will.

from calliper import ConformalRegressor

cal = np.random.default_rng(0).permutation(np.flatnonzero(cal))  # their order means nothing here
model = ConformalRegressor(forest).calibrate(X[cal], y[cal], X_train=X[train], y_train=y[train])

# %%
# Predict the hours of one new working day. The shades are intervals at three levels.

from matplotlib import pyplot

from calliper.lab.report import FanDisplay

rows = day == day[new & working][0]
distribution = model.predict_distribution(X[rows], bounds=(0, None))
display = FanDisplay.from_distribution(hour[rows][:, None], distribution, y=y[rows])
display.plot(name="Bicycles hired on one working day")
display.ax_.set(
    xlabel="hour of the day", ylabel="bicycles hired in the hour", xticks=range(0, 25, 4)
)
pyplot.show()

# %%
# The same object answers other questions:

eight = int(np.flatnonzero(hour[rows] == 8)[0])
print(f"more than 500 at eight: {distribution.exceedance(500.0)[eight]:.0%}")
print(f"exceeded once in twenty days, at eight: {distribution.quantile(0.95)[eight]:.0f}")

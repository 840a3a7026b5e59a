"""
A day of bicycle hires, as a fan
================================

An interval answers one question. A *distribution* answers all: what is the median, how likely are
more than 500 hires at eight in the morning, what is exceeded once in twenty days?
"""

# %%
# The first nineteen days of each month are in the table. Hold out some whole days, so that they are
# new.

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from studies.experiments.data import load_tabular

table = load_tabular("bike_kaggle_10886")
X, y = table.X, table.y
column = {name: i for i, name in enumerate(table.feature_names)}
hour = X[:, column["hour"]]
day = np.cumsum(np.r_[0, np.diff(hour) < 0])
part = np.random.default_rng(4).permutation(day.max() + 1)[day]
train, cal, new = part < 100, (part >= 100) & (part < 240), part >= 300
forest = RandomForestRegressor(30, min_samples_leaf=3, random_state=0).fit(X[train], y[train])

# %%
# Days are new, not single hours: hours of one day are alike, and calibration hours must be as far
# from training as new hours will be.

from calliper import ConformalRegressor

cal = np.random.default_rng(0).permutation(np.flatnonzero(cal))  # their order means nothing here
model = ConformalRegressor(forest).calibrate(X[cal], y[cal], X_train=X[train], y_train=y[train])

# %%
# Ask for the hours of one new working day. The shades are intervals at three levels.

from matplotlib import pyplot

from calliper.lab.report import FanDisplay

working = new & (X[:, column["workingday"]] == 1) & (X[:, column["year"]] == 1)
chosen = next(d for d in np.unique(day[working]) if (day == d).sum() == 24)
rows = day == chosen
distribution = model.predict_distribution(X[rows], bounds=(0, None))
display = FanDisplay.from_distribution(hour[rows][:, None], distribution, y=y[rows])
display.plot(name="Bicycles hired on one working day of 2012")
display.ax_.set(
    xlabel="hour of the day", ylabel="bicycles hired in the hour", xticks=range(0, 25, 4)
)
pyplot.show()

# %%
# Other questions to the same object:

eight = int(np.flatnonzero(hour[rows] == 8)[0])
print(f"more than 500 at eight: {distribution.exceedance(500.0)[eight]:.0%}")
print(f"exceeded once in twenty days, at eight: {distribution.quantile(0.95)[eight]:.0f}")

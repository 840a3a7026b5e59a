"""
Does it hold in each group?
===========================

Nine of ten targets are inside overall. Is that true in each group? If coverage must hold in each
group, name the groups.
"""

# %%
# House prices in four kinds of places, simulated for this page. Prices vary more by the sea.

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

rng = np.random.default_rng(0)
spread = {"inland": 15, "near the sea": 30, "at the bay": 45, "at the ocean": 60}
X = pd.DataFrame({"rooms": rng.integers(2, 8, 9000), "age": rng.uniform(0, 50, 9000)})
X["place"] = pd.Categorical(rng.choice([*spread], 9000, p=[0.4, 0.4, 0.1, 0.1]))
noise = X["place"].map(spread).astype(float)
y = 50 + 30 * X["rooms"] - X["age"] + 3 * noise + noise * rng.normal(size=9000)

X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=3000, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, train_size=2000, random_state=0)
booster = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
booster = booster.fit(X_train, y_train)

# %%
# Calibrate once for all places together, and once with ``groups="place"``: each place is then
# calibrated on its own, and 90 % is guaranteed in each.

from calliper import ConformalRegressor, Split

for_all = ConformalRegressor(booster, Split()).calibrate(X_cal, y_cal)
for_each = ConformalRegressor(booster, Split()).calibrate(X_cal, y_cal, groups="place")

# %%

from matplotlib import pyplot

from calliper.lab.report import CoverageDisplay

figure, axes = pyplot.subplots(1, 2, figsize=(11.5, 3.4), layout="constrained", sharey=True)
labels = np.asarray(X_new["place"].astype(str))
for ax, (name, model) in zip(
    axes, {"Calibrated once for all": for_all, 'groups="place"': for_each}.items(), strict=True
):
    CoverageDisplay.from_intervals(
        y_new, model.predict_interval(X_new, coverage=0.9), groups=labels, what="house"
    ).plot(ax, name=name)
for ax in axes:
    ax.set_xlim(0.6, 1)
axes[1].set_ylabel("")
pyplot.show()

# %%
# Both use constant width, to show the effect of groups alone. With the default method widths adapt,
# so places differ less to begin with; ``groups=`` works with it as well.
#
# Each group needs enough calibration rows: at least nine for 90 %. With fewer, its intervals are
# infinite, and a warning says so.

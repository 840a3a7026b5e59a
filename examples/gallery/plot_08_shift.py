"""
New inputs from elsewhere
=========================

A model was calibrated on districts of all kinds. Now it is asked about dear ones mostly. Prices
*given the district* follow the same law; only the mix of districts has changed. This is called a
covariate shift, and weights repair it.
"""

# %%
# Make such a shift from real rows: new districts are drawn by their predicted price, the dearer the
# more likely.

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from experiments.data import load_tabular

table = load_tabular("california_housing_20640")
X, y = table.X, table.y / 1000
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=4000, random_state=0)
X_cal, X_pool, y_cal, y_pool = train_test_split(X_rest, y_rest, train_size=1500, random_state=0)
booster = HistGradientBoostingRegressor(random_state=0).fit(X_train, y_train)
chance = booster.predict(X_pool).clip(0) ** 2
rng = np.random.default_rng(0)
drawn = rng.choice(len(X_pool), size=3000, p=chance / chance.sum(), replace=False)
X_new, y_new = X_pool[drawn], y_pool[drawn]

# %%
# A weight says how many times as often an input like this comes among new rows. It need not be
# known: ``LikelihoodRatio`` learns it from training rows and new rows, without any new targets.

from calliper import ConformalRegressor, Split
from calliper.shift import LikelihoodRatio

ratio = LikelihoodRatio(random_state=0).fit(X_train, X_new)
as_usual = ConformalRegressor(booster, Split()).calibrate(X_cal, y_cal)
weighted = ConformalRegressor(booster, Split()).calibrate(X_cal, y_cal, weights=ratio)

# %%
# What is covered, at each level that one may ask for?

from matplotlib import pyplot

from calliper.report import CalibrationCurveDisplay

levels = np.linspace(0.5, 0.95, 10)
figure, ax = pyplot.subplots(figsize=(5.6, 5.2), layout="constrained")
for name, model, look in [
    ("as usual", as_usual, {"color": "#D55E00", "marker": "s"}),
    ("with weights", weighted, {}),
]:
    intervals = model.predict_interval(X_new, levels)
    CalibrationCurveDisplay.from_intervals(y_new, intervals).plot(ax, name=name, **look)
ax.set(xlim=(0.45, 1), ylim=(0.3, 1))
ax.set_title("Dear districts: asked for and covered", loc="left", weight="bold", pad=26)
pyplot.show()

# %%
# Without weights the intervals are too short, since dear districts are harder to predict. With
# weights they come close to what was asked for; what is left is that weights were learnt, not
# known. Ask how much there is left to calibrate with:

print(weighted.shift_report(X_new).describe())

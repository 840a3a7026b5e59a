"""
New inputs from elsewhere
=========================

A model was calibrated on pixels from everywhere in a photograph. Now it is asked about edges
mostly. Targets *given the inputs* follow the same law; only the mix of inputs has changed. This is
called a covariate shift, and weights repair it.
"""

# %%
# A booster predicts how bright a pixel is from eight pixels around it. New pixels are drawn by how
# much these eight differ, the more the likelier.

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.ensemble import HistGradientBoostingRegressor

image = load_sample_image("flower.jpg")[::2, ::2].mean(axis=2)
steps = [(i, j) for i in (-2, 0, 2) for j in (-2, 0, 2) if (i, j) != (0, 0)]
inner = (slice(2, -2), slice(2, -2))
X = np.stack([np.roll(image, step, axis=(0, 1))[inner].ravel() for step in steps], axis=1)
y = image[inner].ravel()

rng = np.random.default_rng(0)
rows = rng.permutation(len(y))
train, cal, pool = rows[:4000], rows[4000:6000], rows[6000:]
booster = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train])
chance = 2 + X[pool].std(axis=1)
new = rng.choice(pool, size=3000, p=chance / chance.sum(), replace=False)
X_train, X_cal, X_new, y_cal, y_new = X[train], X[cal], X[new], y[cal], y[new]

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

from calliper.lab.report import CalibrationCurveDisplay

levels = np.linspace(0.5, 0.95, 10)
figure, ax = pyplot.subplots(figsize=(5.6, 5.2), layout="constrained")
for name, model, look in [
    ("as usual", as_usual, {"color": "#D55E00", "marker": "s"}),
    ("with weights", weighted, {}),
]:
    intervals = model.predict_interval(X_new, levels)
    CalibrationCurveDisplay.from_intervals(y_new, intervals).plot(ax, name=name, **look)
ax.set(xlim=(0.45, 1), ylim=(0.1, 1))
ax.set_title("Pixels at edges: asked for and covered", loc="left", weight="bold", pad=26)
pyplot.show()

# %%
# Without weights the intervals are too short, since edges are harder to predict. With
# weights they come close to what was asked for; what is left is that weights were learnt, not
# known. Ask how much there is left to calibrate with:

print(weighted.shift_report(X_new).describe())

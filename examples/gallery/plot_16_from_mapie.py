"""
Compared with MAPIE
===================

The same booster and the same calibration rows, in both libraries: what is the same, and what
differs?
"""

# %%
# A booster predicts the brightness of a pixel in a photograph from eight pixels around it.

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.ensemble import HistGradientBoostingRegressor

image = load_sample_image("flower.jpg")[::2, ::2].mean(axis=2)
steps = [(i, j) for i in (-2, 0, 2) for j in (-2, 0, 2) if (i, j) != (0, 0)]
inner = (slice(2, -2), slice(2, -2))
X = np.stack([np.roll(image, step, axis=(0, 1))[inner].ravel() for step in steps], axis=1)
y = image[inner].ravel()

rows = np.random.default_rng(0).permutation(len(y))
train, cal, new = rows[:4000], rows[4000:6000], rows[6000:11000]
X_cal, X_new, y_cal, y_new = X[cal], X[new], y[cal], y[new]
booster = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train])

# %%
# MAPIE: choose the level first, then pass the calibration rows.

from mapie.regression import SplitConformalRegressor

mapie = SplitConformalRegressor(booster, confidence_level=0.9, prefit=True)
mapie.conformalize(X_cal, y_cal)
_, ends = mapie.predict_interval(X_new)

# %%
# calliper: pass the calibration rows, then choose any level.

from calliper import ConformalRegressor, Intervals, Split

model = ConformalRegressor(booster).calibrate(X_cal, y_cal)
ours = model.predict_interval(X_new, coverage=0.9)

# %%
# With ``Split()`` both give the same intervals, because the method is then the same.

theirs = Intervals(ends[:, 0, 0], ends[:, 1, 0], 0.9)
same = ConformalRegressor(booster, Split()).calibrate(X_cal, y_cal).predict_interval(X_new, 0.9)
print("largest difference:", np.abs(same.upper - theirs.upper).max().round(9))

# %%
# By default calliper's widths adapt to the error. Divide the pixels into tenths by how much their
# neighbours differ: what is the coverage in each?

from matplotlib import pyplot

from calliper.lab.metrics import interval_score
from calliper.lab.report import CoverageDisplay

figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
contrast = X_new.std(axis=1)
for ax, name, intervals in [
    (axes[0], "MAPIE, split conformal", theirs),
    (axes[1], "calliper, as it comes", ours),
]:
    CoverageDisplay.from_intervals(
        y_new, intervals, values=contrast, what="contrast around the pixel"
    ).plot(ax, name=name)
    width, score = intervals.width.mean(), interval_score(y_new, intervals)
    print(f"{name}: mean width {width:.2f}, score {score:.2f}")
axes[0].set_ylim(0.3, 1.03)
axes[1].set_ylabel("")
pyplot.show()

# %%
# The *score* is the width plus a penalty for targets outside; smaller is better. The difference is
# especially large on a photograph, because its pixels vary so much; :doc:`/evidence` has results on
# public datasets. :doc:`/from-mapie` has the other calls.

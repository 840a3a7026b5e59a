"""
Beside MAPIE
============

The same booster and the same calibration rows, in both libraries: what is the same, and what
differs?
"""

# %%
# The table is about proteins: how far a guess at their shape is from the truth.

from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from experiments.data import load_tabular

table = load_tabular("protein_casp_rmsd")
X_train, X_rest, y_train, y_rest = train_test_split(
    table.X, table.y, train_size=5000, random_state=0
)
X_cal, X_new, y_cal, y_new = train_test_split(
    X_rest, y_rest, train_size=1500, test_size=5000, random_state=0
)
booster = HistGradientBoostingRegressor(random_state=0).fit(X_train, y_train)

# %%
# MAPIE: the level is given at the beginning, and the rows to calibrate on next.

from mapie.regression import SplitConformalRegressor

mapie = SplitConformalRegressor(booster, confidence_level=0.9, prefit=True)
mapie.conformalize(X_cal, y_cal)
_, ends = mapie.predict_interval(X_new)

# %%
# calliper: the rows to calibrate on, and then any level.

from calliper import ConformalRegressor, Intervals, Split

model = ConformalRegressor(booster).calibrate(X_cal, y_cal)
ours = model.predict_interval(X_new, coverage=0.9)

# %%
# With ``Split()`` both say the same, since both are then the same method.

import numpy as np

theirs = Intervals(ends[:, 0, 0], ends[:, 1, 0], 0.9)
same = ConformalRegressor(booster, Split()).calibrate(X_cal, y_cal).predict_interval(X_new, 0.9)
print("largest difference:", np.abs(same.upper - theirs.upper).max().round(9))

# %%
# By default calliper's widths follow the error. Cut the proteins into tenths by the predicted
# distance: where is coverage?

from matplotlib import pyplot

from calliper.metrics import interval_score
from calliper.report import CoverageDisplay

figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
y_pred = booster.predict(X_new)
for ax, name, intervals in [
    (axes[0], "MAPIE, split conformal", theirs),
    (axes[1], "calliper, as it comes", ours),
]:
    CoverageDisplay.from_intervals(y_new, intervals, values=y_pred, what="prediction (Å)").plot(
        ax, name=name
    )
    width, score = intervals.width.mean(), interval_score(y_new, intervals)
    print(f"{name}: mean width {width:.2f}, score {score:.2f}")
axes[0].set_ylim(0.78, 1.005)
axes[1].set_ylabel("")
pyplot.show()

# %%
# The *score* is the width plus a fine for targets outside; less is better. :doc:`/guide/from-mapie`
# has the other calls side by side.

"""
Do intervals react to missing values?
=====================================

Some values are missing. Pass rows in the form the model accepts, missing values included.
Intervals should be wider where important values are missing.
"""

# %%
# Images of digits, and the number that each shows. Every fourth image has lost its lower half.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

X, y = load_digits(return_X_y=True)
torn = np.random.default_rng(0).uniform(size=len(X)) < 0.25
X[np.ix_(torn, np.arange(32, 64))] = np.nan

X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=700, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, train_size=500, random_state=0)

# %%
# This booster handles missing values itself, so calliper needs no extra step. For a model that does
# not, put an imputer in front of it in a pipeline, and pass the pipeline. The same goes for
# categories: if the model cannot handle them, add an encoder to the pipeline.

from calliper import ConformalRegressor


def is_torn(rows):
    """Whether something is missing."""
    return np.isnan(rows).any(axis=1)


booster = HistGradientBoostingRegressor(random_state=0).fit(X_train, y_train)
for_all = ConformalRegressor(booster).calibrate(X_cal, y_cal)
for_each = ConformalRegressor(booster).calibrate(X_cal, y_cal, groups=is_torn)

# %%
# The first calibration ignores missing values; the second guarantees coverage for torn images and
# for whole ones.

from matplotlib import pyplot

missing, bins = is_torn(X_new), np.linspace(0, 9, 37)
figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained", sharey=True)
for ax, title, model in [
    (axes[0], "Without groups", for_all),
    (axes[1], "groups=is_torn", for_each),
]:
    intervals = model.predict_interval(X_new, coverage=0.9)
    inside = intervals.contains(y_new)
    for part, name, color in [(~missing, "whole", "#0072B2"), (missing, "torn", "#D55E00")]:
        label = f"{name}: {inside[part].mean():.0%} inside"
        ax.hist(intervals.width[part], bins, density=True, color=color, alpha=0.55, label=label)
        ax.axvline(np.median(intervals.width[part]), color=color, linewidth=2)
    ax.set(xlabel="width of the 90 % interval", yticks=[])
    ax.set_title(title, loc="left", weight="bold", fontsize=11)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.legend(frameon=False, loc="upper left")
pyplot.show()

# %%
# Intervals of torn images are wider even without groups: the booster is less sure about them, and
# its last trees still move the prediction a lot. That is not enough, though: torn images have lower
# coverage. If that matters, use groups.

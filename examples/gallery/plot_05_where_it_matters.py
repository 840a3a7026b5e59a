"""
Does it cover where it matters?
===============================

Nine of ten targets are inside. That is an average, and an average can hide a lot: are hard rows
covered as often as easy ones? Check before you rely on it.
"""

# %%
# A booster predicts the brightness of a pixel in a photograph from eight pixels around it. Rows are
# hard where these eight differ, at the edge of a petal, and easy in the blurred background.

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.ensemble import HistGradientBoostingRegressor

image = load_sample_image("flower.jpg")[::2, ::2].mean(axis=2)
steps = [(i, j) for i in (-2, 0, 2) for j in (-2, 0, 2) if (i, j) != (0, 0)]
inner = (slice(2, -2), slice(2, -2))
X = np.stack([np.roll(image, step, axis=(0, 1))[inner].ravel() for step in steps], axis=1)
y = image[inner].ravel()

rows = np.random.default_rng(0).permutation(len(y))
train, cal, new = rows[:4000], rows[4000:6000], rows[6000:14000]
booster = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train])

# %%
# Two methods around the same booster, calibrated on the same rows. ``Split()`` is the usual one.

from calliper import ConformalRegressor, Split

plain = ConformalRegressor(booster, Split()).calibrate(X[cal], y[cal])
adaptive = ConformalRegressor(booster).calibrate(X[cal], y[cal])

# %%
# Divide the new pixels into tenths by how much their neighbours differ, and count how many targets
# are inside in each tenth. ``CoverageDisplay`` does both.

from matplotlib import pyplot

from calliper.lab.report import CoverageDisplay

contrast = X[new].std(axis=1)
figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
for ax, (name, model) in zip(
    axes, {"One width": plain, "Widths that follow the error": adaptive}.items(), strict=True
):
    intervals = model.predict_interval(X[new], coverage=0.9)
    CoverageDisplay.from_intervals(
        y[new], intervals, values=contrast, what="contrast around the pixel"
    ).plot(ax, name=name)
axes[0].set_ylim(0.3, 1.03)
axes[1].set_ylabel("")
pyplot.show()

# %%
# Both cover 90 % overall. The plain method covers all easy pixels at the expense of the hard ones:
# at edges it misses more than half. Adaptive widths come much closer to the line, though not onto
# it: 90 % is guaranteed on average, not for each tenth.
#
# Error bars show what chance explains. If coverage is even, about two of three touch the line.

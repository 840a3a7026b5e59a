"""
Do widths follow the error?
===========================

The usual interval has the same width for every input. A photograph shows what that means. A model
predicts how bright a pixel is from eight pixels around it. That is easy in the sky and hard at the
edge of a roof.
"""

# %%
# Each row is a pixel. Its features are the pixels two steps away; its target is its own brightness.

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.ensemble import HistGradientBoostingRegressor

image = load_sample_image("china.jpg")[::2, ::2].mean(axis=2)
steps = [(i, j) for i in (-2, 0, 2) for j in (-2, 0, 2) if (i, j) != (0, 0)]
inner = (slice(2, -2), slice(2, -2))
X = np.stack([np.roll(image, step, axis=(0, 1))[inner].ravel() for step in steps], axis=1)
y = image[inner].ravel()

rows = np.random.default_rng(0).permutation(len(y))
train, cal = rows[:4000], rows[4000:6000]
booster = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train])

# %%
# ``Split()`` is the usual method: one width. Without it, calliper adapts.

from calliper import ConformalRegressor, Split

constant = ConformalRegressor(booster, Split()).calibrate(X[cal], y[cal])
adaptive = ConformalRegressor(booster).calibrate(X[cal], y[cal])
one_width = constant.predict_interval(X, coverage=0.9)
own_width = adaptive.predict_interval(X, coverage=0.9)

# %%
# Both cover nine of ten pixels. Only one of them is wide at the temple and narrow in the sky.

from matplotlib import pyplot

shape = image[inner].shape
error = np.abs(y - booster.predict(X))
figure, axes = pyplot.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
for ax, title, values, style in [
    (axes[0, 0], "The photograph", y, {"cmap": "gray"}),
    (axes[0, 1], "How far the model is off", error, {"cmap": "magma", "vmin": 0, "vmax": 50}),
    (
        axes[1, 0],
        "One width everywhere",
        one_width.width,
        {"cmap": "magma", "vmin": 0, "vmax": 150},
    ),
    (axes[1, 1], "A width of its own", own_width.width, {"cmap": "magma", "vmin": 0, "vmax": 150}),
]:
    ax.imshow(values.reshape(shape), **style)
    ax.set_title(title, loc="left", weight="bold", fontsize=11)
    ax.set_axis_off()
pyplot.show()

# %%
# In numbers: how many pixels are inside, where the model's errors are small and where they are
# large?

sky = np.zeros(shape, dtype=bool)
sky[:30] = True
for name, part in [("in the sky", sky.ravel()), ("elsewhere", ~sky.ravel())]:
    for method, found in [("one width", one_width), ("own width", own_width)]:
        inside = found.contains(y)[part].mean()
        print(f"{method} {name}: {inside:.0%} inside, {found.width[part].mean():.0f} wide")

"""
Coverage with your own calibration set
======================================

If the calibration errors happen to be small, coverage falls below 90 %. If that may happen in at
most one of twenty projects, ask for a confidence of 95 %.
"""

# %%
# Diabetes patients again, this time with a linear model. Every project draws its own calibration
# patients.

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV

from calliper import ConformalRegressor, Split

X, y = load_diabetes(return_X_y=True)
rng = np.random.default_rng(0)
rows = rng.permutation(len(y))
ridge = RidgeCV().fit(X[rows[:100]], y[rows[:100]])
others = rows[100:]

found = {"coverage=0.9": [], "coverage=0.9, confidence=0.95": []}
for _ in range(250):
    drawn = rng.permutation(others)
    cal, new = drawn[:100], drawn[100:]
    model = ConformalRegressor(ridge, Split(), embed="prediction").calibrate(X[cal], y[cal])
    for name, confidence in zip(found, (None, 0.95), strict=True):
        intervals = model.predict_interval(X[new], coverage=0.9, confidence=confidence)
        found[name].append(intervals.contains(y[new]).mean())

# %%
# Each dot is a project: the share of its new patients inside their intervals.

from matplotlib import pyplot

figure, ax = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
ax.axvline(0.9, color="#000000", linestyle=(0, (4, 2)), linewidth=1.1)
for place, shares in enumerate(found.values()):
    shares = np.array(shares)
    below = shares < 0.9
    height = place + rng.uniform(-0.28, 0.28, size=len(shares))
    ax.scatter(shares[~below], height[~below], s=14, color="#0072B2", alpha=0.7)
    ax.scatter(shares[below], height[below], s=14, color="#D55E00", alpha=0.7)
    ax.annotate(f"{below.mean():.0%} below 90 %", (0.762, place), va="center", color="#D55E00")
ax.set_yticks(range(2), list(found))
ax.set(
    xlim=(0.76, 1.0),
    xticks=[0.8, 0.85, 0.9, 0.95, 1],
    xlabel="share of new patients inside",
    ylim=(-0.5, 1.5),
)
ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
ax.set_title("250 projects, 100 calibration patients each", loc="left", weight="bold")
ax.spines[["top", "right", "left"]].set_visible(False)
pyplot.show()

# %%
# With ``coverage=0.9`` the *average* project covers 90 %, and many cover less. With a confidence,
# few do. (With only 242 new patients, some projects fall below by chance alone.) The price is wider
# intervals: a larger calibration error is used.

print(model.guarantee(0.9, confidence=0.95).describe())

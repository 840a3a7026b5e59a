"""
When the model is biased
========================

A straight line through the hours of a day cannot follow rush hour. Its predictions are *biased*:
too low at eight, too high at four in the morning. Intervals around biased predictions are wide.
calliper can learn the bias from training rows, and shift the intervals to where the targets are.
"""

# %%
# Ridge regression of bicycle hires on working days, simulated for this page:

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

rng = np.random.default_rng(0)
hour, warmth = rng.integers(0, 24, size=4500), rng.normal(size=4500)
rush = np.exp(-((hour - 8) ** 2) / 3) + 1.3 * np.exp(-((hour - 17) ** 2) / 6)
X = np.column_stack([hour, warmth])
y = (20 + 400 * rush) * np.exp(0.2 * warmth) * rng.gamma(12, 1 / 12, size=4500)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=1500, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(
    X_rest, y_rest, train_size=1500, test_size=1200, random_state=0
)
ridge = make_pipeline(StandardScaler(), Ridge()).fit(X_train, y_train)

# %%
# ``refits=5`` trains the model five more times, each time without a fifth of the training rows.
# From the signed errors on the rows left out, an ``ErrorModel`` learns where the model is too low
# or too high. ``error_model=None`` turns that off.

from calliper import ConformalRegressor

known = {"X_train": X_train, "y_train": y_train}
moved = ConformalRegressor(ridge, refits=5).calibrate(X_cal, y_cal, **known)
around = ConformalRegressor(ridge, error_model=None).calibrate(X_cal, y_cal, **known)

# %%

from matplotlib import pyplot

hour = X_new[:, 0]
figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained", sharey=True)
place = hour + np.random.default_rng(0).uniform(-0.35, 0.35, size=len(hour))
for ax, name, model in [
    (axes[0], "Around the prediction", around),
    (axes[1], "Moved to where the targets are", moved),
]:
    found = model.predict_interval(X_new, coverage=0.9, bounds=(0, None))
    inside = found.contains(y_new)
    ax.vlines(place, found.lower, found.upper, color="#9cc9e3", linewidth=0.7, alpha=0.8)
    ax.scatter(place[inside], y_new[inside], s=3, color="#0072B2")
    ax.scatter(place[~inside], y_new[~inside], s=6, color="#D55E00")
    said = f"{inside.mean():.0%} inside, mean width {found.width.mean():.0f}"
    ax.set_title(f"{name}\n{said}", loc="left", weight="bold", fontsize=11)
    ax.set(xlabel="hour of the day", xticks=range(0, 25, 4))
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("bicycles hired in the hour")
pyplot.show()

# %%
# The guarantee is the same for both, because only training rows decide where intervals move.
# ``predict`` still returns the ridge prediction. If many predictions lie outside their intervals, a
# better model would probably find a pattern that this one misses.

outside = ~moved.predict_interval(X_new).contains(moved.predict(X_new))
print(f"{outside.mean():.0%} of the predictions lie outside their own interval")

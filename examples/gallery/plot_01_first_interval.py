"""
A first interval, with a forest
===============================

How far off could a prediction be? Take a forest that predicts how diabetes progresses within a
year.
"""

# %%
# Keep some rows out of training. They are the *calibration set*: the forest has not seen them, so
# its errors on them are like its errors on new patients.

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.6, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, test_size=0.4, random_state=0)
forest = RandomForestRegressor(random_state=0).fit(X_train, y_train)

# %%
# Pass the forest and the calibration rows to calliper, and ask for intervals that contain nine of
# ten new targets.

from calliper import ConformalRegressor

model = ConformalRegressor(forest).calibrate(X_cal, y_cal)
intervals = model.predict_interval(X_new, coverage=0.9)
inside = intervals.contains(y_new)
print(f"{inside.sum()} of {len(inside)} new patients are inside their interval")

# %%
# Each line is one patient, from the narrowest interval on the left to the widest. Dots are the true
# values: blue inside the interval, orange outside. The forest's errors are larger for some patients
# than for others, and the intervals reflect that.

import numpy as np
from matplotlib import pyplot

order = np.argsort(intervals.width)
place, hit = np.arange(len(order)), inside[order]
figure, ax = pyplot.subplots(figsize=(8, 4.4), layout="constrained")
ax.vlines(place, intervals.lower[order], intervals.upper[order], color="#9cc9e3", linewidth=4)
ax.scatter(place, model.predict(X_new)[order], marker="_", color="#444444", label="prediction")
truth = y_new.to_numpy()[order]
ax.scatter(place[hit], truth[hit], s=16, color="#0072B2", zorder=3, label="target, inside")
ax.scatter(place[~hit], truth[~hit], s=30, color="#D55E00", zorder=3, label="target, outside")
ax.set(xlabel="new patients, ordered by interval width", ylabel="progression of diabetes")
ax.set_title("90 % intervals for patients the forest has not seen", loc="left", weight="bold")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=3, loc="upper left")
ax.set_ylim(top=420)
pyplot.show()

# %%
# What is guaranteed? The object can describe it.

print(model.guarantee(0.9).describe())

# %%
# In a notebook, intervals and guarantees are displayed as small plots and cards.

intervals

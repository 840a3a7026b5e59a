"""
A one-sided bound
=================

To plan care for a patient, you do not need an interval. You need an upper bound: how bad could it
get? A one-sided bound is enough, and it is closer to the prediction than the upper end of an
interval.
"""

# %%
# How diabetes progresses within a year:

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

X, y = load_diabetes(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.6, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, test_size=0.4, random_state=0)
forest = RandomForestRegressor(random_state=0).fit(X_train, y_train)

# %%
# ``SignedError("upper")`` counts only errors where the target lies *above* the prediction.

import numpy as np

from calliper import ConformalRegressor, SignedError

bound = ConformalRegressor(forest, score_function=SignedError("upper")).calibrate(X_cal, y_cal)
at_most = bound.predict_interval(X_new, coverage=0.95).upper
print(f"{np.mean(y_new <= at_most):.1%} stay below the bound")

# %%
# ``SignedError("lower")`` gives a lower bound. A :class:`~calliper.distribution.Distribution` has
# both: ``predict_distribution(X).quantile(0.95)``, and ``quantile(0.05, side="lower")``.

from matplotlib import pyplot

order = np.argsort(at_most)
place, worse = np.arange(len(order)), (y_new > at_most)[order]
figure, ax = pyplot.subplots(figsize=(8, 4.4), layout="constrained")
ax.fill_between(place, 0, at_most[order], color="#0072B2", alpha=0.12, linewidth=0)
ax.plot(place, at_most[order], color="#0072B2", label="95 % upper bound")
ax.scatter(place[~worse], y_new[order][~worse], s=12, color="#444444", label="target")
ax.scatter(place[worse], y_new[order][worse], s=30, color="#D55E00", label="above the bound")
ax.set(xlabel="new patients, ordered by bound", ylabel="progression of diabetes", ylim=(0, 460))
ax.set_title("An upper bound for 95 % of patients", loc="left", weight="bold")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper left", ncols=3)
pyplot.show()

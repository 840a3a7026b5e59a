"""
How strong is it, at least?
===========================

Who builds with concrete does not ask between which values its strength lies. They ask for a
bound: it must hold *at least* so much. A one-sided bound is all that is needed, and it is closer
to the prediction than the lower end of an interval.
"""

# %%
# The mixture and the age of concrete, and the strength that was measured:

from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

from experiments.data import load_tabular

table = load_tabular("concrete")
X, y = table.X, table.y
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=400, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, train_size=400, random_state=0)
forest = RandomForestRegressor(random_state=0).fit(X_train, y_train)

# %%
# ``SignedError("lower")`` calls only those errors large where the target lies *below* the
# prediction.

import numpy as np

from calliper import ConformalRegressor, SignedError

bound = ConformalRegressor(forest, score_function=SignedError("lower")).calibrate(X_cal, y_cal)
at_least = bound.predict_interval(X_new, coverage=0.95, bounds=(0, None)).lower
print(f"{np.mean(y_new >= at_least):.1%} are as strong as the bound says")

# %%
# ``SignedError("upper")`` bounds from above. Both bounds of a
# :class:`~calliper.distribution.Distribution` do the same: ``predict_distribution(X).quantile(0.05,
# side="lower")``.

from matplotlib import pyplot

order = np.argsort(at_least)
place, weak = np.arange(len(order)), (y_new < at_least)[order]
figure, ax = pyplot.subplots(figsize=(8, 4.4), layout="constrained")
ax.fill_between(place, at_least[order], 85, color="#0072B2", alpha=0.12, linewidth=0)
ax.plot(place, at_least[order], color="#0072B2", label="95 % bound: at least so strong")
ax.scatter(place[~weak], y_new[order][~weak], s=9, color="#444444", label="measured")
ax.scatter(place[weak], y_new[order][weak], s=26, color="#D55E00", label="weaker than the bound")
ax.set(xlabel="new mixtures, by their bound", ylabel="compressive strength (MPa)", ylim=(0, 85))
ax.set_title("A bound that 95 % keep to", loc="left", weight="bold")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper left")
pyplot.show()

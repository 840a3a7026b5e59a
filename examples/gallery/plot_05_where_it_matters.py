"""
Does it cover where it matters?
===============================

Nine of ten targets are inside. That is an average, and an average can hide much: are the
expensive houses covered as often as the cheap ones? Look before you rely on it.
"""

# %%
# Two methods around the same forest, calibrated on the same rows.

from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

from calliper import ConformalRegressor, Split
from experiments.data import load_tabular

table = load_tabular("california_housing_20640")
X, y = table.X, table.y / 1000
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=1500, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(
    X_rest, y_rest, train_size=1500, test_size=4000, random_state=0
)
forest = RandomForestRegressor(60, max_features=0.4, random_state=0).fit(X_train, y_train)
plain = ConformalRegressor(forest, Split()).calibrate(X_cal, y_cal)
adaptive = ConformalRegressor(forest).calibrate(X_cal, y_cal, X_train=X_train, y_train=y_train)

# %%
# Cut the new districts into tenths by their predicted price, and count in each tenth how many
# targets are inside. ``CoverageDisplay`` does both.

from matplotlib import pyplot

from calliper.report import CoverageDisplay

figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
y_pred = forest.predict(X_new)
for ax, (name, model) in zip(
    axes, {"One width": plain, "Widths that follow the error": adaptive}.items(), strict=True
):
    CoverageDisplay.from_intervals(
        y_new, model.predict_interval(X_new, coverage=0.9), values=y_pred, what="predicted price"
    ).plot(ax, name=name)
axes[0].set_ylim(0.68, 1.01)
axes[1].set_ylabel("")
pyplot.show()

# %%
# Both cover 90 % in all. The plain method covers nearly all cheap districts, and pays for it with
# the dear ones, of which it misses one in five. The widths that follow the error are close to the
# line nearly everywhere.
#
# Bars are what chance explains. About two of three touch the line if coverage is even.

"""
Where in California is XGBoost unsure?
======================================

A booster predicts what houses cost in each district. Its intervals can be drawn on a map: they
say where a prediction may be trusted to 50,000 $ and where only to 250,000 $.
"""

# %%
# Train XGBoost on some districts, calibrate on others, and ask for all the rest.

from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor

from calliper import ConformalRegressor
from studies.experiments.data import load_tabular

table = load_tabular("california_housing_20640")
X, y = table.X, table.y / 1000  # thousands of dollars
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=6000, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, train_size=2000, random_state=0)

booster = XGBRegressor(n_estimators=200, max_depth=6, learning_rate=0.1).fit(X_train, y_train)
model = ConformalRegressor(booster).calibrate(X_cal, y_cal)
intervals = model.predict_interval(X_new, coverage=0.9, bounds=(0, None))
print(f"inside: {intervals.contains(y_new).mean():.1%} of {len(y_new)} districts")

# %%
# Calibrating took no further training. calliper looked at the booster itself: rows for which its
# last trees still move the prediction are rows that it is unsure about. Widths follow the error
# better still with ``ConformalRegressor(booster, left_out_folds=5)`` and the training rows in
# ``calibrate``, at the price of five more trainings: :doc:`/your-model`.
#
# ``bounds=(0, None)`` says that no house costs less than nothing.

from matplotlib import pyplot

figure, ax = pyplot.subplots(figsize=(7, 6.4), layout="constrained")
longitude, latitude = X_new[:, 0], X_new[:, 1]
dots = ax.scatter(longitude, latitude, c=intervals.width, s=5, cmap="viridis", vmax=300)
figure.colorbar(dots, label="width of the 90 % interval (1000 $)", shrink=0.8)
for name, x, y_place in [
    ("San Francisco", -122.4, 37.8),
    ("Los Angeles", -118.3, 34.0),
    ("San Diego", -117.2, 32.7),
    ("Fresno", -119.8, 36.75),
]:
    ax.annotate(name, (x, y_place), (-10, -6), textcoords="offset points", ha="right", fontsize=9)
ax.set(xlabel="longitude", ylabel="latitude", aspect=1.2)
ax.set_title("How far off may the price be, here?", loc="left", weight="bold")
ax.spines[["top", "right"]].set_visible(False)
pyplot.show()

# %%
# Inland, intervals are short: prices hardly differ. Along the coast, and most of all around San
# Francisco and Los Angeles, neighbouring districts differ by hundreds of thousands, and the booster
# does not know why.

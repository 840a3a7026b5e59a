"""
Where is XGBoost unsure?
========================

A booster predicts house prices from location and number of rooms. Its intervals can be drawn on a
map: they show where a price is known to 50,000 and where only to 250,000.
"""

# %%
# A region with two cities, simulated for this page. In the cities prices are higher and vary more
# between neighbours. Train XGBoost on some houses, calibrate on others, and predict the rest.

import numpy as np
from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor

from calliper import ConformalRegressor

CITIES = {"Northport": (25, 70, 12), "Southbay": (72, 30, 16)}

rng = np.random.default_rng(0)
east, north = rng.uniform(0, 100, size=(2, 9000))  # kilometres
city = sum(
    np.exp(-((east - x) ** 2 + (north - y) ** 2) / (2 * reach**2))
    for x, y, reach in CITIES.values()
)
rooms = rng.integers(2, 8, size=9000)
X = np.column_stack([east, north, rooms])
y = 80 + 25 * rooms + 250 * city + (10 + 60 * city) * rng.normal(size=9000)  # in thousands

X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=3000, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, train_size=2000, random_state=0)

booster = XGBRegressor(n_estimators=200, max_depth=6, learning_rate=0.1).fit(X_train, y_train)
model = ConformalRegressor(booster).calibrate(X_cal, y_cal)
intervals = model.predict_interval(X_new, coverage=0.9, bounds=(0, None))
print(f"inside: {intervals.contains(y_new).mean():.1%} of {len(y_new)} houses")

# %%
# The booster was not retrained. Part of the calibration rows was used to learn where its errors are
# large, the others to calibrate. If you pass the training rows to ``calibrate`` and use
# ``ConformalRegressor(booster, refits=5)``, all of them calibrate: see :doc:`/your-model`.
#
# ``bounds=(0, None)`` says that prices are not negative.

from matplotlib import pyplot

figure, ax = pyplot.subplots(figsize=(7, 6.4), layout="constrained")
dots = ax.scatter(X_new[:, 0], X_new[:, 1], c=intervals.width, s=6, cmap="viridis")
figure.colorbar(dots, label="width of the 90 % interval (thousands)", shrink=0.8)
for name, (x, y_place, _) in CITIES.items():
    ax.text(x, y_place, name, ha="center", bbox={"facecolor": "white", "edgecolor": "none"})
ax.set(xlabel="east (km)", ylabel="north (km)", aspect=1)
ax.set_title("How far off could the price be?", loc="left", weight="bold")
ax.spines[["top", "right"]].set_visible(False)
pyplot.show()

# %%
# In the country, prices hardly differ between neighbours and intervals are narrow. In the cities
# they differ by hundreds of thousands, for reasons the booster cannot see.

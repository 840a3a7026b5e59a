"""
Gaps and categories
===================

Some values are missing, some columns are words. Pass rows as the model takes them. Do intervals
notice that a value is missing?
"""

# %%
# Take prices of houses, with the place as a word. Then lose the income of every fourth district, as
# if a form had not been filled in: of all features it tells most about the price.

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from experiments.data import load_tabular

table = load_tabular("california_housing_20640")
X = pd.DataFrame(table.X, columns=table.feature_names)
sea = [name for name in X.columns if name.startswith("ocean_")]
X = X.drop(columns=sea).assign(place=X[sea].idxmax(axis=1).astype("category"))
gap = np.random.default_rng(0).uniform(size=len(X)) < 0.25
X.loc[gap, "median_income"] = np.nan
y = table.y / 1000

X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=4000, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(
    X_rest, y_rest, train_size=1500, test_size=5000, random_state=0
)

# %%
# This booster takes gaps and categories as they are, and so does calliper around it. With a model
# that does not, put an imputer and an encoder before it in a pipeline, and pass the pipeline.

from calliper import ConformalRegressor

booster = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
booster.fit(X_train, y_train)
model = ConformalRegressor(booster).calibrate(X_cal, y_cal)
intervals = model.predict_interval(X_new, coverage=0.9, bounds=(0, None))

# %%

from matplotlib import pyplot

missing = X_new["median_income"].isna().to_numpy()
inside = intervals.contains(y_new)
figure, ax = pyplot.subplots(figsize=(8, 4), layout="constrained")
bins = np.linspace(0, 450, 46)
for part, name, color in [(~missing, "income known", "#0072B2"), (missing, "missing", "#D55E00")]:
    label = f"{name}: {inside[part].mean():.0%} inside"
    ax.hist(intervals.width[part], bins, density=True, color=color, alpha=0.55, label=label)
    ax.axvline(np.median(intervals.width[part]), color=color, linewidth=2)
ax.set(xlabel="width of the 90 % interval (1000 $)", yticks=[])
ax.set_title("A missing income makes a wider interval", loc="left", weight="bold")
ax.spines[["top", "right", "left"]].set_visible(False)
ax.legend(frameon=False)
pyplot.show()

# %%
# No one told calliper about gaps. The booster is less sure of rows without an income, and it shows
# in how far its last trees still move the prediction.
#
# If coverage must hold for rows with gaps and for rows without, say so: ``calibrate(X_cal, y_cal,
# groups=lambda rows: rows["median_income"].isna())``.

"""
Save and load
=============

Calibrate once, save the result to a file, and load it with the model wherever predictions are
needed.
"""

# %%
# As always, start with a model and held-out rows.

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

from calliper import ConformalRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.6, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, test_size=0.4, random_state=0)
forest = RandomForestRegressor(random_state=0).fit(X_train, y_train)
model = ConformalRegressor(forest).calibrate(X_cal, y_cal, X_train=X_train, y_train=y_train)

# %%
# ``save`` writes the calibration as numbers and names. The file contains no code, so opening it
# runs nothing. The model is not in it; save it in the usual way.

import tempfile
from pathlib import Path

import calliper

path = Path(tempfile.mkdtemp()) / "diabetes.calliper"
calliper.save(model, path)
print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
header = calliper.files.inspect(path).header
print(header["method"], "with", header["n_calibration"], "calibration rows")
print("distances are measured in", header["space"])

# %%
# ``load`` takes the file and the model, and raises an error if the model is not the one that was
# calibrated. Intervals are the same as before, to the last bit, and you can still choose any level.

import numpy as np

again = calliper.load(path, forest)
levels = np.linspace(0.05, 0.99, 60)
before, after = (each.predict_interval(X_new[:4], levels) for each in (model, again))
assert np.array_equal(before.lower, after.lower)

from matplotlib import pyplot

figure, axes = pyplot.subplots(1, 4, figsize=(10, 3.6), layout="constrained", sharey=True)
for patient, ax in enumerate(axes):
    ax.fill_between(100 * levels, after.lower[patient], after.upper[patient], color="#9cc9e3")
    ax.axhline(y_new[patient], color="#D55E00", linestyle=(0, (4, 2)))
    ax.set_title(f"patient {patient + 1}", loc="left", fontsize=10)
    ax.set_xlabel("requested coverage (%)")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("progression of diabetes")
axes[0].annotate("target", (4, y_new[0] + 5), color="#D55E00", fontsize=9)
figure.suptitle("One file, every level", weight="bold", x=0.01, ha="left")
pyplot.show()

"""
Two targets at once
===================

Two 90 % intervals, one for each target, contain *both* targets less often than that. If both
matter together, ask for a box.
"""

# %%
# From the average appearance of cell nuclei in a sample, predict the radius and texture of the
# worst ones.

import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

data = load_breast_cancer(as_frame=True).data
X = data.filter(like="mean")
Y = data[["worst radius", "worst texture"]]
X_train, X_rest, Y_train, Y_rest = train_test_split(X, Y, train_size=200, random_state=0)
X_cal, X_new, Y_cal, Y_new = train_test_split(X_rest, Y_rest, train_size=200, random_state=0)
forest = RandomForestRegressor(random_state=0).fit(X_train, Y_train)

# %%
# ``joint=True``, the default, makes boxes that contain both targets with probability 90 %.
# ``joint=False`` makes an interval for each.

from calliper import MultiTargetRegressor

known = {"X_train": X_train, "y_train": Y_train}
together = MultiTargetRegressor(forest).calibrate(X_cal, Y_cal, **known)
separate = MultiTargetRegressor(forest, joint=False).calibrate(X_cal, Y_cal, **known)
boxes = together.predict_interval(X_new, coverage=0.9)
pairs = separate.predict_interval(X_new, coverage=0.9)
shares = pd.Series(
    {
        "boxes": boxes.contains(Y_new).mean(),
        "an interval for each": pairs.contains(Y_new).mean(),
    },
    name="both targets inside",
)
print(shares.round(3))

# %%
# Boxes for every eighth sample, and the true targets:

from matplotlib import pyplot
from matplotlib.patches import Rectangle

figure, ax = pyplot.subplots(figsize=(7, 5), layout="constrained")
radius, texture = boxes["worst radius"], boxes["worst texture"]
inside = boxes.contains(Y_new)
for row in range(0, len(Y_new), 8):
    color = "#0072B2" if inside[row] else "#D55E00"
    corner = radius.lower[row], texture.lower[row]
    box = Rectangle(corner, radius.width[row], texture.width[row], facecolor=color, alpha=0.12)
    ax.add_patch(box)
    ax.plot(*Y_new.iloc[row], "o", color=color, markersize=5)
ax.set(xlabel="worst radius", ylabel="worst texture")
ax.set_title("90 % boxes for two targets at once", loc="left", weight="bold")
ax.spines[["top", "right"]].set_visible(False)
ax.autoscale_view()
pyplot.show()

# %%
# Blue: both targets inside the box. Boxes are larger on the right, where samples are more unusual.

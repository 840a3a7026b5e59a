"""
Compared with crepes
====================

crepes adapts widths by a *difficulty* that you choose. calliper derives it from the model. Both
use the same forest and the same rows.
"""

# %%
# A forest predicts the number shown in an image of a digit.

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

X, y = load_digits(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=400, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, train_size=600, random_state=0)
forest = RandomForestRegressor(random_state=0).fit(X_train, y_train)

# %%
# crepes, with the spread of the trees as difficulty:

from crepes import WrapRegressor
from crepes.extras import DifficultyEstimator

from calliper import Intervals

difficulty = DifficultyEstimator().fit(X=X_train, learner=forest, scaler=True)
wrapped = WrapRegressor(forest)
wrapped.calibrate(X_cal, y_cal, de=difficulty)
theirs = Intervals(*wrapped.predict_int(X_new, confidence=0.9).T, 0.9)

# %%
# calliper:

from calliper import ConformalRegressor

model = ConformalRegressor(forest).calibrate(X_cal, y_cal, X_train=X_train, y_train=y_train)
ours = model.predict_interval(X_new, coverage=0.9)

# %%
# Each dot is an image. To the right of the line calliper's interval is narrower. Large dots are
# images whose target lies outside.

from matplotlib import pyplot

from calliper.lab.metrics import interval_score

figure, ax = pyplot.subplots(figsize=(6, 5.4), layout="constrained")
ends = [0.3, 20]
ax.plot(ends, ends, color="#000000", linestyle=(0, (4, 2)), linewidth=1.1)
ax.scatter(theirs.width, ours.width, s=12, color="#0072B2", alpha=0.6, label="image")
for name, intervals, color, mark in [
    ("crepes", theirs, "#E69F00", "s"),
    ("calliper", ours, "#D55E00", "o"),
]:
    inside, score = intervals.contains(y_new), interval_score(y_new, intervals)
    width = intervals.width.mean()
    print(f"{name}: {inside.mean():.0%} inside, mean width {width:.2f}, score {score:.2f}")
    ax.scatter(
        theirs.width[~inside],
        ours.width[~inside],
        s=60,
        facecolor="none",
        edgecolor=color,
        marker=mark,
        label=f"outside, {name}",
    )
ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
ax.set(xlabel="width with crepes", ylabel="width with calliper")
ax.xaxis.set_major_formatter("{x:g}")
ax.yaxis.set_major_formatter("{x:g}")
ax.set_title("Digits: the same forest, two libraries", loc="left", weight="bold")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper left")
pyplot.show()

# %%
# The *score* is the width plus a penalty for targets outside; smaller is better. Here both are
# about equally good, because the spread of the trees is informative. One dataset and one draw prove
# little; :doc:`/evidence` has more. :doc:`/from-crepes` has the other calls side by side.

"""
Which method suits my data?
===========================

There are many methods, and which is best depends on the data. Compare them on your own rows before
you choose.
"""

# %%
# Take a model's predictions on held-out rows, some for calibration and some for testing. Here a
# booster predicts the brightness of a pixel in a photograph from eight pixels around it.

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.ensemble import HistGradientBoostingRegressor

from calliper import KNN, FullRescaled, JackknifeRescaled, Split
from calliper.lab.comparison import Points, compare

image = load_sample_image("flower.jpg")[::2, ::2].mean(axis=2)
steps = [(i, j) for i in (-2, 0, 2) for j in (-2, 0, 2) if (i, j) != (0, 0)]
inner = (slice(2, -2), slice(2, -2))
X = np.stack([np.roll(image, step, axis=(0, 1))[inner].ravel() for step in steps], axis=1)
y = image[inner].ravel()

rows = np.random.default_rng(0).permutation(len(y))
train, cal, test = rows[:4000], rows[4000:5000], rows[5000:7000]
booster = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train])
calibration = Points(X[cal], y[cal], booster.predict(X[cal]))
unseen = Points(X[test], y[test], booster.predict(X[test]))

methods = {
    "FullRescaled, the default": FullRescaled(),
    "FullRescaled, 30 neighbours": FullRescaled(KNN(30)),
    "JackknifeRescaled, 10 neighbours": JackknifeRescaled(KNN(10), random_state=0),
    "Split: one width": Split(),
}
found = compare(calibration, unseen, methods=methods, coverage=0.9)
print(found.verdict.headline)

# %%
# The *interval score* rates intervals by one number: their width, plus a penalty for each target
# that lies outside, larger the further away. Scores are relative to constant width: below 1 is
# better.

from matplotlib import pyplot

records = [found.record(name, 0.9) for name in methods]
figure, ax = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
ax.axvline(1, color="#000000", linestyle=(0, (4, 2)), linewidth=1.1)
for place, record in enumerate(records[::-1]):
    ax.errorbar(
        record.relative_score, place, xerr=record.relative_score_error, fmt="o", color="#0072B2"
    )
    ax.annotate(
        f"{record.coverage:.0%} inside",
        (record.relative_score, place),
        (0, 7),
        textcoords="offset points",
        ha="center",
        fontsize=9,
    )
ax.set_yticks(range(len(records)), [record.method for record in records[::-1]])
ax.set(xlabel="interval score relative to constant width (smaller is better)", ylim=(-0.5, 3.6))
ax.set_title("Pixels: how good are 90 % intervals?", loc="left", weight="bold")
ax.spines[["top", "right", "left"]].set_visible(False)
pyplot.show()

# %%
# Bars are standard errors. If two of them overlap, the difference means little. For a page with all
# figures that works offline and can be shared, write ``calliper.lab.report.render_page(found)`` to
# a file, or use ``calliper compare`` from the command line.

"""
How many calibration rows do I need?
====================================

"At least 90 %" is an average over calibration sets. You have only one. How far from 90 % could its
coverage be?
"""

# %%
# Take the errors of one model on many rows: it predicts the brightness of a pixel from the pixels
# around it. Repeatedly draw 50 of them for calibration and test on all others; then do the same
# with 1,000.

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.ensemble import HistGradientBoostingRegressor

from calliper import Split
from calliper.quantile import conformal_rank

image = load_sample_image("flower.jpg")[::2, ::2].mean(axis=2)
steps = [(i, j) for i in (-2, 0, 2) for j in (-2, 0, 2) if (i, j) != (0, 0)]
inner = (slice(2, -2), slice(2, -2))
X = np.stack([np.roll(image, step, axis=(0, 1))[inner].ravel() for step in steps], axis=1)
y = image[inner].ravel()

rng = np.random.default_rng(0)
rows = rng.permutation(len(y))[:20_000]
booster = HistGradientBoostingRegressor(random_state=0).fit(X[rows[:3000]], y[rows[:3000]])
errors = np.abs(y - booster.predict(X))[rows[3000:]]
errors += 1e-9 * rng.uniform(size=len(errors))  # the law is exact where no two errors are equal


def coverages(n, draws=800, n_test=2000):
    """The share of new errors within the radius, for each of many draws of n calibration errors."""
    shares = []
    for _ in range(draws):
        drawn = rng.permutation(len(errors))[: n + n_test]
        radius = np.sort(errors[drawn[:n]])[conformal_rank(0.9, n) - 1]
        shares.append(np.mean(errors[drawn[n:]] <= radius))
    return np.array(shares)


# %%
# The distribution of coverage is known before any data are seen. It depends only on the number of
# calibration rows, not on the model or the data.

from matplotlib import pyplot

from calliper.lab.report import CoverageLawDisplay

figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4), layout="constrained", sharex=True)
for ax, n in zip(axes, (50, 1000), strict=True):
    CoverageLawDisplay.from_coverages(
        coverages(n), coverage=0.9, n_calibration=n, n_test=2000
    ).plot(ax, name=f"{n:,} calibration rows")
axes[0].set_xlim(0.74, 1)
pyplot.show()

# %%
# With 50 rows, coverage is mostly between 83 and 96 %; with 1,000, between 88 and 92 %. Use a few
# hundred if you can. If coverage must hold with *your* rows, ask for a confidence, as in
# :doc:`plot_14_confidence`.
#
# ``calliper`` computes all this for you:

from calliper.guarantees import coverage_law

for n in (50, 200, 1000):
    low, high = coverage_law(0.9, n).ppf([0.05, 0.95])
    print(f"{n:5,d} calibration rows: 90 % of draws cover between {low:.1%} and {high:.1%}")

radius = Split().fit(np.zeros((50, 1)), errors[:50]).predict_radius(np.zeros((1, 1)), 0.9)
assert radius[0] == np.sort(errors[:50])[conformal_rank(0.9, 50) - 1]

"""
Which method suits my data?
===========================

There are many methods, and which is best depends on the data. Ask for a verdict on rows of your
own before you choose.
"""

# %%
# Take predictions of a model on rows that it has not seen, half to calibrate and half to judge. The
# table holds prices of houses in California.

from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from calliper import KNN, FullRescaled, JackknifeRescaled, Split
from calliper.comparison import Points, compare
from experiments.data import load_tabular

table = load_tabular("california_housing_20640")
X, y = table.X, table.y / 1000
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=3000, random_state=0)
booster = HistGradientBoostingRegressor(random_state=0).fit(X_train, y_train)
scale = X_train.std(axis=0)
X_cal, X_test, y_cal, y_test = train_test_split(
    X_rest, y_rest, train_size=1000, test_size=2000, random_state=0
)
calibration = Points(X_cal / scale, y_cal, booster.predict(X_cal))
test = Points(X_test / scale, y_test, booster.predict(X_test))

methods = {
    "FullRescaled, the default": FullRescaled(),
    "FullRescaled, 30 neighbours": FullRescaled(KNN(30)),
    "JackknifeRescaled, 10 neighbours": JackknifeRescaled(KNN(10), random_state=0),
    "Split: one width": Split(),
}
found = compare(calibration, test, methods=methods, coverage=0.9)
print(found.verdict.headline)

# %%
# The *interval score* rates intervals by one number: their width, plus a fine for each target that
# lies outside, larger the further away. Divided by that of one width, below 1 is better.

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
ax.set(xlabel="interval score over that of one width (less is better)", ylim=(-0.5, 3.6))
ax.set_title("Prices of houses: how good are 90 % intervals?", loc="left", weight="bold")
ax.spines[["top", "right", "left"]].set_visible(False)
pyplot.show()

# %%
# Bars are standard errors. If two of them overlap, do not read much into who is ahead. For a page
# with all figures, that works offline and can be sent to others, write
# ``calliper.report.render_page(found)`` to a file, or use ``calliper compare`` from the command
# line.

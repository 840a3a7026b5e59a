"""
Which images is a network unsure about?
=======================================

A network predicts the number shown in an image of a digit. To see which images it is unsure about,
compare images in the network's own feature space: its last hidden layer.
"""

# %%
# Train a small regression network on the digits, so that mistaking a 9 for an 8 is a small error
# and mistaking it for a 0 is a large one.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPRegressor

digits = load_digits()
X, y = digits.data / 16, digits.target.astype(float)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=600, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, train_size=600, random_state=0)
net = MLPRegressor(hidden_layer_sizes=(64, 16), max_iter=1000, random_state=0)
net = net.fit(X_train, y_train)

# %%
# Write a function that returns the last hidden layer, and pass it as ``embed``. calliper then uses
# this space to find the calibration images that are most similar to a new one.

from calliper import ConformalRegressor


def hidden(images):
    """The numbers that the network's last hidden layer computes."""
    Z = images
    for weights, constants in zip(net.coefs_[:-1], net.intercepts_[:-1], strict=True):
        Z = np.maximum(Z @ weights + constants, 0)
    return Z


conformal = ConformalRegressor(net, embed=hidden).calibrate(X_cal, y_cal)
intervals = conformal.predict_interval(X_new, coverage=0.9, bounds=(0, 9))
print(f"inside: {intervals.contains(y_new).mean():.1%}")

# %%
# The images with the narrowest and the widest intervals:

from matplotlib import pyplot

order = np.argsort(intervals.width)
figure, axes = pyplot.subplots(2, 8, figsize=(9, 3.4), layout="constrained")
for line, chosen, name in [(0, order[:8], "surest"), (1, order[-8:], "least sure")]:
    for ax, row in zip(axes[line], chosen, strict=True):
        ax.imshow(X_new[row].reshape(8, 8), cmap="gray_r")
        ax.set_title(f"{intervals.lower[row]:.1f} to {intervals.upper[row]:.1f}", fontsize=9)
        ax.set(xticks=[], yticks=[])
    axes[line, 0].set_ylabel(name, weight="bold")
figure.suptitle(
    "90 % intervals for the number that an image shows", weight="bold", x=0.01, ha="left"
)
pyplot.show()

# %%
# A PyTorch module needs no such function: ``ConformalRegressor(module)`` finds the last hidden
# layer, and ``embed=Layer(module, "name")`` chooses another.

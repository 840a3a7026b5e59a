"""Who ends up in the same leaves speaks for a point: nearness as a forest sees it."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator


class ForestProximity(BaseEstimator):  # type: ignore[misc]
    """K(x, x') = the share of trees in which x and x' lie in one leaf (Breiman's proximity).

    The trees were grown to tell targets apart, so inputs that do not matter for the prediction do
    not matter for nearness, and no unit or scaling does. A point that shares no leaf with any
    other has all others as neighbours, equally: the limit of a vanishing weight added to all.

    The forest must be trained on other data than the calibration points, as the model is.

    Parameters
    ----------
    forest : fitted ensemble of trees with ``apply``, optional
        A random forest, extra trees, or scikit-learn's ``GradientBoostingRegressor``; the
        features are then the inputs that the forest takes, unscaled: ``ConformalRegressor``
        passes its inputs on as they are, unless ``embed`` is a map of yours. Without a forest, the
        features are the numbers of the leaves, one column a tree, as ``forest.apply`` gives them:
        ``ConformalRegressor(forest, FullRescaled(ForestProximity()), embed=forest.apply)``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from calliper import FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1500, 5))
    >>> y = X[:, 0] + X[:, 0] * rng.normal(size=1500)
    >>> forest = RandomForestRegressor(min_samples_leaf=20, random_state=0).fit(X[:1000], y[:1000])
    >>> errors = abs(y[1000:] - forest.predict(X[1000:]))
    >>> method = FullRescaled(ForestProximity(forest)).fit(X[1000:], errors)
    >>> method.predict_radius([[0.1, 0.5, 0.5, 0.5, 0.5], [0.9, 0.5, 0.5, 0.5, 0.5]]).round(1)
    array([0.2, 1.4])
    """

    def __init__(self, forest: Any = None) -> None:
        self.forest = forest

    @property
    def takes_inputs(self) -> bool:
        """Whether features are raw inputs, and not places whose distances say who is near."""
        return self.forest is not None

    def __sklearn_clone__(self) -> Self:
        # A clone of the forest would be untrained, and this kernel is made of its trained leaves.
        return type(self)(self.forest)

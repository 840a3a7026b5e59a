"""Nearness in directions along which errors change, learnt from training errors."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator


class Mahalanobis(BaseEstimator):  # type: ignore[misc]
    """Another kernel in a linear space where points of like errors are near one another.

    Distances are ‖A(x − x')‖ with a matrix A learnt so that the logarithm of an error is
    predicted well from the errors near by (metric learning for kernel regression, as LVD does it;
    see :mod:`calliper.metric_learning`). Inputs that do not matter for the error are forgotten,
    which helps where there are many.

    A is learnt from left-out or training errors alone, which must be passed to ``fit`` of the
    calibrator (``ConformalRegressor.fit`` does), so guarantees hold as for a fixed kernel. Errors
    that the model makes on rows that it was trained on say less than left-out ones.

    Parameters
    ----------
    kernel : KNN or RBF, default KNN(30)
        The kernel in the learnt space. Its unit is the distance at which weights fall to 1/e.
    n_directions : int, default 4
        Rows of A: the most dimensions that the learnt space can have.
    max_iter : int, default 100
        Steps of learning. Few, since A fits noise where errors do not depend on the input.

    Examples
    --------
    Only the first of ten inputs matters for the error, which grows e² ≈ 7-fold from −1 to 1.

    >>> import numpy as np
    >>> from calliper import KNN, FullRescaled
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(1000, 10))
    >>> errors = abs(rng.normal(size=1000)) * np.exp(Z[:, 0])
    >>> train = {"Z_train": Z[500:], "scores_train": errors[500:]}
    >>> new = np.array([[-1.0] + 9 * [0.0], [1.0] + 9 * [0.0]])
    >>> for kernel in (Mahalanobis(KNN(30)), KNN(30)):
    ...     method = FullRescaled(kernel, random_state=0).fit(Z[:500], errors[:500], **train)
    ...     low, high = method.predict_radius(new)
    ...     print((high / low).round())
    4.0
    3.0
    """

    def __init__(self, kernel: Any = None, *, n_directions: int = 4, max_iter: int = 100) -> None:
        self.kernel = kernel
        self.n_directions = n_directions
        self.max_iter = max_iter

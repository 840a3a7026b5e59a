"""The K nearest neighbours speak for a point, each as loudly as the next."""

from __future__ import annotations

from sklearn.base import BaseEstimator

from calliper.kernels._distances import EUCLIDEAN, Metric


class KNN(BaseEstimator):  # type: ignore[misc]
    """K(x, x') = 1 if x' is among the K nearest of x, else 0: the kernel of the paper, K = 10.

    "Nearest" is meant inside the set that the mean is taken over: if a point is left out of the
    set, the next nearest takes its place. Points at equal distance are ordered at random, by
    priorities that the calibrator draws once.

    Parameters
    ----------
    n_neighbors : int, default 10
        K. Small follows the error closely and noisily, large approaches plain split conformal.
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes. The Euclidean one
        is searched by trees or matrix products, all others by comparing every pair.
    """

    def __init__(self, n_neighbors: int = 10, *, metric: Metric = EUCLIDEAN) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric

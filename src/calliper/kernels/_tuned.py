"""Kernels that choose their own locality, one choice for each calibration point left out."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from calliper.kernels._distances import EUCLIDEAN, Metric

CRITERIA = ("mse", "deviance", "mi")


class TunedRBF(BaseEstimator):  # type: ignore[misc]
    """RBF whose length scale is chosen from a grid (paper, Algorithm S.2).

    In ``JackknifeRescaled``, the length scale l_m that goes with calibration point m is chosen on
    all *other* calibration points, so that the Jackknife+ proof holds as it is. In
    ``FullRescaled`` one length scale is chosen on training errors, so that its 1 − α holds.

    Parameters
    ----------
    criterion : {"mse", "deviance", "mi"}, default "mse"
        What the chosen scale makes smallest: the mean squared error of the local mean as a
        prediction of the score; its gamma deviance, mean of log ŝ + s/ŝ; or the mutual
        information between rescaled score and features, as in the paper.
    n_scan : int, default 30
        Number of length scales on the grid, evenly spaced in their logarithm.
    n_sample : int, default 1000
        Number of pairs of training inputs whose smallest and largest distance span the grid.
    expand : float, default 1
        Factor, at least 1, by which the grid is widened at both ends (β in the paper).
    grid : {"auto", "paper", "guarded"}, default "auto"
        ``"paper"`` spans the distances of the pairs. ``"guarded"`` starts where a kernel averages
        some ten training inputs; without that, mutual information often chooses a scale below the
        spacing of the points. ``"auto"`` guards for ``"mi"`` alone: the other criteria need none.
    length_scales : sequence of float, optional
        The grid itself; no training inputs are needed then.
    chosen : sequence of float, optional
        The length scale of every calibration point, as chosen before on these very points without
        folds (the guarantee holds for no other choice): nothing is tuned.
    n_folds : int, optional
        Leave out folds instead of single points, for large N: at most this many choices, and
        CV+'s guarantee instead of the Jackknife+'s.
    n_components : int, optional
        For ``"mi"``: number of principal components of the features, fitted to training inputs.
        By default all features are used.
    mi_neighbors : int, default 3
        For ``"mi"``: k of the estimator.
    metric : str or callable, default "euclidean"
        Any symmetric metric that :func:`scipy.spatial.distance.cdist` takes.
    progress : callable, optional
        Called with the fraction of the grid that is done; may raise to stop.
    """

    def __init__(
        self,
        criterion: str = "mse",
        *,
        n_scan: int = 30,
        n_sample: int = 1000,
        expand: float = 1.0,
        grid: str = "auto",
        length_scales: Any = None,
        chosen: Any = None,
        n_folds: int | None = None,
        n_components: int | None = None,
        mi_neighbors: int = 3,
        metric: Metric = EUCLIDEAN,
        progress: Any = None,
    ) -> None:
        self.criterion = criterion
        self.n_scan = n_scan
        self.n_sample = n_sample
        self.expand = expand
        self.grid = grid
        self.length_scales = length_scales
        self.chosen = chosen
        self.n_folds = n_folds
        self.n_components = n_components
        self.mi_neighbors = mi_neighbors
        self.metric = metric
        self.progress = progress


class TunedKNN(BaseEstimator):  # type: ignore[misc]
    """K nearest neighbours whose K is chosen from a grid, by the same rule as ``TunedRBF``.

    Parameters
    ----------
    criterion : {"mse", "deviance", "mi"}, default "mse"
        As for ``TunedRBF``.
    n_neighbors : sequence of int, default (3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
        The values of K to choose from; those that are too large for N are left out.
    n_components, mi_neighbors, metric, progress
        As for ``TunedRBF``.
    """

    def __init__(
        self,
        criterion: str = "mse",
        *,
        n_neighbors: Any = (3, 5, 7, 10, 15, 20, 30, 50, 70, 100),
        n_components: int | None = None,
        mi_neighbors: int = 3,
        metric: Metric = EUCLIDEAN,
        progress: Any = None,
    ) -> None:
        self.criterion = criterion
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.mi_neighbors = mi_neighbors
        self.metric = metric
        self.progress = progress

"""Nearness: which points count for a new point, and how much; each kernel with its closed forms.

What is not listed in ``__all__`` serves the other packages.
"""

from typing import TYPE_CHECKING

from calliper._handlers import on_demand
from calliper.kernels._arithmetic import Grid, positive_root, rescale, signed_root
from calliper.kernels._graded import GradedKNN
from calliper.kernels._kernel import Bag, Kernel, Known, LeaveTwoOut, Rng, as_kernel, named_kernels
from calliper.kernels._knn import KNN, Asked, BagKNN, Neighborhood
from calliper.kernels._nearest import SharedSums, shared_means, sum_of_each
from calliper.kernels._rbf import RBF, Radial, check_length_scale, median_distance
from calliper.kernels._search import (
    EUCLIDEAN,
    FARTHEST,
    ORDINARY,
    TIED_SHELL,
    NeighborSearch,
    Pairs,
    Shells,
    all_distances,
    joined,
    paired_distances,
    selected,
)
from calliper.kernels._statistic import STATISTICS, Entering, MeanStatistic

if TYPE_CHECKING:
    from calliper.kernels._learnt import (
        LearntKernel,
        LearntMetric,
        Mahalanobis,
        learn_metric,
        loss_and_gradient,
    )
    from calliper.kernels._proximity import ForestProximity
    from calliper.kernels._tuned import TunedKNN, TunedRBF

#: Kernels that are loaded when first asked for, by their files; a new one is a line here.
_MODULES = {
    "ForestProximity": "_proximity",
    "LearntMetric": "_learnt",
    "Mahalanobis": "_learnt",
    "TunedKNN": "_tuned",
    "TunedRBF": "_tuned",
    "learn_metric": "_learnt",
}

__all__ = ["KNN", "RBF", "GradedKNN", "Kernel", *_MODULES]

__getattr__ = on_demand(
    __name__, _MODULES | {"LearntKernel": "_learnt", "loss_and_gradient": "_learnt"}
)

"""Nearness: who speaks for a point, and how loudly; each kernel with its closed forms."""

from calliper.kernels._base import Bag, Kernel, LeaveTwoOut, as_kernel, rescale
from calliper.kernels._criterion import CRITERIA
from calliper.kernels._knn import KNN
from calliper.kernels._learnt import LearntMetric, Mahalanobis, learn_metric, loss_and_gradient
from calliper.kernels._rbf import (
    RBF,
    RadialExponents,
    check_length_scale,
    median_distance,
    to_weights,
)
from calliper.kernels._search import EUCLIDEAN, NeighborSearch, all_distances, paired_distances
from calliper.kernels._shared import Shells, shared_means
from calliper.kernels._statistic import STATISTICS
from calliper.kernels._tuned import TunedKNN, TunedRBF
from calliper.kernels._weighted import ForestProximity

__all__ = [
    "CRITERIA",
    "EUCLIDEAN",
    "KNN",
    "RBF",
    "STATISTICS",
    "Bag",
    "ForestProximity",
    "Kernel",
    "LearntMetric",
    "LeaveTwoOut",
    "Mahalanobis",
    "NeighborSearch",
    "RadialExponents",
    "Shells",
    "TunedKNN",
    "TunedRBF",
    "all_distances",
    "as_kernel",
    "check_length_scale",
    "learn_metric",
    "loss_and_gradient",
    "median_distance",
    "paired_distances",
    "rescale",
    "shared_means",
    "to_weights",
]

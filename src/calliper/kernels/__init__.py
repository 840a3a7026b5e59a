"""Nearness: who speaks for a point, and how loudly; each kernel with its closed forms.

What is not listed in ``__all__`` serves the other packages.
"""

from typing import TYPE_CHECKING

from calliper._lazy import on_demand
from calliper.kernels._base import Bag as Bag
from calliper.kernels._base import Kernel
from calliper.kernels._base import LeaveTwoOut as LeaveTwoOut
from calliper.kernels._base import as_kernel as as_kernel
from calliper.kernels._base import rescale as rescale
from calliper.kernels._cells import Cells
from calliper.kernels._cells import PlacedCells as PlacedCells
from calliper.kernels._exact import Grid as Grid
from calliper.kernels._graded import GradedKNN
from calliper.kernels._knn import KNN
from calliper.kernels._knn import Neighborhood as Neighborhood
from calliper.kernels._rbf import RBF
from calliper.kernels._rbf import RadialExponents as RadialExponents
from calliper.kernels._rbf import check_length_scale as check_length_scale
from calliper.kernels._rbf import median_distance as median_distance
from calliper.kernels._rbf import to_weights as to_weights
from calliper.kernels._search import EUCLIDEAN as EUCLIDEAN
from calliper.kernels._search import NeighborSearch as NeighborSearch
from calliper.kernels._search import all_distances as all_distances
from calliper.kernels._search import paired_distances as paired_distances
from calliper.kernels._shared import Shells as Shells
from calliper.kernels._shared import shared_means as shared_means
from calliper.kernels._statistic import STATISTICS as STATISTICS
from calliper.kernels._weighted import ForestProximity

if TYPE_CHECKING:
    from calliper.kernels._criterion import CRITERIA as CRITERIA
    from calliper.kernels._learnt import LearntKernel as LearntKernel
    from calliper.kernels._learnt import LearntMetric, Mahalanobis, learn_metric
    from calliper.kernels._learnt import loss_and_gradient as loss_and_gradient
    from calliper.kernels._shards import ShardedBag as ShardedBag
    from calliper.kernels._shards import make_shard as make_shard
    from calliper.kernels._tuned import TunedKNN, TunedRBF

__all__ = [
    "KNN",
    "RBF",
    "Cells",
    "ForestProximity",
    "GradedKNN",
    "Kernel",
    "LearntMetric",
    "Mahalanobis",
    "TunedKNN",
    "TunedRBF",
    "learn_metric",
]

__getattr__ = on_demand(
    __name__,
    {
        "CRITERIA": "_criterion",
        "LearntKernel": "_learnt",
        "LearntMetric": "_learnt",
        "Mahalanobis": "_learnt",
        "ShardedBag": "_shards",
        "TunedKNN": "_tuned",
        "TunedRBF": "_tuned",
        "learn_metric": "_learnt",
        "loss_and_gradient": "_learnt",
        "make_shard": "_shards",
    },
)

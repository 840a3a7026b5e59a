"""Nearness: who speaks for a point, and how loudly; each kernel with its closed forms.

What is not listed in ``__all__`` serves the other packages.
"""

from typing import TYPE_CHECKING

from calliper._lazy import on_demand
from calliper.kernels._arithmetic import Grid as Grid
from calliper.kernels._arithmetic import positive_root as positive_root
from calliper.kernels._arithmetic import rescale as rescale
from calliper.kernels._arithmetic import signed_root as signed_root
from calliper.kernels._arithmetic import times as times
from calliper.kernels._balls import joined as joined
from calliper.kernels._graded import GradedKNN
from calliper.kernels._kernel import Bag as Bag
from calliper.kernels._kernel import Kernel
from calliper.kernels._kernel import Known as Known
from calliper.kernels._kernel import LeaveTwoOut as LeaveTwoOut
from calliper.kernels._kernel import Rng as Rng
from calliper.kernels._kernel import as_kernel as as_kernel
from calliper.kernels._kernel import named_kernels as named_kernels
from calliper.kernels._knn import KNN
from calliper.kernels._knn import Asked as Asked
from calliper.kernels._knn import BagKNN as BagKNN
from calliper.kernels._knn import Neighborhood as Neighborhood
from calliper.kernels._neighbors import SPARE as SPARE
from calliper.kernels._neighbors import NeighborSearch as NeighborSearch
from calliper.kernels._rbf import RBF
from calliper.kernels._rbf import check_length_scale as check_length_scale
from calliper.kernels._rbf import median_distance as median_distance
from calliper.kernels._search import EUCLIDEAN as EUCLIDEAN
from calliper.kernels._search import FARTHEST as FARTHEST
from calliper.kernels._search import ORDINARY as ORDINARY
from calliper.kernels._search import TIED_SHELL as TIED_SHELL
from calliper.kernels._search import Pairs as Pairs
from calliper.kernels._search import Search as Search
from calliper.kernels._search import all_distances as all_distances
from calliper.kernels._search import paired_distances as paired_distances
from calliper.kernels._search import selected as selected
from calliper.kernels._search import tied_at as tied_at
from calliper.kernels._search import unique_rows as unique_rows
from calliper.kernels._shared import Candidates as Candidates
from calliper.kernels._shared import SharedSums as SharedSums
from calliper.kernels._shared import Shells as Shells
from calliper.kernels._shared import shared_means as shared_means
from calliper.kernels._shared import sum_of_each as sum_of_each
from calliper.kernels._statistic import STATISTICS as STATISTICS
from calliper.kernels._statistic import Edge as Edge
from calliper.kernels._statistic import Entering as Entering
from calliper.kernels._statistic import MeanStatistic as MeanStatistic
from calliper.kernels._statistic import clamped_crossing as clamped_crossing
from calliper.kernels._weighted import RadialExponents as RadialExponents
from calliper.kernels._weighted import to_weights as to_weights

if TYPE_CHECKING:
    from calliper.kernels._criterion import CRITERIA as CRITERIA
    from calliper.kernels._learnt import LearntKernel as LearntKernel
    from calliper.kernels._learnt import LearntMetric as LearntMetric
    from calliper.kernels._learnt import Mahalanobis as Mahalanobis
    from calliper.kernels._learnt import learn_metric as learn_metric
    from calliper.kernels._learnt import loss_and_gradient as loss_and_gradient
    from calliper.kernels._proximity import ForestProximity as ForestProximity
    from calliper.kernels._tuned import TunedKNN as TunedKNN
    from calliper.kernels._tuned import TunedRBF as TunedRBF

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
    __name__,
    _MODULES
    | {"CRITERIA": "_criterion", "LearntKernel": "_learnt", "loss_and_gradient": "_learnt"},
)

"""Methods: one paper a file, each from features and scores to a radius at any level."""

from typing import TYPE_CHECKING

from calliper._lazy import on_demand
from calliper.calibrators._base import Calibrator as Calibrator
from calliper.calibrators._base import picture_of as picture_of
from calliper.calibrators._base import refuse_distribution as refuse_distribution
from calliper.calibrators._base import takers_of_weights as takers_of_weights
from calliper.calibrators._full_rescaled import LARGEST as LARGEST
from calliper.calibrators._full_rescaled import FullRescaled
from calliper.calibrators._jackknife_rescaled import JackknifeRescaled
from calliper.calibrators._locality import ShrunkBag as ShrunkBag
from calliper.calibrators._split import Split

if TYPE_CHECKING:
    from calliper.calibrators._conditional import ConditionalCalibration
    from calliper.calibrators._grouped import Grouped
    from calliper.calibrators._jackknife_minmax import JackknifeMinmaxRescaled
    from calliper.calibrators._lcp import LCP
    from calliper.calibrators._locart import LoCart
    from calliper.calibrators._lvd import LVD
    from calliper.calibrators._mad_split import MADSplit
    from calliper.calibrators._normalized_knn import NormalizedKNN
    from calliper.calibrators._rcp import RCP
    from calliper.calibrators._rlcp import RLCP
    from calliper.calibrators._slcp import SLCP

__all__ = [
    "LCP",
    "LVD",
    "RCP",
    "RLCP",
    "SLCP",
    "ConditionalCalibration",
    "FullRescaled",
    "Grouped",
    "JackknifeMinmaxRescaled",
    "JackknifeRescaled",
    "LoCart",
    "MADSplit",
    "NormalizedKNN",
    "Split",
]

__getattr__ = on_demand(
    __name__,
    {
        "ConditionalCalibration": "_conditional",
        "Grouped": "_grouped",
        "JackknifeMinmaxRescaled": "_jackknife_minmax",
        "LCP": "_lcp",
        "LVD": "_lvd",
        "LoCart": "_locart",
        "MADSplit": "_mad_split",
        "NormalizedKNN": "_normalized_knn",
        "RCP": "_rcp",
        "RLCP": "_rlcp",
        "SLCP": "_slcp",
    },
)

"""Methods: one paper a file, each from features and scores to a radius at any level."""

from typing import TYPE_CHECKING

from calliper._lazy import on_demand
from calliper.calibrators._calibrator import Calibrator as Calibrator
from calliper.calibrators._calibrator import as_calibrator as as_calibrator
from calliper.calibrators._calibrator import methods as methods
from calliper.calibrators._calibrator import picture_of as picture_of
from calliper.calibrators._calibrator import refuse_distribution as refuse_distribution
from calliper.calibrators._calibrator import takers_of_weights as takers_of_weights
from calliper.calibrators._full_rescaled import LARGEST as LARGEST
from calliper.calibrators._full_rescaled import FullRescaled
from calliper.calibrators._locality import ShrunkBag as ShrunkBag
from calliper.calibrators._split import Split

if TYPE_CHECKING:
    from calliper.calibrators._conditional import ConditionalCalibration as ConditionalCalibration
    from calliper.calibrators._grouped import Grouped as Grouped
    from calliper.calibrators._jackknife_rescaled import (
        JackknifeMinmaxRescaled as JackknifeMinmaxRescaled,
    )
    from calliper.calibrators._jackknife_rescaled import JackknifeRescaled as JackknifeRescaled
    from calliper.calibrators._lcp import LCP as LCP
    from calliper.calibrators._locart import LoCart as LoCart
    from calliper.calibrators._lvd import LVD as LVD
    from calliper.calibrators._mad_split import MADSplit as MADSplit
    from calliper.calibrators._normalized_knn import NormalizedKNN as NormalizedKNN
    from calliper.calibrators._rcp import RCP as RCP
    from calliper.calibrators._rlcp import RLCP as RLCP
    from calliper.calibrators._slcp import SLCP as SLCP

#: Methods that are loaded when asked for, by their modules: a new one is one line here.
_MODULES = {
    "LCP": "_lcp",
    "LVD": "_lvd",
    "RCP": "_rcp",
    "RLCP": "_rlcp",
    "SLCP": "_slcp",
    "ConditionalCalibration": "_conditional",
    "Grouped": "_grouped",
    "JackknifeMinmaxRescaled": "_jackknife_rescaled",
    "JackknifeRescaled": "_jackknife_rescaled",
    "LoCart": "_locart",
    "MADSplit": "_mad_split",
    "NormalizedKNN": "_normalized_knn",
}

__all__ = ["FullRescaled", "Split", *_MODULES]

__getattr__ = on_demand(__name__, _MODULES)

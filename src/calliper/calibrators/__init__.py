"""Methods, a file for each idea: each turns features and scores into a radius at any level."""

from typing import TYPE_CHECKING

from calliper._handlers import on_demand
from calliper.calibrators._calibrator import (
    Calibrator,
    as_calibrator,
    methods,
    takers_of_weights,
)
from calliper.calibrators._full_rescaled import FullRescaled
from calliper.calibrators._split import Split

if TYPE_CHECKING:
    from calliper.calibrators._conditional import ConditionalCalibration
    from calliper.calibrators._grouped import Grouped
    from calliper.calibrators._jackknife_rescaled import JackknifeMinmaxRescaled, JackknifeRescaled
    from calliper.calibrators._lcp import LCP
    from calliper.calibrators._learnt_scales import RCP, SLCP, MADSplit, NormalizedKNN
    from calliper.calibrators._local_quantiles import LVD, RLCP
    from calliper.calibrators._locart import LoCart

#: Methods by their modules, loaded when asked for; in the order of lists, the most useful first.
_MODULES = {
    "FullRescaled": "_full_rescaled",
    "JackknifeRescaled": "_jackknife_rescaled",
    "JackknifeMinmaxRescaled": "_jackknife_rescaled",
    "Split": "_split",
    "ConditionalCalibration": "_conditional",
    "MADSplit": "_learnt_scales",
    "SLCP": "_learnt_scales",
    "RCP": "_learnt_scales",
    "LoCart": "_locart",
    "NormalizedKNN": "_learnt_scales",
    "LCP": "_lcp",
    "RLCP": "_local_quantiles",
    "LVD": "_local_quantiles",
    "Grouped": "_grouped",
}

__all__ = [*_MODULES]

__getattr__ = on_demand(__name__, _MODULES)

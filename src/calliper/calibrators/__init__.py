"""Methods, a file for each idea: each turns features and scores into a radius at any level."""

from typing import TYPE_CHECKING

from calliper._lazy import on_demand
from calliper.calibrators._calibrator import (
    Calibrator,
    as_calibrator,
    methods,
    picture_of,
    refuse_distribution,
    takers_of_weights,
)
from calliper.calibrators._full_rescaled import FullRescaled
from calliper.calibrators._split import Split

if TYPE_CHECKING:
    from calliper.calibrators._conditional import ConditionalCalibration
    from calliper.calibrators._grouped import Grouped
    from calliper.calibrators._jackknife_rescaled import (
        JackknifeMinmaxRescaled,
        JackknifeRescaled,
    )
    from calliper.calibrators._lcp import LCP
    from calliper.calibrators._learnt_scales import RCP, SLCP, MADSplit, NormalizedKNN
    from calliper.calibrators._local_quantiles import LVD, RLCP
    from calliper.calibrators._locart import LoCart

#: Methods that are loaded when asked for, by their modules: a new one is one line here.
_MODULES = {
    "LCP": "_lcp",
    "LVD": "_local_quantiles",
    "RCP": "_learnt_scales",
    "RLCP": "_local_quantiles",
    "SLCP": "_learnt_scales",
    "ConditionalCalibration": "_conditional",
    "Grouped": "_grouped",
    "JackknifeMinmaxRescaled": "_jackknife_rescaled",
    "JackknifeRescaled": "_jackknife_rescaled",
    "LoCart": "_locart",
    "MADSplit": "_learnt_scales",
    "NormalizedKNN": "_learnt_scales",
}

__all__ = ["FullRescaled", "Split", *_MODULES]

__getattr__ = on_demand(__name__, _MODULES)

"""Methods: one paper a file, each from features and scores to a radius at any level."""

from calliper.calibrators._full_rescaled import FullRescaled
from calliper.calibrators._jackknife_rescaled import JackknifeRescaled
from calliper.calibrators._mad_split import MADSplit
from calliper.calibrators._split import Split

__all__ = ["FullRescaled", "JackknifeRescaled", "MADSplit", "Split"]

"""Methods that refit the model and so need no calibration set: every row trains and calibrates."""

from calliper.refitting._cv_plus import CVPlus
from calliper.refitting._guarantee import RefitGuarantee
from calliper.refitting._jackknife_after_bootstrap import (
    InEveryBootstrapWarning,
    JackknifeAfterBootstrap,
)
from calliper.refitting._jackknife_plus import JackknifePlus

__all__ = [
    "CVPlus",
    "InEveryBootstrapWarning",
    "JackknifeAfterBootstrap",
    "JackknifePlus",
    "RefitGuarantee",
]

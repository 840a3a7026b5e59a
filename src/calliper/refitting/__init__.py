"""Methods that refit the model and so need no calibration set: every row trains and calibrates."""

from calliper.refitting._base import RefitGuarantee, RefittedRegressor
from calliper.refitting._bootstrap import JackknifeAfterBootstrap
from calliper.refitting._folds import CVPlus, JackknifePlus

__all__ = ["CVPlus", "JackknifeAfterBootstrap", "JackknifePlus", "RefitGuarantee"]

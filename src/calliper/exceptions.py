"""Errors and warnings that a caller may want to catch by name."""


class CalliperError(ValueError):
    """An input that no valid interval can be computed from; the message says what to change."""


class SmallCalibrationWarning(UserWarning):
    """Too few calibration points for what was asked.

    Raised when the level needs more points than there are (the only valid radius is then
    infinite) or when a kernel asks for more neighbours than exist (all are used).
    """


class ZeroScaleWarning(UserWarning):
    """Some local scales are zero, so the rescaled score of those points is infinite."""


class UnscaledFeaturesWarning(UserWarning):
    """Nearness is judged on raw inputs whose spreads differ so much that one of them decides."""

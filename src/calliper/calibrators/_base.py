"""What calibrators say of themselves, for those who choose and feed them."""

from __future__ import annotations

from typing import Any

from calliper.kernels import RBF, Mahalanobis, TunedKNN, TunedRBF


def kernel_needs(kernel: Any, *, fixed: bool) -> tuple[str, ...]:
    """Names of what ``fit`` must be given for this kernel.

    ``fixed`` if the method takes a tuned kernel as it was tuned on training errors; otherwise it
    is tuned on the calibration points, and needs training inputs for its grid alone.
    """
    if isinstance(kernel, TunedKNN | TunedRBF | Mahalanobis) and fixed:
        return ("Z_train", "scores_train")
    if isinstance(kernel, RBF) and isinstance(kernel.length_scale, str):
        return ("Z_train",)
    if isinstance(kernel, TunedRBF) and kernel.length_scales is None and kernel.chosen is None:
        return ("Z_train",)
    return ()

"""Numbers as the paper prints them: 0.952(6)."""

from __future__ import annotations

import numpy as np

from calliper._types import FloatArray


def last_digit(values: FloatArray) -> str:
    """Mean with the uncertainty of its last digit, the 68th percentile of deviations."""
    finite = values[np.isfinite(values)]
    if len(finite) < max(2, len(values) // 2):
        return "undefined"
    mean = float(np.mean(finite))
    deviation = float(np.percentile(np.abs(finite - mean), 68))
    if deviation == 0:
        return f"{mean:.3f}"
    digits = max(0, -int(np.floor(np.log10(deviation))))
    if round(deviation * 10**digits) == 10 and digits > 0:  # 0.0096 is one in the digit before
        digits -= 1
    return f"{mean:.{digits}f}({max(1, round(deviation * 10**digits))})"

"""Array aliases that the parts of calliper share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

#: One level, or an increasing sequence of levels, each strictly between 0 and 1.
Coverage = float | Sequence[float] | FloatArray

"""Array aliases and small protocols that the parts of calliper share."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

#: One level, or an increasing sequence of levels, each strictly between 0 and 1.
Coverage = float | Sequence[float] | FloatArray
#: Levels that were checked, in ascending order.
Levels = tuple[float, ...]
#: Lower and upper ends.
BothEnds = tuple[FloatArray, FloatArray]


@runtime_checkable
class Frame(Protocol):
    """A table with named columns, of any library."""

    @property
    def columns(self) -> Any: ...

    @property
    def shape(self) -> Any: ...

    def __getitem__(self, name: Any) -> Any: ...


@runtime_checkable
class AgeingWeights(Protocol):
    """Weights that fall with the age of a row."""

    def of_age(self, n: int) -> FloatArray: ...

    def explain(self) -> str: ...

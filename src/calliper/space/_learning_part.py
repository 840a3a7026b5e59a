"""Calibration rows that teach: a part of them shows how the model errs, the others calibrate.

The model has not seen the calibration rows, so its errors there are honest ones, and better than
those of refits, which are errors of weaker models. N rows are dealt into a *learning part* L and a
*kept part* C, by position and seed alone. What L teaches (the expected error as a coordinate, bias,
reach on either side, how local to be) is fixed before C is looked at; C calibrates.

Guarantee: given L and the model, the rows of C and a new one are exchangeable, so every promise
holds with N replaced by the number of rows in C. Dealing by position makes the method depend on the
order of rows: the promise is for rows in exchangeable order, else on average over the deal.

Which rows calibrate is decided by counts alone. To fall back on all rows after a look at L would
select on L, and costs coverage: with N = 3, two rows in L and α = ½, "fall back if the mean error
of L is below ½" covers 7/16. Where L teaches nothing that clearly helps, C calibrates all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from calliper._types import IntArray
from calliper.exceptions import CalliperError
from calliper.space._embedding import Embedding
from calliper.space._left_out import LeftOut, Training

#: Rows that calibrate, at least: in number, and as a part of all. Rows that teach, at least and
#: at most.
FEWEST_KEPT, PART_KEPT = 200, 0.35
FEWEST_TAUGHT, MOST_TAUGHT = 100, 8_000


@dataclass(frozen=True, kw_only=True)
class LearningPart(Training):
    """Rows that the model has not seen: its own errors there are left-out errors."""

    def left_out(self, embedding: Embedding) -> LeftOut:
        """The rows as the model itself sees them."""
        y_pred, Z = embedding.predict_and_transform(self.X)
        n = len(y_pred)
        return LeftOut(
            Z,
            targets=self.y,
            numbers=np.arange(n),
            y_pred=y_pred,
            n_training=n,
            source="calibration rows that were set apart",
        )


def n_teaching(n: int, asked: Any) -> int:
    """How many of n rows teach: a number, a share, by a rule of n for "auto", 0 for None."""
    if asked is None:
        return 0
    if isinstance(asked, str) and asked == "auto":
        most = n - max(FEWEST_KEPT, int(np.ceil(PART_KEPT * n)))
        return min(most, MOST_TAUGHT) if most >= FEWEST_TAUGHT else 0
    if isinstance(asked, Real) and not isinstance(asked, bool):
        number = float(asked)
        if isinstance(asked, Integral) and 0 <= number < n:
            return int(number)
        if not isinstance(asked, Integral) and 0 < number < 1:
            return min(int(number * n), n - 1)
    raise CalliperError(
        f"learning_part must be 'auto', None, a share between 0 and 1, or a number of rows that "
        f"leaves some of {n} to calibrate on, at most {n - 1}; got {asked!r}."
    )


def deal(
    n: int, asked: Any, *, labels: Any = None, shuffle: bool = True, random_state: Any = None
) -> tuple[IntArray, IntArray]:
    """Numbers of the rows that teach, and of those that calibrate, each in ascending order.

    With labels each group is dealt by itself, a number as that share of each, so that by "auto" one
    of few rows keeps them all. Without shuffling the first rows teach. None as ``random_state``
    deals by a fixed seed.
    """
    if labels is not None and n_teaching(n, asked) and not isinstance(asked, str):
        asked = n_teaching(n, asked) / n
    random = check_random_state(0 if random_state is None else random_state)
    teaches = np.zeros(n, dtype=bool)
    groups = (
        np.zeros(n) if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
    )
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        order = random.permutation(rows) if shuffle else rows
        teaches[order[: n_teaching(len(rows), asked)]] = True
    return np.flatnonzero(teaches), np.flatnonzero(~teaches)

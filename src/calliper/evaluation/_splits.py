"""Which rows calibrate and which test: a function of the problem, never of the method.

A split is drawn from (random_state, name of the problem, N, number of the split) alone, so that
adding a problem, a method or a split changes no other.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from calliper._types import IntArray


def _seeds(
    random_state: int, problem: str, n_calibration: int, split: int
) -> np.random.SeedSequence:
    name = int.from_bytes(sha256(problem.encode()).digest()[:16], "big")
    return np.random.SeedSequence([random_state, name, n_calibration, split])


def split_rows(
    n: int, n_test: int, *, random_state: int, problem: str, n_calibration: int, split: int
) -> tuple[IntArray, IntArray]:
    """Rows that calibrate, (N,), and rows that test, (n_test,), apart from one another."""
    rng = np.random.default_rng(_seeds(random_state, problem, n_calibration, split))
    rows = rng.permutation(n)
    return rows[:n_calibration], rows[n_calibration : n_calibration + n_test]


def method_seed(random_state: int, problem: str, n_calibration: int, split: int) -> int:
    """The seed of methods that were given none: the same for all, another for each split."""
    spawned = _seeds(random_state, problem, n_calibration, split).spawn(1)[0]
    return int(spawned.generate_state(1)[0] >> 1)

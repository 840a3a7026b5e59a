"""Small random problems that mix what breaks fast code: ties, zeros, duplicates, heavy tails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class SmallProblem:
    seed: int
    Z: Any
    new: Any
    magnitudes: Any
    scores: Any
    n_neighbors: int
    offset: float
    coverage: str
    discrete: bool

    @property
    def level(self) -> float:
        return float(self.coverage)


def small_problem(seed: int, *, largest: int = 14, smallest: int = 1) -> SmallProblem:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(smallest, largest)), int(rng.integers(1, 4))
    discrete = bool(rng.random() < 0.5)

    def features(rows: int) -> Any:
        return rng.integers(0, 4, (rows, d)) * 1.0 if discrete else rng.normal(size=(rows, d))

    Z, new = features(n), features(3)
    new[0] = Z[0] if rng.random() < 0.3 else new[0]
    magnitudes = [
        lambda: rng.exponential(size=n),
        lambda: rng.integers(0, 3, n) * 1.0,
        lambda: rng.pareto(0.5, n),
        lambda: np.where(rng.random(n) < 0.6, 0.0, rng.exponential(size=n)),
    ][rng.integers(4)]()
    one_sided = rng.random() < 0.3
    scores = np.where(rng.random(n) < 0.5, magnitudes, 0.0) if one_sided else magnitudes
    return SmallProblem(
        seed=seed,
        Z=Z,
        new=new,
        magnitudes=magnitudes,
        scores=scores,
        n_neighbors=int(rng.integers(1, 8)),
        offset=0.0 if rng.random() < 0.6 else float(rng.random()),
        coverage=str(rng.choice(["0.1", "0.5", "0.75", "0.8", "0.9"])),
        discrete=discrete,
    )

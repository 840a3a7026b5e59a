"""A zoo of exchangeable worlds: whole bags of rows, none of which is told from another.

A world draws n rows and their signed errors at once, so that what the rows have in common (where
clusters are, which numbers are dealt out) is drawn anew for each bag. The first N rows calibrate,
the others are new: exchangeable in every world, independent in most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[Any]
Rng = np.random.Generator
World = Callable[[Rng, int, int], tuple[Array, Array]]


def heteroscedastic(rng: Rng, n: int, d: int) -> tuple[Array, Array]:
    """Normal errors whose size depends on where they are."""
    Z = rng.uniform(size=(n, d))
    return Z, rng.normal(size=n) * (0.05 + np.abs(np.sin(6 * Z[:, 0])))


def ties(rng: Rng, n: int, d: int) -> tuple[Array, Array]:
    """Few places and few errors, multiples of a number that is not exact."""
    return rng.integers(0, 4, size=(n, d)) * 1.0, rng.integers(-4, 5, size=n) * 0.1


def duplicates(rng: Rng, n: int, d: int) -> tuple[Array, Array]:
    """Rows that are copies of a few."""
    few = rng.normal(size=(max(2, n // 6), d))
    Z = few[rng.integers(len(few), size=n)]
    return Z, rng.normal(size=n) * np.exp(Z[:, 0])


def zeros(rng: Rng, n: int, d: int) -> tuple[Array, Array]:
    """Most errors are exactly zero, nearly all of them in one half."""
    Z = rng.uniform(size=(n, d))
    wrong = rng.uniform(size=n) < np.where(Z[:, 0] < 0.5, 0.05, 0.5)
    return Z, np.where(wrong, rng.normal(size=n), 0.0)


def constant(rng: Rng, n: int, d: int) -> tuple[Array, Array]:
    """Errors of one size, on either side."""
    return rng.normal(size=(n, d)), rng.choice([-0.3, 0.3], size=n)


def heavy_tails(rng: Rng, n: int, d: int) -> tuple[Array, Array]:
    """Cauchy errors at inputs with far outliers."""
    Z = rng.standard_t(2, size=(n, d))
    return Z, rng.standard_cauchy(size=n) * np.exp(np.clip(Z[:, 0], -5, 5))


def clusters(rng: Rng, n: int, d: int) -> tuple[Array, Array]:
    """Some five clusters, drawn for the bag, each with its own size of error."""
    centres, sizes = 10 * rng.normal(size=(5, d)), np.exp(2 * rng.normal(size=5))
    which = rng.integers(5, size=n)
    return centres[which] + rng.normal(size=(n, d)), sizes[which] * rng.gamma(0.5, size=n)


def one_place(rng: Rng, n: int, d: int) -> tuple[Array, Array]:
    """All rows are equal: every distance is tied."""
    return np.ones((n, d)), rng.normal(size=n)


def dealt(rng: Rng, n: int, d: int) -> tuple[Array, Array]:
    """Errors 1 … n, each dealt out once, more or less in the order of an input: dependent."""
    Z = rng.normal(size=(n, d))
    order = np.argsort(Z[:, 0] + rng.normal(size=n))
    return Z, (1.0 + np.argsort(order)) * rng.choice([-1, 1])


WORLDS: dict[str, World] = {
    world.__name__: world
    for world in (
        heteroscedastic,
        ties,
        duplicates,
        zeros,
        constant,
        heavy_tails,
        clusters,
        one_place,
        dealt,
    )
}

#: Worlds of independent draws, in which a weight or a known law makes sense.
INDEPENDENT = ("heteroscedastic", "ties", "zeros", "constant", "heavy_tails")

#: Worlds in which scores tie, so that coverage is above what is proved.
TIED = ("ties", "zeros", "constant", "whole numbers")

#: Places of the two worlds whose law is known exactly.
PLACES = (np.arange(64.0)[:, None] + 0.5) / 64


def known_law(rng: Rng, n: int, *, whole: bool) -> tuple[Array, Array]:
    """Rows at ``PLACES`` and sizes of errors, half-normal or (``whole``) rounded up."""
    Z = PLACES[rng.integers(len(PLACES), size=n)]
    scores = np.abs(rng.normal(size=n)) * (0.2 + 3 * Z[:, 0])
    return Z, np.ceil(scores) if whole else scores


def known_coverage(radius: Any, *, whole: bool) -> Any:
    """The probability that a new error is at most the radius of its place, (64, …) → (…)."""
    reached = np.floor(radius) if whole else radius
    unit = (0.2 + 3 * PLACES[:, 0]).reshape(-1, *[1] * (np.ndim(radius) - 1))
    return (2 * norm.cdf(np.maximum(reached, 0) / unit) - 1).mean(axis=0)

"""Coverage as laws: do the promises hold over a million draws of calibration set and new point?

Of each bag of N + m exchangeable rows, N calibrate and m are new. What a bag has to say about a
promise is one number, its *margin*: the share of new rows that are covered less what is proved.
Bags are independent, margins are at most 1, and the promise is that their mean is not negative.

*The test.* Bet against the promise: stake the share λ of a wealth of 1 on each margin X being
negative, so that it becomes Π(1 − λX). If the promise holds, its expectation never exceeds 1, and
by Ville's inequality it ever reaches 1/δ with probability at most δ; if the mean margin is −v, it
grows like exp(n v²/2σ²). Several λ share the stake. Wealth is a product, so a later run goes on
where this one stopped, as often as anybody likes, and δ stays what it is. There are cells for each
level over worlds with ties, for each level over worlds without (where coverage beyond the level of
the others cannot hide what is missing), and for each world over all levels; δ = 0.01/(number of all
cells), so that the chance to accuse any true promise, ever, is at most one in a hundred.

Reference: Waudby-Smith, Ramdas (2024), "Estimating means of bounded random variables by betting",
JRSS B, doi:10.1093/jrsssb/qkad009.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from time import process_time
from typing import Any

import numpy as np
from scipy.stats import nhypergeom
from sklearn.base import clone

from calliper import MultiTargetRegressor
from calliper.calibrators import Grouped
from calliper.guarantees import conformal_coverage
from calliper.quantile import conformal_rank
from promises import methods
from promises.worlds import (
    INDEPENDENT,
    PLACES,
    TIED,
    WORLDS,
    Array,
    Rng,
    known_coverage,
    known_law,
)

LEVELS = (1 / 3, 0.5, 0.9, 0.95, 0.999)
NAMES = tuple(f"{level:.3g}" for level in LEVELS)

#: Numbers of calibration rows: one in ten is small, since small bags are also searched through.
FEW, MANY = (1, 2, 3, 5, 9), (19, 50, 99, 100, 150, 199, 200)

#: Shares of the wealth that are staked, and the chance to accuse any true promise.
STAKES, FAMILY_WISE = np.array([0.01, 0.04, 0.15, 0.5, 0.95]), 0.01

#: Methods that do not promise Q/(N+1) but less, or a number of their own.
AT_LEAST = ("JackknifeR", "RLCP", "LoCart", "Conditional")

#: How far luck is taken off downwards, and what margins are then below, by level.
CLIP = 0.05
LARGEST = {name: 1 - level + CLIP + 0.03 for name, level in zip(NAMES, LEVELS, strict=True)}

#: Bags of each world in a batch, new rows of a bag, and rows apart from it.
BAGS, NEW, TRAINING = 5, 200, 60

Margins = dict[str, float]
Bag = Callable[[Rng, str], Margins]


@dataclass(frozen=True)
class Law:
    """A promise that can be tried by drawing.

    Attributes
    ----------
    bag : from a generator and the name of a world to the margins of one bag
    worlds : names of those it is tried in
    new : how many pairs of a calibration set and a new row a bag stands for
    """

    bag: Bag
    worlds: tuple[str, ...] = tuple(WORLDS)
    new: int = NEW


def size(rng: Rng) -> int:
    """A number of calibration rows."""
    return int(rng.choice(FEW if rng.uniform() < 0.1 else MANY))


def rows(rng: Rng, world: str, n: int, name: str = "", d: int = 0) -> tuple[Array, Array, Array]:
    """A bag of n rows in one to five dimensions, with their errors and the sizes of these."""
    Z, errors = WORLDS[world](rng, n, d or int(rng.integers(1 + (name in methods.OF_LEAVES), 6)))
    if name in methods.OF_LEAVES:
        Z = np.floor(2 * np.abs(Z))
    return Z, errors, np.abs(errors)


def fitted(rng: Rng, world: str, name: str, Z: Array, errors: Array, **known: Any) -> Any:
    """The method with this name, told what it needs of an independent draw of the world."""
    method = clone(methods.CALIBRATORS[name])
    apart = WORLDS[world](rng, TRAINING, Z.shape[1])
    return method.fit(Z, np.abs(errors), **methods.told(name, method, *apart), **known)


def by_level(values: Any) -> Margins:
    """Margins by the names of the levels."""
    return dict(zip(NAMES, np.asarray(values, dtype=float), strict=True))


def marginal(name: str, m: int, rng: Rng, world: str) -> Margins:
    """Coverage of m new rows."""
    n = size(rng)
    Z, errors, scores = rows(rng, world, n + m, name)
    method = fitted(rng, world, name, Z[:n], errors[:n])
    radius = method.predict_radius(Z[n:], LEVELS)
    proved, exact = method.guaranteed_coverage(LEVELS), not name.startswith(AT_LEAST)
    return by_level(margins_of(rng, scores[:n], scores[n:], radius, proved, exact))


def margins_of(
    rng: Rng, known: Array, new: Array, radius: Array, proved: Any, exact: bool
) -> Array:
    """Covered share less what is proved, and, if that is Q/(N+1) (``exact``), the luck.

    The luck is how much plain split, with ties broken by lot, covers beyond Q/(N+1). In a random
    order the new rows before the Q-th calibration row are a negative hypergeometric number,
    whatever the world, so its mean is known exactly, and taking it off changes no mean but takes
    most of the noise away. Shares more than ``CLIP`` below their mean count as that, which has a
    known mean, too: margins are then below ``LARGEST``, and stakes can be as much higher.
    """
    margins = (new[:, None] <= radius).mean(axis=0) - proved
    if not exact:
        return np.asarray(margins)
    n, m = len(known), len(new)
    ranks = np.array([conformal_rank(level, n) for level in LEVELS])
    order = np.lexsort((rng.uniform(size=n + m), np.concatenate([known, new])))
    of_known = np.cumsum(order >= n)[order < n]  # new rows before each calibration row
    for place in np.flatnonzero(ranks <= n):
        least, mean = ranks[place] / (n + 1) - CLIP, clipped_mean(n, m, int(ranks[place]))
        margins[place] -= max(of_known[ranks[place] - 1] / m, least) - mean
        most = 1 - least + mean - ranks[place] / (n + 1)
        margins[place] *= min(1.0, LARGEST[NAMES[place]] / most)
    return np.asarray(margins)


@cache
def clipped_mean(n: int, m: int, rank: int) -> float:
    """The mean share of m new rows before the calibration row of this rank, of n, once clipped."""
    shares = np.arange(m + 1) / m
    chance = nhypergeom(n + m, m, rank).pmf(np.arange(m + 1))
    return float(chance @ np.maximum(shares, rank / (n + 1) - CLIP))


def in_groups(name: str, m: int, rng: Rng, world: str) -> Margins:
    """Coverage of the new rows of each group, given which group each row is in."""
    n, margins = size(rng), Margins()
    Z, _, scores = rows(rng, world, n + m, name)
    group = np.digitize(Z[:, 0], [0.3, 1.0])
    own = Grouped(clone(methods.CALIBRATORS[name])).fit(Z[:n], scores[:n], groups=group[:n])
    radius = own.predict_radius(Z[n:], LEVELS, groups=group[n:])
    for label in np.unique(group[n:]):
        calibrated, new = own.calibrators_.get(label), group[n:] == label
        proved = 1.0 if calibrated is None else calibrated.guaranteed_coverage(LEVELS)
        known = scores[:n][group[:n] == label]
        exact = calibrated is not None and not name.startswith(AT_LEAST)
        margin = margins_of(rng, known, scores[n:][new], radius[new], proved, exact)
        margins |= {f"{level} in {label}": x for level, x in by_level(margin).items()}
    return margins


def weight(Z: Array) -> Array:
    """How many times as often an input comes among new rows; at most 1.2."""
    return 0.2 + 1 / (1 + np.exp(-3 * np.clip(Z[:, 0] - 0.5, -9, 9)))


def shifted(name: str, m: int, rng: Rng, world: str) -> Margins:
    """Coverage where inputs are shifted, with the weights that are true."""
    n = size(rng)
    Z, errors, _ = rows(rng, world, n, name)
    new, of_new, _ = rows(rng, world, 6 * m, name, Z.shape[1])
    kept = np.flatnonzero(rng.uniform(size=len(new)) < weight(new) / 1.2)[:m]
    method = fitted(rng, world, name, Z, errors, weights=weight(Z))
    radius = method.predict_radius(new[kept], LEVELS, weights=weight(new[kept]))
    covered = np.abs(of_new[kept, None]) <= radius
    return by_level(covered.mean(axis=0) - method.guaranteed_coverage(LEVELS))


def quantiles(name: str, m: int, rng: Rng, world: str) -> Margins:
    """One-sided bounds from either side, and both ends of the PIT where errors are not zero."""
    n = size(rng)
    Z, errors, _ = rows(rng, world, n + m, name)
    method = fitted(rng, world, name, Z[:n], errors[:n], signs=np.sign(errors[:n]))
    y, batch = errors[n:], method.predict_distribution(Z[n:], np.zeros(m))
    low = [1 - level for level in reversed(LEVELS)]
    above = y[:, None] <= batch.quantile(LEVELS)
    below = (y[:, None] >= batch.quantile(low, side="lower"))[:, ::-1]
    margins = {f"upper {k}": x for k, x in by_level(above.mean(axis=0) - LEVELS).items()}
    margins |= {f"lower {k}": x for k, x in by_level(below.mean(axis=0) - LEVELS).items()}
    if world not in ("zeros", "ties"):
        pit = batch.pit(y, random_state=int(rng.integers(2**31)))
        for u in (0.1, 0.5):
            margins[f"PIT ≤ {u}"] = u - float(np.mean(pit <= u))
            margins[f"PIT ≥ {1 - u}"] = u - float(np.mean(pit >= 1 - u))
    return margins


def confident(name: str, rng: Rng, world: str) -> Margins:
    """Whether the coverage given these very calibration rows, known exactly, reaches its level."""
    n, whole = int(rng.choice([20, 60, 100, 200])), world == "whole numbers"
    method = clone(methods.CALIBRATORS[name])
    apart = known_law(rng, TRAINING, whole=whole)
    method.fit(*known_law(rng, n, whole=whole), **methods.told(name, method, *apart))
    margins = {}
    for confidence in (0.5, 0.9):
        radius = method.predict_radius(PLACES, [0.5, 0.8, 0.9], confidence=confidence)
        reached = known_coverage(radius, whole=whole) >= np.array([0.5, 0.8, 0.9]) - 1e-12
        for level, hit in zip((0.5, 0.8, 0.9), reached, strict=True):
            margins[f"{level} at {confidence}"] = float(hit) - confidence
    return margins


def refitted(name: str, m: int, rng: Rng, world: str) -> Margins:
    """Coverage of targets by methods that refit a model."""
    n = int(rng.choice([3, 5, 9, 10, 19, 30]))
    Z, errors, _ = rows(rng, world, n + m)
    method = clone(methods.REFITTED[name])
    if "random_state" in method.get_params():
        method.set_params(random_state=int(rng.integers(2**31)))
    y = np.sin(Z[:, 0]) + errors
    method.fit(Z[:n], y[:n])
    covered = method.predict_interval(Z[n:], LEVELS).contains(y[n:])
    return by_level(covered.mean(axis=0) - method.guaranteed_coverage(LEVELS))


def regressed(name: str, m: int, rng: Rng, world: str) -> Margins:
    """Coverage of targets by a regressor with a score of its own."""
    n = size(rng)
    Z, errors, _ = rows(rng, world, n + m)
    method = clone(methods.REGRESSORS[name]).calibrate(Z[:n], errors[:n])
    covered = method.predict_interval(Z[n:], LEVELS).contains(errors[n:])
    return by_level(covered.mean(axis=0) - method.guaranteed_coverage(LEVELS))


def nothing(X: Any) -> Any:
    """A model of two targets that predicts nothing."""
    return np.zeros((len(X), 2))


def boxed(joint: bool, name: str, m: int, rng: Rng, world: str) -> Margins:
    """Coverage of two targets: both in a box, or each in an interval of its own."""
    n = size(rng)
    Z, errors, _ = rows(rng, world, n + m)
    y = np.column_stack([errors, 100 * np.roll(errors, n // 2) * rng.uniform(size=len(errors))])
    y = y[rng.permutation(len(y))]  # targets that have nothing to do with the input will do
    method = clone(methods.CALIBRATORS[name])
    model = MultiTargetRegressor(nothing, method, joint=joint, units=[1.0, 50.0] if joint else None)
    boxes = model.calibrate(Z[:n], y[:n]).predict_interval(Z[n:], LEVELS)
    proved = [conformal_coverage(level, n) for level in LEVELS]
    if joint:
        return by_level(boxes.contains(y[n:]).mean(axis=0) - proved)
    margins = Margins()
    for j in range(2):
        margin = by_level(boxes[j].contains(y[n:, j]).mean(axis=0) - proved)
        margins |= {f"{level} of target {j}": x for level, x in margin.items()}
    return margins


def of_calibrator(name: str) -> Law:
    """Marginal coverage; few new rows where each is a linear program, no world without a metric."""
    m = 20 if name == "ConditionalCalibration" else NEW
    worlds = tuple(w for w in WORLDS if w != "one_place" or "Mahalanobis" not in name)
    return Law(partial(marginal, name, m), worlds, m)


def _laws() -> dict[str, Law]:
    """All laws by name: what is promised, and of whom."""
    laws = {f"marginal: {name}": of_calibrator(name) for name in methods.CALIBRATORS}
    laws |= {f"groups: {name}": Law(partial(in_groups, name, NEW)) for name in methods.GROUPED}
    laws |= {
        f"weights: {name}": Law(partial(shifted, name, NEW), INDEPENDENT)
        for name in methods.WEIGHTED
    }
    laws |= {f"distribution: {name}": Law(partial(quantiles, name, NEW))
             for name in methods.SIGNED}  # fmt: skip
    laws |= {
        f"confidence: {name}": Law(partial(confident, name), ("continuous", "whole numbers"), 1)
        for name in methods.WITH_LAW
    }
    laws |= {f"refitting: {name}": Law(partial(refitted, name, NEW)) for name in methods.REFITTED}
    laws |= {f"scores: {name}": Law(partial(regressed, name, NEW)) for name in methods.REGRESSORS}
    for name in ("Split", "FullRescaled(KNN 3)"):
        laws[f"box: {name}"] = Law(partial(boxed, True, name, NEW))
        laws[f"each target: {name}"] = Law(partial(boxed, False, name, NEW))
    return laws


LAWS = _laws()


def batch(name: str, number: int) -> dict[str, Any]:
    """Bags of each world; the same for the same number, wherever and whenever it is asked for."""
    law, rng = LAWS[name], np.random.default_rng([zlib.crc32(name.encode()), number])
    found: dict[str, list[float]] = {}
    started = process_time()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for world in law.worlds:
            for _ in range(BAGS):
                margins = law.bag(rng, world)
                kind = "ties" if world in TIED else "no ties"
                for key, margin in margins.items():
                    found.setdefault(f"{kind}, {key}", []).append(margin)
                mean = float(np.mean(list(margins.values())))
                found.setdefault(f"{world}, all", []).append(mean)
    pairs = law.new * BAGS * len(law.worlds)
    cells = {cell: summed(margins, largest(name, cell)) for cell, margins in found.items()}
    return {"pairs": pairs, "seconds": process_time() - started, "cells": cells}


def largest(law: str, cell: str) -> float:
    """What margins of a cell cannot exceed: less than 1 where luck is taken off at one level."""
    kind, method = law.split(": ", 1)
    level = cell.partition(", ")[2].partition(" in ")[0]
    lucky = kind in ("marginal", "groups") and not method.startswith(AT_LEAST)
    return LARGEST.get(level, 1.0) if lucky else 1.0


def summed(margins: Sequence[float], largest: float = 1.0) -> dict[str, Any]:
    """What is kept of margins: sums, and the logarithm of the wealth for each stake."""
    x = np.asarray(margins)
    wealth = np.log1p(-STAKES[:, None] * x / largest).sum(axis=1)
    return {"bags": len(x), "sum": x.sum(), "squares": (x**2).sum(), "wealth": wealth.tolist()}


def joined(before: dict[str, Any] | None, added: dict[str, Any]) -> dict[str, Any]:
    """What was found so far, with what a batch found."""
    state = before or {"batches": 0, "pairs": 0, "seconds": 0.0, "cells": {}}
    state["batches"] += 1
    state["pairs"] += added["pairs"]
    state["seconds"] = round(state["seconds"] + added["seconds"], 2)
    for name, new in added["cells"].items():
        cell = state["cells"].setdefault(
            name, {"bags": 0, "sum": 0.0, "squares": 0.0, "wealth": [0.0] * len(STAKES)}
        )
        for key in ("bags", "sum", "squares"):
            cell[key] = round(cell[key] + new[key], 9)
        pairs = zip(cell["wealth"], new["wealth"], strict=True)
        cell["wealth"] = [round(old + more, 5) for old, more in pairs]
        cell["most"] = round(max(cell.get("most", 0.0), log_wealth(cell)), 4)
    return state


def log_wealth(cell: dict[str, Any]) -> float:
    """The logarithm of the wealth that all stakes have together."""
    return float(np.logaddexp.reduce(cell["wealth"]) - np.log(len(STAKES)))


@dataclass(frozen=True)
class Verdict:
    """What became of a law.

    Attributes
    ----------
    pairs : of a calibration set and a new row
    bags : independent ones
    worst : the smallest mean margin in its standard errors, and the name of its cell
    seen : violations of these sizes, where errors have no ties, would have been seen as often as
        not, at 0.9 and at any level
    broken : cells in which the promise is refuted
    """

    pairs: int
    bags: int
    worst: tuple[float, str]
    seen: tuple[float, float]
    broken: tuple[str, ...]


def smallest_seen(limit: float, error: float, bags: int, most: float) -> float:
    """The violation v for which some stake λ has bags · (λv − λ²σ²/2) = limit."""
    stakes = bags * STAKES / most
    return float(np.min(limit / stakes + stakes * error**2 / 2))


def verdict(law: str, state: dict[str, Any], n_cells: int) -> Verdict:
    """What is to be said of a law, one of so many cells."""
    limit, worst = np.log(n_cells / FAMILY_WISE), (np.inf, "")
    broken, seen = [], {}
    for name, cell in state["cells"].items():
        mean = cell["sum"] / cell["bags"]
        error = np.sqrt(max(cell["squares"] / cell["bags"] - mean**2, 0.0) / cell["bags"])
        if error > 0:
            worst = min(worst, (float(mean / error), name))
        elif mean < -1e-12:
            worst = (-np.inf, name)
        if name.startswith("no ties"):
            seen[name] = smallest_seen(
                limit + np.log(len(STAKES)), error, cell["bags"], largest(law, name)
            )
        if cell["most"] >= limit:
            broken.append(name)
    bags = max(cell["bags"] for cell in state["cells"].values())
    at_90 = max((size for name, size in seen.items() if " 0.9" in name and "0.95" not in name))
    return Verdict(state["pairs"], bags, worst, (at_90, max(seen.values())), tuple(broken))

"""Coverage as laws: do the promises hold over a million draws of calibration set and new row?

What a bag of exchangeable rows has to say about a promise is its *margin*: the share of new rows
that are covered less what is proved, at most 1 − level where no less than the level is promised.

*Whole bags*, of N + 1 rows: each row in turn is the new one and the others calibrate. Nothing is
left to chance, since a promise to all exchangeable rows is a promise to these: a single whole bag
below what is proved refutes it. If margins of the world were −v on average, at least a share v of
whole bags would be below (a margin is at least −1), and B bags would miss it with probability at
most (1 − v)ᴮ. So all of v > 1 − 2^(−1/B) would have been seen as often as not, without any noise.

*Halves*, of N rows each: each half calibrates and the other one is new. One model serves N new
rows, so that these are many. The luck of a half, as calibration rows and as new ones, cancels to
first order. Bags are independent, and the promise is that the mean of their margins is not
negative: bet against it. Stake the share λ of a wealth of 1 on each margin X being negative, so
that it becomes Π(1 − λX). If the promise holds, its expectation never exceeds 1, and by Ville's
inequality it ever reaches 1/δ with probability at most δ; if the mean margin is −v, it grows like
exp(n v²/2σ²). Several λ share the stake. Wealth is a product, so a later run goes on where this
one stopped, as often as anybody likes, and δ stays what it is. There are cells for each level over
worlds with ties, for each level over worlds without (where coverage beyond the level of the others
cannot hide what is missing), and for each world over all levels; δ = 0.01/(number of all cells), so
that the chance to accuse any true promise, ever, is at most one in a hundred.

Reference: Waudby-Smith, Ramdas (2024), "Estimating means of bounded random variables by betting",
JRSS B, doi:10.1093/jrsssb/qkad009.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

import numpy as np
from sklearn.base import clone

from calliper import MultiTargetRegressor
from calliper.calibrators import Grouped
from calliper.guarantees import conformal_coverage
from checks.promises import methods
from checks.promises.worlds import (
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

#: Numbers of calibration rows of halves, and of whole bags, which take as many fits, with chances.
HALVES = (10, 19, 50, 99, 100, 150, 199, 200)
WHOLE = {1: 0.15, 2: 0.15, 3: 0.15, 5: 0.15, 9: 0.15, 19: 0.2, 50: 0.04, 99: 0.005, 199: 0.005}

#: Shares of the wealth that are staked, and the chance to accuse any true promise.
STAKES, FAMILY_WISE = np.array([0.01, 0.04, 0.15, 0.5, 0.95]), 0.01

#: Methods that promise less than the level, and those that draw, whose bags are never whole.
BELOW = ("JackknifeR", "JackknifeP", "JackknifeA", "CVPlus", "ConformalRegressor(SignedError, l")
DRAWING = ("RLCP", "CVPlus", "JackknifeAfterBootstrap")

#: Bags of each world in a batch, of halves or whole, and rows apart from them.
BAGS, WHOLES, TRAINING = 5, 2, 60

Margins = dict[str, float]
#: From calibration rows and new ones, by number, to margins.
Cover = Callable[[Array, Array], Margins]


@dataclass(frozen=True)
class Law:
    """A promise that can be tried by drawing.

    Attributes
    ----------
    bag : from a generator, the name of a world, and whether it shall be whole, to the margins of
        one bag and the number of its pairs of a calibration set and a new row
    worlds : names of those it is tried in
    whole : whether whole bags decide: nothing is drawn but rows
    """

    bag: Callable[[Rng, str, bool], tuple[Margins, int]]
    worlds: tuple[str, ...] = tuple(WORLDS)
    whole: bool = True


def size(rng: Rng, whole: bool, most: int = 200) -> int:
    """A number of calibration rows."""
    sizes, chances = (WHOLE.keys(), [*WHOLE.values()]) if whole else (HALVES, None)
    return min(int(rng.choice([*sizes], p=chances)), most)


def total(n: int, whole: bool) -> int:
    """Rows of a bag in which n calibrate."""
    return n + 1 if whole else 2 * n


def turned(cover: Cover, order: Array, whole: bool) -> tuple[Margins, int]:
    """The mean of margins over turns, and pairs: each row is new, or each half calibrates."""
    turns = [(order[::2], order[1::2]), (order[1::2], order[::2])]
    if whole:
        turns = [(np.delete(order, place), order[[place]]) for place in range(len(order))]
    found: dict[str, list[float]] = {}
    for known, new in turns:
        for key, margin in cover(known, new).items():
            found.setdefault(key, []).append(margin)
    return {key: float(np.mean(each)) for key, each in found.items()}, len(order)


def rows(rng: Rng, world: str, n: int, name: str = "", d: int = 0) -> tuple[Array, Array, Array]:
    """A bag of n rows in one to five dimensions, with their errors and the sizes of these."""
    Z, errors = WORLDS[world](rng, n, d or int(rng.integers(1 + (name in methods.OF_LEAVES), 6)))
    if name in methods.OF_LEAVES:
        Z = np.floor(2 * np.abs(Z))
    return Z, errors, np.abs(errors)


def fitted(name: str, Z: Array, errors: Array, apart: tuple[Array, Array], **known: Any) -> Any:
    """The method with this name, told what it needs of rows apart."""
    method = methods.CALIBRATORS[name]  # which a new fit makes forget the last
    return method.fit(Z, np.abs(errors), **methods.told(name, method, *apart), **known)


def by_level(values: Any) -> Margins:
    """Margins by the names of the levels."""
    return dict(zip(NAMES, np.asarray(values, dtype=float), strict=True))


def marginal(name: str, most: int, rng: Rng, world: str, whole: bool) -> tuple[Margins, int]:
    """Coverage of new rows."""
    bag = total(size(rng, whole, most), whole)
    Z, errors, scores = rows(rng, world, bag, name)
    apart = WORLDS[world](rng, TRAINING, Z.shape[1])

    def cover(known: Array, new: Array) -> Margins:
        method = fitted(name, Z[known], errors[known], apart)
        covered = scores[new, None] <= method.predict_radius(Z[new], LEVELS)
        return by_level(covered.mean(axis=0) - method.guaranteed_coverage(LEVELS))

    return turned(cover, np.arange(bag), whole)


def in_groups(name: str, rng: Rng, world: str, whole: bool) -> tuple[Margins, int]:
    """Coverage of the new rows of each group, given which group each row is in."""
    bag = total(size(rng, whole), whole)
    Z, _, scores = rows(rng, world, bag, name)
    group = np.digitize(Z[:, 0], [0.3, 1.0])

    def cover(known: Array, new: Array) -> Margins:
        own = Grouped(methods.CALIBRATORS[name]).fit(Z[known], scores[known], groups=group[known])
        covered = scores[new, None] <= own.predict_radius(Z[new], LEVELS, groups=group[new])
        margins = Margins()
        for label in np.unique(group[new]):
            seen = own.calibrators_.get(label)
            proved = 1.0 if seen is None else seen.guaranteed_coverage(LEVELS)
            margin = by_level(covered[group[new] == label].mean(axis=0) - proved)
            margins |= {f"{level} in {label}": x for level, x in margin.items()}
        return margins

    return turned(cover, np.argsort(group, kind="stable"), whole)  # a half of each group in each


#: What weights are at most, and at least on average, in each world that is shifted.
HEAVIEST, LIGHTEST = 1.2, 0.5


def weight(Z: Array) -> Array:
    """How many times as often an input comes among new rows."""
    return 0.2 + 1 / (1 + np.exp(-3 * np.clip(Z[:, 0] - 0.5, -9, 9)))


def shifted(name: str, rng: Rng, world: str, whole: bool) -> tuple[Margins, int]:
    """Coverage where inputs are shifted, with the weights that are true: rows count by weight."""
    bag = total(size(rng, whole), whole)
    Z, errors, scores = rows(rng, world, bag, name)
    apart = WORLDS[world](rng, TRAINING, Z.shape[1])

    def cover(known: Array, new: Array) -> Margins:
        weights = weight(Z[new])
        method = fitted(name, Z[known], errors[known], apart, weights=weight(Z[known]))
        covered = scores[new, None] <= method.predict_radius(Z[new], LEVELS, weights=weights)
        margin = covered - method.guaranteed_coverage(LEVELS)
        return by_level(weights @ margin / (len(new) * LIGHTEST))

    return turned(cover, np.arange(bag), whole)


def quantiles(name: str, rng: Rng, world: str, whole: bool) -> tuple[Margins, int]:
    """One-sided bounds from either side, and both ends of the PIT where errors are not zero."""
    bag, low = total(size(rng, whole), whole), [1 - level for level in reversed(LEVELS)]
    Z, errors, _ = rows(rng, world, bag, name)
    apart = WORLDS[world](rng, TRAINING, Z.shape[1])

    def cover(known: Array, new: Array) -> Margins:
        signs, y = np.sign(errors[known]), errors[new]
        method = fitted(name, Z[known], errors[known], apart, signs=signs)
        batch = method.predict_distribution(Z[new], np.zeros(len(new)))
        above = (y[:, None] <= batch.quantile(LEVELS)).mean(axis=0)
        below = (y[:, None] >= batch.quantile(low, side="lower")).mean(axis=0)[::-1]
        margins = {f"upper {k}": x for k, x in by_level(above - LEVELS).items()}
        margins |= {f"lower {k}": x for k, x in by_level(below - LEVELS).items()}
        if world not in ("zeros", "ties") and not whole:  # where the PIT draws
            pit = batch.pit(y, random_state=int(rng.integers(2**31)))
            for u in (0.1, 0.5):
                margins[f"PIT ≤ {u}"] = u - float(np.mean(pit <= u))
                margins[f"PIT ≥ {1 - u}"] = u - float(np.mean(pit >= 1 - u))
        return margins

    return turned(cover, np.arange(bag), whole)


def confident(name: str, rng: Rng, world: str, whole: bool) -> tuple[Margins, int]:
    """Whether the coverage given these very calibration rows, known exactly, reaches its level."""
    n, integers = int(rng.choice([20, 60, 100, 200])), world == "whole numbers"
    apart = known_law(rng, TRAINING, whole=integers)
    method = fitted(name, *known_law(rng, n, whole=integers), apart)
    margins = {}
    for confidence in (0.5, 0.9):
        radius = method.predict_radius(PLACES, [0.5, 0.8, 0.9], confidence=confidence)
        reached = known_coverage(radius, whole=integers) >= np.array([0.5, 0.8, 0.9]) - 1e-12
        for level, hit in zip((0.5, 0.8, 0.9), reached, strict=True):
            margins[f"{level} at {confidence}"] = float(hit) - confidence
    return margins, 1


def refitted(name: str, rng: Rng, world: str, whole: bool) -> tuple[Margins, int]:
    """Coverage of targets by methods that refit a model."""
    bag = total(int(rng.choice([2, 3, 5] if whole else [10, 19, 30])), whole)
    Z, errors, _ = rows(rng, world, bag)
    y, method = np.sin(Z[:, 0]) + errors, methods.REFITTED[name]

    def cover(known: Array, new: Array) -> Margins:
        if "random_state" in method.get_params():
            method.set_params(random_state=int(rng.integers(2**31)))
        method.fit(Z[known], y[known])
        covered = method.predict_interval(Z[new], LEVELS).contains(y[new])
        return by_level(covered.mean(axis=0) - method.guaranteed_coverage(LEVELS))

    return turned(cover, np.arange(bag), whole)


def regressed(name: str, rng: Rng, world: str, whole: bool) -> tuple[Margins, int]:
    """Coverage of targets by a regressor with a score of its own."""
    bag = total(size(rng, whole), whole)
    Z, y, _ = rows(rng, world, bag)

    def cover(known: Array, new: Array) -> Margins:
        method = methods.REGRESSORS[name].calibrate(Z[known], y[known])
        covered = method.predict_interval(Z[new], LEVELS).contains(y[new])
        return by_level(covered.mean(axis=0) - method.guaranteed_coverage(LEVELS))

    return turned(cover, np.arange(bag), whole)


def nothing(X: Any) -> Any:
    """A model of two targets that predicts nothing."""
    return np.zeros((len(X), 2))


def boxed(joint: bool, name: str, rng: Rng, world: str, whole: bool) -> tuple[Margins, int]:
    """Coverage of two targets: both in a box, or each in an interval of its own."""
    bag = total(size(rng, whole), whole)
    Z, errors, _ = rows(rng, world, bag)
    y = np.column_stack([errors, 100 * np.roll(errors, bag // 2) * rng.uniform(size=bag)])
    y = y[rng.permutation(bag)]  # targets that have nothing to do with the input will do
    units = [1.0, 50.0] if joint else None

    def cover(known: Array, new: Array) -> Margins:
        method = clone(methods.CALIBRATORS[name])
        model = MultiTargetRegressor(nothing, method, joint=joint, units=units)
        boxes = model.calibrate(Z[known], y[known]).predict_interval(Z[new], LEVELS)
        proved = [conformal_coverage(level, len(known)) for level in LEVELS]
        if joint:
            return by_level(boxes.contains(y[new]).mean(axis=0) - proved)
        margins = Margins()
        for j in range(2):
            margin = by_level(boxes[j].contains(y[new, j]).mean(axis=0) - proved)
            margins |= {f"{level} of target {j}": x for level, x in margin.items()}
        return margins

    return turned(cover, np.arange(bag), whole)


def of_calibrator(name: str) -> Law:
    """Marginal coverage; small bags where a row is a linear program, no world without a metric."""
    most = 19 if name == "ConditionalCalibration" else 200
    worlds = tuple(w for w in WORLDS if w != "one_place" or "Mahalanobis" not in name)
    return Law(partial(marginal, name, most), worlds, not name.startswith(DRAWING))


def _laws() -> dict[str, Law]:
    """All laws by name: what is promised, and of whom."""
    laws = {f"marginal: {name}": of_calibrator(name) for name in methods.CALIBRATORS}
    laws |= {f"groups: {name}": Law(partial(in_groups, name)) for name in methods.GROUPED}
    laws |= {f"weights: {n}": Law(partial(shifted, n), INDEPENDENT) for n in methods.WEIGHTED}
    laws |= {f"distribution: {name}": Law(partial(quantiles, name)) for name in methods.SIGNED}
    laws |= {
        f"confidence: {name}": Law(partial(confident, name), ("continuous", "whole numbers"), False)
        for name in methods.WITH_LAW
    }
    laws |= {
        f"refitting: {n}": Law(partial(refitted, n), whole=not n.startswith(DRAWING))
        for n in methods.REFITTED
    }
    laws |= {f"scores: {name}": Law(partial(regressed, name)) for name in methods.REGRESSORS}
    for name in ("Split", "FullRescaled(KNN 3)"):
        laws[f"box: {name}"] = Law(partial(boxed, True, name))
        laws[f"each target: {name}"] = Law(partial(boxed, False, name))
    return laws


LAWS = _laws()


def batch(name: str, number: int, whole: bool = False) -> dict[str, Any]:
    """Bags of each world; the same for the same number, wherever and whenever it is asked for."""
    law, rng = LAWS[name], np.random.default_rng([zlib.crc32(name.encode()), number])
    found: dict[str, list[float]] = {}
    pairs, least, started = 0, 1.0, process_time()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for world in law.worlds:
            for _ in range(WHOLES if whole else BAGS):
                margins, drawn = law.bag(rng, world, whole)
                pairs += drawn
                least = min(least, *margins.values()) if whole else least
                kind = "ties" if world in TIED else "no ties"
                for key, margin in margins.items():
                    found.setdefault(f"{kind}, {key}", []).append(margin)
                mean = float(np.mean(list(margins.values())))
                found.setdefault(f"{world}, all", []).append(mean)
    cells = {cell: summed(margins, largest(name, cell)) for cell, margins in found.items()}
    return {
        "pairs": pairs, "whole": whole * WHOLES * len(law.worlds), "least": least,
        "seconds": process_time() - started, "cells": cells,
    }  # fmt: skip


def largest(law: str, cell: str) -> float:
    """What margins of a cell cannot exceed: 1 − level where no less than the level is promised."""
    kind, method = law.split(": ", 1)
    key = cell.partition(", ")[2]
    heaviest = HEAVIEST / LIGHTEST if kind == "weights" else 1.0
    if method.startswith(BELOW) or kind == "confidence":
        return 2 * heaviest  # of so few rows that less than nothing is proved, or nearly so
    if key.startswith("PIT"):
        return 0.5 if key.endswith("0.5") else 0.1
    if key == "all":
        return 0.28 * heaviest  # the mean over all levels, and over ends of the PIT
    words = key.split()
    level = words[1] if words[0] in ("upper", "lower") else words[0]
    return (1 - LEVELS[NAMES.index(level)]) * heaviest


def summed(margins: Sequence[float], largest: float = 1.0) -> dict[str, Any]:
    """What is kept of margins: sums, and the logarithm of the wealth for each stake."""
    x = np.asarray(margins)
    if x.max() > largest + 1e-9:  # a bet that can lose more than all is none
        raise ValueError(f"margins must be at most {largest}; got {x.max()}.")
    wealth = np.log1p(-STAKES[:, None] * x / largest).sum(axis=1)
    return {"bags": len(x), "sum": x.sum(), "squares": (x**2).sum(), "wealth": wealth.tolist()}


def joined(before: dict[str, Any] | None, added: dict[str, Any]) -> dict[str, Any]:
    """What was found so far, with what a batch found."""
    state = before or {"batches": 0, "pairs": 0, "seconds": 0.0, "cells": {}}
    state["batches"] += 1
    state["pairs"] += added["pairs"]
    state["whole"] = state.get("whole", 0) + added["whole"]
    state["least"] = round(min(state.get("least", 1.0), added["least"]), 9)
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
    bags : independent ones in the largest cell
    whole : bags in which each row was new in turn
    worst : the smallest mean margin in its standard errors, and the name of its cell
    seen : the smallest violation that would have been seen as often as not: by whole bags or,
        where these do not decide, by bets at 0.9 where errors do not tie
    broken : cells in which the promise is refuted
    """

    pairs: int
    bags: int
    whole: int
    worst: tuple[float, str]
    seen: float
    broken: tuple[str, ...]


def seen_by_bets(limit: float, error: float, bags: int, most: float) -> float:
    """The violation v for which some stake λ has bags · (λv − λ²σ²/2) = limit."""
    stakes = bags * STAKES / most
    return float(np.min(limit / stakes + stakes * error**2 / 2))


def seen_by_whole(law: str, bags: int) -> float:
    """The violation that so many would have missed half of the time: margins are at least −1.

    Those that count by weight are at least as low as the heaviest row is heavier than the mean.
    """
    share = 1 - 0.5 ** (1 / bags) if bags else 1.0
    return min(share * (HEAVIEST / LIGHTEST if law.startswith("weights") else 1.0), 1.0)


def verdict(law: str, state: dict[str, Any], n_cells: int) -> Verdict:
    """What is to be said of a law, one of so many cells."""
    limit, worst = np.log(n_cells / FAMILY_WISE), (np.inf, "")
    broken, seen = [], 0.0
    for name, cell in state["cells"].items():
        mean = cell["sum"] / cell["bags"]
        error = np.sqrt(max(cell["squares"] / cell["bags"] - mean**2, 0.0) / cell["bags"])
        if error > 0:
            worst = min(worst, (float(mean / error), name))
        elif mean < -1e-12:
            worst = (-np.inf, name)
        if name.startswith("no ties") and " 0.9" in name and "0.95" not in name:
            staked = limit + np.log(len(STAKES)), error, cell["bags"], largest(law, name)
            seen = max(seen, seen_by_bets(*staked))
        if cell["most"] >= limit:
            broken.append(name)
    if state.get("least", 0.0) < -1e-9:
        broken.append("a whole bag")
    bags, whole = max(cell["bags"] for cell in state["cells"].values()), state.get("whole", 0)
    seen = seen_by_whole(law, whole) if LAWS[law].whole else seen
    return Verdict(state["pairs"], bags, whole, worst, seen, tuple(broken))

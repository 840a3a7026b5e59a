"""Adversaries: is there a bag of rows on which a method covers less than it promises?

Exchangeable means: of a bag of n rows any one is the new one with the same chance, the others
calibrate. So a promise holds if and only if it holds on every bag, and on one bag nothing is left
to chance: each member in turn is new, and the members that are covered are counted. A single bag
below what is proved would refute a method. (Under a shift, members are new by their weights; in
groups, each among those of its group; folds are gone through in all ways, and so are bootstraps;
where `RLCP` draws, shares of draws are counted.)

*All bags* of few places and few scores: a calibration set of n − 1 belongs to as many bags as
there are different rows, so one fit serves them all, and some thousand fits decide on a hundred
thousand bags. *Searched bags*, of up to twelve rows: simulated annealing, from random bags on,
changes a row at a time and keeps what lowers the smallest margin over all levels, and the mean
margin where that is equal. Levels are all q/n: others have the rank of one of these. (Methods that
use the level itself, for a quantile or with weights, are tried at these alone.)

*Laws over draws* of calibration rows are promises to independent rows, not to bags. Here rows are
one of two or three, with any chances: calibration sets are then so few that all are gone through.
"""

from __future__ import annotations

import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations_with_replacement, permutations
from math import comb, factorial, prod
from time import process_time
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy
from sklearn.base import clone

from calliper.calibrators import Grouped
from calliper.guarantees import jackknife_coverage
from checks.promises import methods
from checks.promises.worlds import Array

Levels = list[float]
Members = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that bags are made of.

    Attributes
    ----------
    Z, errors, weights : (G, d) and (G,)
    groups : (G,), each of which has a promise of its own
    """

    Z: Array
    errors: Array
    weights: Array
    groups: Any

    def of(self, members: Any) -> tuple[Array, Array, Array, Any]:
        """Some of them."""
        chosen = np.asarray(members, dtype=int)
        return self.Z[chosen], self.errors[chosen], self.weights[chosen], self.groups[chosen]


#: Calibrated on some rows, the covered share of each of others and what is proved, two (m, L).
Trial = Callable[[Rows, Members, Any, Levels], tuple[Array, Any]]


def _training(Z: Array) -> tuple[Array, Array]:
    """Rows apart from any bag, the same for all of them."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, size=(40, Z.shape[1])) * 1.0, rng.integers(-3, 4, size=40) * 1.0


def _fitted(name: str, Z: Array, errors: Array, **known: Any) -> Any:
    method = methods.CALIBRATORS[name]  # which a new fit makes forget the last
    return method.fit(Z, np.abs(errors), **methods.told(name, method, *_training(Z)), **known)


def covered(
    name: str, rows: Rows, known: Members, new: Any, levels: Levels, draws: int = 40
) -> tuple[Array, Any]:
    """Marginally; a method that draws is asked for each row many times."""
    Z, errors, _, _ = rows.of(known)
    asked, truth, _, _ = rows.of(new)
    method, times = _fitted(name, Z, errors), draws if name == "RLCP" else 1
    radius = method.predict_radius(np.repeat(asked, times, axis=0), levels)
    hit = np.repeat(np.abs(truth), times)[:, None] <= radius
    share = hit.reshape(len(asked), times, -1).mean(axis=1)
    return share, method.guaranteed_coverage(levels)


def shifted(name: str, rows: Rows, known: Members, new: Any, levels: Levels) -> tuple[Array, Any]:
    """With weights."""
    Z, errors, weights, _ = rows.of(known)
    asked, truth, of_new, _ = rows.of(new)
    method = _fitted(name, Z, errors, weights=weights)
    radius = method.predict_radius(asked, levels, weights=of_new)
    return np.abs(truth)[:, None] <= radius, method.guaranteed_coverage(levels)


def in_groups(name: str, rows: Rows, known: Members, new: Any, levels: Levels) -> tuple[Array, Any]:
    """With a promise in each group."""
    Z, errors, _, groups = rows.of(known)
    asked, truth, _, of_new = rows.of(new)
    method = Grouped(clone(methods.CALIBRATORS[name])).fit(Z, np.abs(errors), groups=groups)
    radius = method.predict_radius(asked, levels, groups=of_new)
    own = {g: np.asarray(m.guaranteed_coverage(levels)) for g, m in method.calibrators_.items()}
    proved = [own.get(g, np.ones(len(levels))) for g in of_new]
    return np.abs(truth)[:, None] <= radius, np.array(proved)


def bounded(
    name: str, side: str, rows: Rows, known: Members, new: Any, levels: Levels
) -> tuple[Array, Any]:
    """Bounds on one side, from a distribution."""
    Z, errors, _, _ = rows.of(known)
    asked, truth, _, _ = rows.of(new)
    method = _fitted(name, Z, errors, signs=np.sign(errors))
    batch, y = method.predict_distribution(asked, np.zeros(len(asked))), truth[:, None]
    if side == "upper":
        return y <= batch.quantile(levels), np.array(levels)
    low = [1 - level for level in reversed(levels)]
    return (y >= batch.quantile(low, side="lower"))[:, ::-1], np.array(levels)


def refitted(name: str, rows: Rows, known: Members, new: Any, levels: Levels) -> tuple[Array, Any]:
    """Targets, by a method that refits."""
    X, y, _, _ = rows.of(known)
    asked, truth, _, _ = rows.of(new)
    method = (methods.REFITTED | methods.TINY)[name].fit(X, y)
    return method.predict_interval(asked, levels).contains(truth), method.guaranteed_coverage(
        levels
    )


class Dealt(np.random.RandomState):
    """Draws what it is told: as many bootstraps as these, then their rows."""

    def __init__(self, bootstraps: Sequence[Members]) -> None:
        super().__init__(0)
        self.bootstraps = list(bootstraps)

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """Their number."""
        return len(self.bootstraps)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        """The rows of the next."""
        return np.array(self.bootstraps.pop(0))


def bootstrapped(
    name: str, rows: Rows, known: Members, new: Any, levels: Levels
) -> tuple[Array, Any]:
    """Targets, over all bootstraps and numbers of these, each by its chance."""
    X, y, _, _ = rows.of(known)
    asked, truth, _, _ = rows.of(new)
    method, share = methods.BOOTSTRAPPED[name], np.zeros((len(asked), len(levels)))
    for bootstraps, chance in all_bootstraps(len(known), method.n_bootstraps):
        method.random_state = Dealt(bootstraps)
        share += chance * method.fit(X, y).predict_interval(asked, levels).contains(truth)
    return share, method.guaranteed_coverage(levels)


@cache
def all_bootstraps(n: int, expected: int) -> list[tuple[tuple[Members, ...], float]]:
    """What may be drawn of n rows, whatever the order, with its chance; none counts as one."""
    missed = (1 - 1 / (n + 1)) ** n
    trials, samples = round(expected / missed), list(combinations_with_replacement(range(n), n))
    drawn: dict[tuple[Members, ...], float] = {}
    for number in range(trials + 1):
        chance = comb(trials, number) * missed**number * (1 - missed) ** (trials - number)
        for several in combinations_with_replacement(samples, max(number, 1)):
            ways = _orders(several) * prod(_orders(sample) for sample in several)
            more = chance * ways / n ** (n * len(several))
            drawn[several] = drawn.get(several, 0.0) + more
    return list(drawn.items())


def _orders(members: tuple[Any, ...]) -> int:
    """In how many orders they can be drawn."""
    return factorial(len(members)) // prod(factorial(k) for k in Counter(members).values())


def folded(name: str, rows: Rows, bags: Any) -> Array:
    """Margins of bags of six rows at four levels, (B, 4), of a method with two folds of two rows.

    Its proof adds the fold of the new row: so any two rows of six are new, and the others are two
    folds, 45 ways. Rows are given in an order that makes the seeded folds what they shall be.
    """
    method, levels, size = methods.FOLDED[name], levels_of(5), len(rows.Z)
    place = np.argsort(method.fit(rows.Z[[0] * 4], rows.errors[[0] * 4]).fold_, kind="stable")
    ways = [w for w in permutations(range(6)) if w[0] < w[1] and w[2] < w[3] and w[4] < w[5]]
    ways = [w for w in ways if w[0] < w[2]]
    keys = np.array([np.ravel_multi_index(bags[:, w[:4]].T, (size,) * 4) for w in ways])
    unique, which = np.unique(keys, return_inverse=True)
    each = np.empty((len(unique), size, len(levels)))
    for fit, key in enumerate(unique):
        known = np.empty(4, dtype=int)
        known[place] = np.unravel_index(key, (size,) * 4)
        method.fit(rows.Z[known], rows.errors[known])
        hit = method.predict_interval(rows.Z, levels).contains(rows.errors)
        each[fit] = hit - method.guaranteed_coverage(levels)
    which = which.reshape(keys.shape)
    new = [(each[fit, bags[:, w[4]]] + each[fit, bags[:, w[5]]]) / 2
           for w, fit in zip(ways, which, strict=True)]  # fmt: skip
    return np.asarray(np.mean(new, axis=0))


#: Levels and confidences of a law over draws of calibration rows.
CONFIDENT = [(level, confidence) for confidence in (0.5, 0.9) for level in (0.5, 0.8, 0.9)]


def reached(name: str, atoms: Rows, n: int, chances: Array) -> Array:
    """How often coverage given n independent rows reaches its level, less the confidence, (W, 6).

    Rows are one of K atoms, by chances (W, K): all calibration sets are gone through, each fitted
    once for all W worlds, in each of which its chance and its coverage are known exactly.
    """
    K = len(atoms.Z)
    draws = np.array(list(combinations_with_replacement(range(K), n)))
    counts = np.array([np.bincount(draw, minlength=K) for draw in draws])
    hit = np.empty((len(draws), K, len(CONFIDENT)))
    for place, draw in enumerate(draws):
        method = _fitted(name, atoms.Z[draw], atoms.errors[draw])
        radius = [method.predict_radius(atoms.Z, [0.5, 0.8, 0.9], confidence=c) for c in (0.5, 0.9)]
        hit[place] = np.abs(atoms.errors)[:, None] <= np.hstack(radius)
    ways = gammaln(n + 1) - gammaln(counts + 1).sum(axis=1)
    chance = np.exp(ways + xlogy(counts, chances[:, None]).sum(axis=2))  # (W, draws)
    needed = np.array([level for level, _ in CONFIDENT]) - 1e-12
    enough = np.einsum("wk,dkc->wdc", chances, hit) >= needed
    often = np.einsum("wd,wdc->wc", chance, enough)
    return np.asarray(often - [confidence for _, confidence in CONFIDENT])


def worlds_of(atoms: Rows, rng: np.random.Generator, W: int) -> Array:
    """Chances of atoms, (W, K): some of any size, some just more than may be missed at a level."""
    chances = rng.dirichlet(np.full(len(atoms.Z), 0.7), size=W)
    for place in range(W // 2):
        level, rare = CONFIDENT[place % len(CONFIDENT)][0], rng.integers(len(atoms.Z))
        chances[place, rare] = 0
        chances[place] *= (level - 1e-9) / max(chances[place].sum(), 1e-300)
        chances[place, rare] = 1 - chances[place].sum()
    return chances


def _trials() -> dict[str, Trial]:
    """Who is attacked, by the names that laws have."""
    trials: dict[str, Trial] = {f"marginal: {n}": partial(covered, n) for n in methods.CALIBRATORS}
    trials |= {f"weights: {n}": partial(shifted, n) for n in methods.WEIGHTED}
    trials |= {f"groups: {n}": partial(in_groups, n) for n in methods.GROUPED}
    for side in ("upper", "lower"):
        trials |= {f"distribution: {n}, {side}": partial(bounded, n, side) for n in methods.SIGNED}
    plain = ("JackknifePlus", "JackknifePlus(minmax)", *methods.TINY)
    trials |= {f"refitting: {n}": partial(refitted, n) for n in plain}
    trials |= {f"refitting: {n}": partial(bootstrapped, n) for n in methods.BOOTSTRAPPED}
    for own in (*methods.FOLDED, *methods.WITH_LAW):  # which are attacked in ways of their own
        kind = "refitting" if own in methods.FOLDED else "confidence"
        trials[f"{kind}: {own}"] = partial(covered, own)
    return trials


TRIALS = _trials()

#: What is done in turn: three searches (None), or all bags of so many rows, places and scores.
TURNS = ((3, 9, 9), (4, 5, 4), None, None, (5, 4, 4), None, (6, 3, 3), None)

#: Steps of a search.
STEPS = 80

#: The same where rows come in folds, and where all bootstraps are gone through.
OF_FOLDS = (6, 4, 3), (6, 8, 2), (6, 5, 3)
OF_BOOTSTRAPS = (3, 9, 9), (3, 6, 7), (4, 3, 3)

#: Pairs or triples of atoms in an attack on a law over draws, and chances that each is given.
ATOMS, CHANCES = 12, 4000

#: Methods that draw: their shares are estimates, and what looks broken is looked at again.
DRAWING = ("marginal: RLCP",)


def levels_of(n: int) -> Levels:
    """All that the ranks of n − 1 calibration rows tell apart."""
    return [q / n for q in range(1, n)]


def levels_at(name: str, rows: int) -> Levels:
    """Levels of a bag of so many rows: with folds, two of six are new."""
    return levels_of(5 if name.partition(": ")[2] in methods.FOLDED else rows)


def grid(name: str, rng: np.random.Generator, places: int, scores: int) -> Rows:
    """Each of some places with each of some scores; zero is one of both."""
    kind = name.partition(":")[0]
    leaves = name.partition(": ")[2] in methods.OF_LEAVES
    spread = range(9) if leaves else [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 3.5, 7.0, 7.1]
    z = np.sort(rng.choice(spread, places, replace=False)).astype(float)
    sizes = rng.choice([0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 100.0], scores - 1, replace=False)
    if kind in ("distribution", "refitting"):
        sizes *= np.where(np.arange(scores - 1) % 2, -1, 1)
    Z, errors = (part.ravel() for part in np.meshgrid(z, [0.0, *sizes], indexing="ij"))
    weights = rng.choice([0.25, 1.0, 2.0, 5.0], size=places)
    group = np.arange(places) % 2
    place = np.repeat(np.arange(places), scores)
    flat = np.ones(len(Z)) if kind != "weights" else weights[place]
    split = np.zeros(len(Z), dtype=int) if kind != "groups" else group[place]
    columns = [Z, z[places // 2] < Z] if leaves else [Z]
    return Rows(np.column_stack(columns).astype(float), errors, flat, split)


def margin(name: str, rows: Rows, bag: Members, trial: Trial | None = None) -> Array:
    """Of a bag, at each level: covered share less what is proved, in the worst group, (n−1,)."""
    if name.partition(": ")[2] in methods.FOLDED:
        return np.asarray(folded(name.partition(": ")[2], rows, np.array([bag]))[0])
    trial, levels, sizes = trial or TRIALS[name], levels_of(len(bag)), Counter(bag)
    each = np.empty((len(sizes), len(levels)))
    for place, member in enumerate(sizes):
        others = list(bag)
        others.remove(member)
        share, proved = trial(rows, tuple(others), [member], levels)
        each[place] = share[0] - np.reshape(proved, (-1, len(levels)))[-1]
    weights, groups = rows.weights[list(sizes)] * list(sizes.values()), rows.groups[list(sizes)]
    parts = [groups == group for group in np.unique(groups)]
    means = [np.average(each[part], axis=0, weights=weights[part]) for part in parts]
    return np.asarray(np.min(means, axis=0))


def every_bag(name: str, rows: Rows, n: int) -> tuple[Any, Array]:
    """All bags of n of these rows, (B, n), and their margins, (B, n−1)."""
    size, levels = len(rows.Z), levels_of(n)
    known = np.array(list(combinations_with_replacement(range(size), n - 1)))
    each = np.empty((len(known), size, len(levels)))
    for place, members in enumerate(known):
        share, proved = TRIALS[name](rows, tuple(members), np.arange(size), levels)
        each[place] = share - np.reshape(proved, (-1, len(levels)))
    new = np.tile(np.arange(size), len(known))
    bags = np.sort(np.column_stack([np.repeat(known, size, axis=0), new]), axis=1)
    weights = (bags == new[:, None]).sum(axis=1) * rows.weights[new]
    bags, which = np.unique(bags, axis=0, return_inverse=True)
    worst = np.full((len(bags), len(levels)), np.inf)
    for group in np.unique(rows.groups):
        of_group = weights * (rows.groups[new] == group)
        total = np.bincount(which, of_group)
        for level, margins in enumerate(each.reshape(len(new), -1).T):
            mean = np.bincount(which, of_group * margins) / np.where(total, total, np.nan)
            worst[:, level] = np.fmin(worst[:, level], mean)
    return bags, worst


def energy_of(name: str, margins: Array) -> float:
    """What a search lowers: the smallest margin, and a little the mean of all.

    For the Jackknife+, whose levels are above what is proved, how far coverage is below levels
    shows the way: it is so only if some members beat one another in a circle.
    """
    apart = told_apart(name, margins)
    if len(apart) == len(margins):
        return float(margins.min() + 0.3 * margins.mean())
    n = len(margins) + 1
    proved = [jackknife_coverage(level, n - 1) for level in levels_of(n)]
    below = np.minimum(margins + proved - np.array(levels_of(n)), 0)
    return float(apart.min() + below.sum())


def annealed(name: str, rows: Rows, n: int, rng: np.random.Generator) -> tuple[Any, Array]:
    """Bags on a way downhill, (STEPS, n), and their margins, (STEPS, n−1)."""
    bag, energy, seen, found = rng.integers(len(rows.Z), size=n), np.inf, [], []
    for step in range(STEPS):
        tried = bag.copy()
        for place in rng.integers(n, size=1 + int(rng.uniform() < 0.3)):
            tried[place] = rng.integers(len(rows.Z))
        margins = margin(name, rows, tuple(tried))
        seen.append(tried)
        found.append(margins)
        new = energy_of(name, margins)
        heat = 0.3 / n * (1 - step / STEPS) + 1e-9
        if new <= energy or rng.uniform() < np.exp((energy - new) / heat):
            bag, energy = tried, new
    return np.array(seen), np.array(found)


def is_searched(name: str) -> bool:
    """Whether bags are searched for by annealing, too."""
    method = name.partition(": ")[2]
    return not name.startswith("confidence") and method not in methods.FOLDED | methods.BOOTSTRAPPED


def is_plus(name: str) -> bool:
    """Whether it is a Jackknife+, whose levels are above what is proved."""
    other = "inmax" in name or "AfterBootstrap" in name or name.startswith("weights")
    return "Jackknife" in name and not other


def told_apart(name: str, margins: Array) -> Array:
    """Margins at levels where the proof says more than counting: for the Jackknife+ not the last.

    There every method reaches (n−1)/n, which is what is proved.
    """
    return margins[..., :-1] if is_plus(name) and margins.shape[-1] > 1 else margins


def kept(name: str, rows: Rows, bag: Members, margins: Array) -> dict[str, Any]:
    """A bag as it is written down."""
    Z, errors, weights, groups = rows.of(bag)
    place, over_draws = int(np.argmin(told_apart(name, margins))), name.startswith("confidence")
    return {
        "margin": round(float(margins[place]), 9),
        "level": CONFIDENT[place][0] if over_draws else levels_at(name, len(bag))[place],
        "Z": Z.tolist(),
        "errors": errors.tolist(),
        **({"weights": weights.tolist()} if over_draws or name.startswith("weights") else {}),
        **({"groups": groups.tolist()} if over_draws or name.startswith("groups") else {}),
    }


def again(name: str, bag: dict[str, Any], **how: Any) -> Array:
    """The margins of a bag that was written down, at all levels."""
    n = len(bag["errors"])
    rows = Rows(
        np.array(bag["Z"]),
        np.array(bag["errors"]),
        np.array(bag.get("weights", np.ones(n))),
        np.array(bag.get("groups", np.zeros(n, dtype=int))),
    )
    if name.startswith("confidence"):
        draws = int(rows.groups[0])
        return np.asarray(reached(name.partition(": ")[2], rows, draws, rows.weights[None])[0])
    return margin(name, rows, tuple(range(n)), partial(TRIALS[name], **how))


def attack(name: str, number: int) -> dict[str, Any]:
    """How many bags were tried, and the worst of each size; the same for the same number."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), number])
    worst: dict[int, tuple[float, Any]] = {}
    tried, least, started = 0, np.inf, process_time()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for rows, bags, margins in _tried(name, rng, number):
            tried, least, n = tried + len(bags), min(least, float(margins.min())), len(bags[0])
            keys = _keys(name, margins)
            place = int(np.argmin(keys))
            if keys[place] < worst.get(n, (np.inf,))[0]:
                worst[n] = keys[place], kept(name, rows, tuple(bags[place]), margins[place])
        found = {str(n): bag for n, (_, bag) in sorted(worst.items())}
        if name in DRAWING:  # the worst of many estimates is too low: estimate it anew
            for bag in found.values():
                bag["margin"] = round(float(again(name, bag, draws=4000).min()), 9)
            least = min(bag["margin"] for bag in found.values())
    seconds = process_time() - started
    return {"bags": tried, "seconds": seconds, "least": least, "worst": found}


def _keys(name: str, margins: Array) -> Array:
    """What is kept is the smallest of these: margins and, where they are equal, their mean."""
    return np.asarray(told_apart(name, margins).min(axis=1) + 1e-3 * margins.mean(axis=1))


def _tried(name: str, rng: np.random.Generator, number: int) -> Iterator[tuple[Rows, Any, Array]]:
    """All bags of a grid with their margins, or those of three searches."""
    kind, _, method = name.partition(": ")
    if kind == "confidence":
        yield from _laws_over_draws(name, rng)
        return
    if method in methods.FOLDED:
        size, *few = OF_FOLDS[number % len(OF_FOLDS)]
        rows = grid(name, rng, *few)
        bags = np.array(list(combinations_with_replacement(range(len(rows.Z)), size)))
        yield rows, bags, folded(method, rows, bags)
        return
    whole = TURNS[number % len(TURNS)]
    if method in methods.BOOTSTRAPPED:
        whole = OF_BOOTSTRAPS[number % len(OF_BOOTSTRAPS)]
    if whole is not None:
        rows = grid(name, rng, *whole[1:])
        yield rows, *every_bag(name, rows, whole[0])
        return
    for _ in range(3):
        rows = grid(name, rng, int(rng.integers(2, 8)), int(rng.integers(2, 7)))
        low, high = (3, 13) if is_plus(name) else (5, 11)
        bags, margins = annealed(name, rows, int(rng.integers(low, high)), rng)
        yield rows, bags, margins


def _laws_over_draws(name: str, rng: np.random.Generator) -> Iterator[tuple[Rows, Any, Array]]:
    """Atoms, the same for each of many chances that they are given, and margins.

    Chances are the weights of these rows; n draws of them calibrate, as their groups say.
    """
    for K in (2, 3) * (ATOMS // 2):
        few = grid("marginal: ", rng, 6, 5)
        n = int(rng.integers(1, 41 if K == 2 else 9))
        at = rng.choice(len(few.Z), K, replace=False)
        atoms = Rows(few.Z[at], few.errors[at], np.ones(K), np.full(K, n))
        chances = worlds_of(atoms, rng, CHANCES)
        margins = reached(name.partition(": ")[2], atoms, n, chances)
        worst = int(np.argmin(_keys(name, margins)))
        chosen = Rows(atoms.Z, atoms.errors, chances[worst], atoms.groups)
        yield chosen, np.tile(np.arange(K), (CHANCES, 1)), np.roll(margins, -worst, axis=0)


def joined(before: dict[str, Any] | None, added: dict[str, Any]) -> dict[str, Any]:
    """What was found so far, with what an attack found."""
    state = before or {"batches": 0, "bags": 0, "seconds": 0.0, "worst": {}}
    state["batches"] += 1
    state["bags"] += added["bags"]
    state["seconds"] = round(state["seconds"] + added["seconds"], 2)
    state["least"] = round(min(state.get("least", np.inf), added["least"]), 9)
    for n, bag in added["worst"].items():
        if n not in state["worst"] or bag["margin"] < state["worst"][n]["margin"]:
            state["worst"][n] = bag
    state["worst"] = dict(sorted(state["worst"].items(), key=lambda item: int(item[0])))
    return state

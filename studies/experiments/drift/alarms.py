"""Alarms that are false, and late: ``python -m studies.experiments.drift.alarms``.

False alarms over honest streams, each with a calibration set of its own; and the median delay at
N = 500, level 0.9, δ = 0.05, beside CUSUM, which knows the new rate, at 5 % false alarms in these
streams. All streams move together, in plain numbers: an oracle of ``calliper.monitoring`` as well.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from calliper import monitoring
from calliper.quantile import conformal_rank

N, COVERAGE, LIMIT = 500, 0.9, 20
MISSES = N + 1 - conformal_rank(COVERAGE, N)
ODDS = MISSES / (N + 1 - MISSES) * monitoring.ODDS
RATES = ODDS / (1 + ODDS)


def monitored(missed: NDArray[np.bool_]) -> NDArray[np.intp]:
    """When each stream sets off the alarm, (S,), of misses (T, S); T where it never does."""
    length, streams = missed.shape
    wealth, alarms = np.zeros((streams, len(RATES))), np.full(streams, length)
    seen = np.zeros(streams)
    for t, each in enumerate(missed):
        urn = np.maximum((MISSES + seen) / (N + 1 + t), MISSES / (N + 1))
        promised = urn[:, None]
        later = (1 - monitoring.FIRST_START) * monitoring.SLOW / (monitoring.SLOW + t)
        start = later / (monitoring.SLOW + t + 1) + monitoring.FIRST_START * (t == 0)
        wealth += start * monitoring.SHARES
        wealth *= np.where(each[:, None], RATES / promised, (1 - RATES) / (1 - promised))
        later = (1 - monitoring.FIRST_START) * monitoring.SLOW / (monitoring.SLOW + t + 1)
        alarms[(wealth.sum(axis=1) + later >= LIMIT) & (alarms == length)] = t
        seen += each
    return alarms


def summed(missed: NDArray[np.bool_], after: float) -> NDArray[np.float64]:
    """The largest CUSUM statistic so far, (T, S), for a change of the miss rate that is known."""
    before = MISSES / (N + 1)
    moves = np.where(missed, np.log(after / before), np.log((1 - after) / (1 - before)))
    walk = np.vstack([np.zeros(missed.shape[1]), np.cumsum(moves, axis=0)])
    rises = (walk - np.minimum.accumulate(walk, axis=0))[1:]
    return np.asarray(np.maximum.accumulate(rises, axis=0))


def honest(rng: np.random.Generator, streams: int, steps: int) -> NDArray[np.bool_]:
    """Misses, (T, S), of calibration sets of N continuous scores each."""
    rates = rng.beta(MISSES, N + 1 - MISSES, size=streams)
    return np.asarray(rng.random((steps, streams)) < rates)


def changed(
    rng: np.random.Generator, streams: int, at: int, after: float, steps: int = 2000
) -> NDArray[np.bool_]:
    """Misses that are as promised up to a step, and then more frequent."""
    rates = np.where(np.arange(at + steps) < at, 1 - COVERAGE, after)
    return np.asarray(rng.random((at + steps, streams)) < rates[:, None])


def main(streams: int = 10_000, steps: int = 5000) -> None:
    """Print both tables."""
    rng = np.random.default_rng(0)
    quiet = honest(rng, streams, steps)
    print(f"false alarms: {np.mean(monitored(quiet) < steps):.4f} of {streams} honest streams")
    print("misses become, at step: median delay, CUSUM's (change known)")
    for after, at in [(0.5, 0), (0.3, 0), (0.2, 0), (0.3, 500), (0.2, 500), (0.3, 5000)]:
        missed = changed(rng, 1000, at, after)
        alarms = monitored(missed)
        limit = np.quantile(summed(quiet[:, :2000], after)[-1], 1 - 1 / LIMIT)
        known = (summed(missed, after) >= limit).argmax(axis=0)
        delays = [np.median(each[each >= at]) + 1 - at for each in (alarms, known)]
        print(f"  {after:.1f} {at:5d}: {delays[0]:5.0f} {delays[1]:5.0f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

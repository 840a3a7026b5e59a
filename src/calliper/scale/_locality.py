"""How local a scale should be where nobody said: a rule, and what it or a search has chosen.

Few neighbours follow the error closely and noisily, many miss where it changes. What is best
depends on the number N of calibration points and on how fast the error varies. Where the space
has a unit of its own (a model's prediction and spread, say), the distance at which points still
speak for one another is known beforehand, and a radial kernel of that length is the rule; it turns
into plain split by itself where all points are near. Where it has none (inputs of any kind), the
rule is the 20 nearest, mixed with the global scale: in many dimensions the nearest few know most,
and shrinkage takes their noise away better than more and farther neighbours do. The constants are
those of the study in ``experiments/nearness``.

The rule looks at how many calibration points there are and at nothing else of them, so no
guarantee is touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calliper.kernels import KNN, RBF, ForestProximity
from calliper.scale._learnt import LearntKernel

#: How many points the mean of all counts for in a radial mean.
SMOOTHING = 1.0

#: Beyond so many calibration points all pairs of them take too long, and the K nearest are used.
MOST_RADIAL = 10_000

#: Least and most of the scale that is global where the K nearest are the rule.
LEAST_SHRINKAGE, MOST_SHRINKAGE = 0.2, 0.5


@dataclass(frozen=True)
class Locality:
    """Who counts as a neighbour, how much of the scale is global, and who said so.

    Attributes
    ----------
    kernel : the kernel used
    shrinkage : share of the global scale; 1 is plain split conformal
    chosen_by : "user", "rule", or "left-out errors"
    n_errors : number of left-out errors that were looked at; 0 if none
    against_split : estimated interval score over that of plain split, mean over levels; NaN if
        nothing was estimated
    """

    kernel: KNN | RBF | ForestProximity | LearntKernel
    shrinkage: float
    chosen_by: str
    n_errors: int = 0
    against_split: float = float("nan")

    def describe(self) -> str:
        """In words, for a report."""
        what = f"{self.kernel!r}, shrinkage {self.shrinkage:g}"
        if self.shrinkage == 1:
            what = "plain split (one scale for all)"
        if self.chosen_by == "user":
            return f"{what}, as given"
        why = "by a rule of the number of calibration points"
        if self.chosen_by == "left-out errors":
            why = f"chosen on {self.n_errors} left-out errors"
        elif self.n_errors:
            why += f", which {self.n_errors} left-out errors do not contradict"
        if np.isnan(self.against_split):
            return f"{what}, {why}"
        gain = f"estimated interval score {self.against_split:.3f} times that of plain split"
        return f"{what}, {why} ({gain})"


def locality_rule(
    n: int, length_scale: float | None, shrinkage: float | None, *, statistic: str
) -> Locality:
    """The rule for N = n calibration points.

    Parameters
    ----------
    length_scale : distance at which n points still speak for one another, if known
    shrinkage : kept if given
    statistic : a quantile takes the K nearest
    """
    if length_scale is not None and n <= MOST_RADIAL and statistic != "quantile":
        kernel = RBF(rounded(length_scale), smoothing=SMOOTHING)
        return Locality(kernel, 0.0 if shrinkage is None else shrinkage, "rule")
    few_coordinates = length_scale is not None
    k = round(2 * np.sqrt(n)) if few_coordinates else 20
    usual = 0.0 if few_coordinates else np.clip(8 / np.sqrt(n), LEAST_SHRINKAGE, MOST_SHRINKAGE)
    # Half of a small set at most: with all of it, nothing is local.
    kernel = KNN(max(1, min(k, n // 2)))
    return Locality(kernel, rounded(usual) if shrinkage is None else shrinkage, "rule")


def rounded(value: float) -> float:
    """Three digits: more would mean nothing."""
    return float(f"{value:.3g}")

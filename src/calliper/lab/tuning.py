"""The tuning curve of a kernel: the criterion of each length scale, and which ones were chosen.

``JackknifeRescaled(TunedRBF())`` chooses a length scale l_m for every calibration row m from the
other points (paper, Algorithm S.2), by a criterion for each candidate and each point left out. The
curve is its average over the points, for inspection only: a single scale read off it depends on the
errors of all points, which the proof of coverage does not allow.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from calliper._types import FloatArray, IntArray
from calliper.calibrators import JackknifeRescaled
from calliper.exceptions import CalliperError, SmallCalibrationWarning, ZeroScaleWarning, unheard
from calliper.kernels import KNN, TunedKNN, TunedRBF
from calliper.rows import Rows

#: The paper's kernel where it does not tune one.
TEN_NEAREST = KNN(10)

#: What each criterion is, in words.
CRITERIA_IN_WORDS = {
    "mse": "mean squared error",
    "deviance": "gamma deviance",
    "mi": "mutual information",
}


__all__ = ["TuningCurve", "tuning_curve"]


@dataclass(frozen=True, eq=False)
class TuningCurve:
    """The criterion of each candidate, and how often it was chosen.

    Attributes
    ----------
    criterion : "mse", "deviance" or "mi"; smaller is better
    candidates : (G,) the length scales, ascending
    mean, deviation : (G,) of the criterion over the points (or folds) left out
        The deviation shows the effect of single points; a standard error is far larger.
    chosen : (N,) the length scale of every calibration row
    reference_name, reference_value : the kernel to compare with, and the mean of its criterion
        The value is ``None`` if there are too few points for its neighbours.
    what : the meaning of candidates, "length scale" or "number of neighbours"

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(size=(60, 1))
    >>> found = tuning_curve(Z, rng.exponential(size=60), Z_train=rng.uniform(size=(60, 1)))
    >>> found.criterion, found.candidates.shape
    ('mse', (30,))
    """

    criterion: str
    candidates: FloatArray
    mean: FloatArray
    deviation: FloatArray
    chosen: FloatArray
    reference_name: str | None
    reference_value: float | None
    what: str = "length scale"

    @property
    def counts(self) -> IntArray:
        """Number of points that chose each candidate, (G,)."""
        return np.asarray(np.equal.outer(self.candidates, self.chosen).sum(axis=1), dtype=np.intp)

    @property
    def favourite(self) -> int:
        """Index of the candidate that most points chose; of ties, the smoothest."""
        return len(self.candidates) - 1 - int(np.argmax(self.counts[::-1]))

    def describe(self) -> str:
        """The choice and its criterion in words."""
        n, size, best = len(self.chosen), len(self.candidates), self.favourite
        value, different = float(self.mean[best]), np.unique(self.chosen)
        chosen = f"{self.what.capitalize()} {self.candidates[best]:.4g} was chosen for"
        words = [f"{chosen} all {n} points."]
        if len(different) > 1:
            others = f"{len(different)} different ones were"
            span = f"from {different[0]:.4g} to {different[-1]:.4g}"
            words = [f"{chosen} {self.counts.max()} of {n} points; {others}, {span}."]
        if size == 1:
            words.append("It was the only candidate.")
        elif best == size - 1:
            words.append("It is the largest candidate: by this criterion, locality does not help.")
        elif best == 0:
            words.append("It is the smallest candidate: the grid, not the data, limits the search.")
        name, other = self.reference_name, self.reference_value
        compared = "" if name is None or other is None else f"; that of {name} is {other:.4g}"
        criterion = f"There the {CRITERIA_IN_WORDS[self.criterion]} is {value:.4g} on average"
        words.append(f"{criterion}{compared}.")
        if size > 1:
            words.append("As the best of several it is slightly optimistic.")
        if self.criterion == "mi":
            what = "The values are the objective of Algorithm S.2, not null-corrected estimates"
            how = "compare them with one another only; use mutual_information() to estimate"
            words.append(f"{what}: {how}.")
        return " ".join(words)


def tuning_curve(
    Z: Any,
    scores: Any,
    *,
    kernel: TunedRBF | TunedKNN | None = None,
    Z_train: Any = None,
    reference: KNN | None = TEN_NEAREST,
    random_state: Any = None,
) -> TuningCurve:
    """The criterion that ``JackknifeRescaled(kernel, random_state=random_state)`` minimises.

    Parameters
    ----------
    Z, scores : (N, d) features and (N,) non-negative scores of the calibration rows
    kernel : TunedRBF or TunedKNN, default ``TunedRBF()``
    Z_train : (n, d) training inputs, which span the grid; not needed if the kernel has its own
    reference : KNN or None, default KNN(10)
        Compared by the same criterion, leaving out single points even if the kernel has folds.

    Returns
    -------
    TuningCurve

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, Z_train = rng.uniform(size=(2, 200, 1))
    >>> errors = abs(rng.normal(size=200)) * Z[:, 0]
    >>> curve = tuning_curve(Z, errors, Z_train=Z_train, random_state=0)
    >>> bool(curve.mean.min() < curve.reference_value)
    True
    """
    kernel = TunedRBF() if kernel is None else kernel
    if not isinstance(kernel, TunedRBF | TunedKNN):
        raise TypeError(f"kernel must be TunedRBF(...) or TunedKNN(...); got {kernel!r}.")
    if kernel.chosen is not None:
        raise CalliperError("the kernel already has its length scales: omit chosen=.")
    if reference is not None and not isinstance(reference, KNN):
        raise TypeError(f"reference must be KNN(...) or None; got {reference!r}.")

    def fitted_scale(kernel: Any, ignore: type[Warning]) -> Any:
        method = JackknifeRescaled(kernel, random_state=random_state)
        with unheard(ignore):
            return method.fit_to(Rows.given(Z, scores=scores), training=Z_train).scale_

    scale = fitted_scale(kernel, SmallCalibrationWarning)  # an error here
    if not hasattr(scale, "criteria"):
        n = 1 if scale is None else len(scale.chosen)
        what = f"{n} calibration rows are too few to tune a length scale"
        raise CalliperError(f"{what}: JackknifeRescaled then uses the smoothest for all.")
    # Constant training inputs give the same candidate many times.
    candidates, first = np.unique(scale.candidates, return_index=True)
    criteria = scale.criteria[first]
    with np.errstate(invalid="ignore"):  # an infinite deviance has no deviation
        mean, deviation = criteria.mean(axis=1), criteria.std(axis=1)
    name, value = None, None
    if reference is not None:
        k = reference.n_neighbors
        name = f"{k} nearest neighbours"
        if k <= len(scale.chosen) - 2:  # as a grid of one K
            how: Any = {name: vars(kernel)[name] for name in ("n_components", "mi_neighbors")}
            grid = TunedKNN(kernel.criterion, n_neighbors=[k], metric=reference.metric, **how)
            # A zero scale does not matter, since this kernel is not used for intervals.
            value = float(fitted_scale(grid, ZeroScaleWarning).criteria.mean())
    what = "length scale" if isinstance(kernel, TunedRBF) else "number of neighbours"
    found = candidates, mean, deviation, scale.chosen
    return TuningCurve(kernel.criterion, *found, name, value, what)

"""Jackknife+-after-bootstrap: the Jackknife+ for the price of one bagged ensemble.

B models are trained on bootstraps of the rows. The ensemble *without* row i is made of those
models whose bootstrap happens to miss it, so nothing is fitted twice: the ends are those of
:mod:`calliper.refitting._base` with μ₋ᵢ = φ{μ_b : i ∉ S_b}.

Letters: μ_b → ``models_[b]``, i ∈ S_b → ``in_bag_[b, i]``, φ → ``aggregate``, R_i →
``residuals_``, B → ``len(models_)``.

Guarantee: 1−2α, marginal, for exchangeable rows, *if B is drawn at random*: B ~ Binomial(B̃,
(1 − 1/(n+1))ⁿ), as if bootstraps of n+1 points had been drawn and those with the new point thrown
away. So B is drawn, around ``n_bootstraps``; the chance of drawing no bootstrap at all is taken
off the bound. With ``draw_number=False`` exactly ``n_bootstraps`` are used: coverage is
practically the same, but nothing is proved. A row that is in every bootstrap is judged by no
model; it counts as infinitely wrong, which keeps the proof, and a warning counts such rows.

Reference: Kim, Xu, Barber (2020), "Predictive inference is free with the
jackknife+-after-bootstrap", arXiv:2002.09025, Theorem 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from calliper._kept import Array, Field, Number, Text
from calliper._types import BoolArray, FloatArray
from calliper._validation import at_least, check_new_rows, check_option
from calliper.declarations import About
from calliper.exceptions import InEveryBootstrapWarning, warn
from calliper.guarantees import jackknife_coverage
from calliper.quantile import conformal_rank
from calliper.refitting._base import NEARLY_CONSTANT, USUALLY, Fold, Predicted, RefittedRegressor
from calliper.scores import AbsoluteError, Score

AGGREGATES: dict[str, Any] = {"mean": np.mean, "median": np.median}


@dataclass(eq=False, repr=False)
class JackknifeAfterBootstrap(RefittedRegressor):
    """Intervals around a bagged ensemble, from its own bootstraps; guarantee 1 − 2α.

    Parameters
    ----------
    estimator : scikit-learn regressor; cloned and trained on each bootstrap
    n_bootstraps : int, default 100; number of bootstraps; the expected number if it is drawn
    aggregate : {"mean", "median"}, default "mean"; how the predictions of the models are combined
    draw_number : bool, default True; draw the number of bootstraps, as the proof needs
    random_state : int, RandomState or None; draws the bootstraps and their number
    n_jobs : int, optional; number of models trained at a time, as in joblib

    Attributes
    ----------
    models_ : the B models
    in_bag_ : (B, n) whether a bootstrap holds a row
    residuals_ : (n,) error of the ensemble without the row, rounded up; infinite if there is none

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> X = np.arange(99.0)[:, None]
    >>> tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    >>> method = JackknifeAfterBootstrap(tree, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> method.guaranteed_coverage(0.9)
    0.81
    """

    about = About(
        width=NEARLY_CONSTANT,
        guarantee="1−2α",
        when="as JackknifePlus, if the model is a bagged ensemble",
        cost="a fit for each bootstrap, and M predictions by each",
        needs="a model to refit",
    )
    trains_on_all = False

    estimator: Any
    n_bootstraps: int = 100
    _: KW_ONLY
    aggregate: str = "mean"
    draw_number: bool = True
    random_state: Any = None
    n_jobs: int | None = None

    keeps: ClassVar[Mapping[str, Field]] = {
        **RefittedRegressor.keeps,
        "fold_": Array("int32", ("n",), least=0, optional=True),
        "in_bag_": Array("bool", ("b", "n")),
        "n_bootstraps": Number(int, 1),
        "aggregate": Text(tuple(AGGREGATES)),
    }

    def _asked(self) -> tuple[Any, Score]:
        return self.estimator, AbsoluteError()

    def predict(self, X: Any) -> FloatArray:
        """The aggregate of all models, (m,)."""
        check_is_fitted(self)
        check_new_rows(self, X)
        return np.asarray(AGGREGATES[self.aggregate](self.predictions_of_models(X), axis=1))

    def _folds(self, X: Any, y: FloatArray, groups: Any) -> list[Fold]:
        """Rows of each bootstrap, drawn with replacement, and those that it misses."""
        check_option(self.aggregate, [*AGGREGATES], "aggregate")
        count, n = at_least(self.n_bootstraps, 1, "n_bootstraps"), len(y)
        rng = check_random_state(self.random_state)
        if self.draw_number:
            trials, chance = self._binomial(n)
            count = max(1, int(rng.binomial(trials, chance)))
        drawn = [rng.randint(0, n, n) for _ in range(count)]
        return [(rows, np.setdiff1d(np.arange(n), rows)) for rows in drawn]

    def _binomial(self, n: int) -> tuple[int, float]:
        """B̃ and the chance that a bootstrap of n from n+1 points misses the new one."""
        chance = (1 - 1 / (n + 1)) ** n
        return round(self.n_bootstraps / chance), chance

    def _measure(self, y: FloatArray, parts: Sequence[Predicted], score: Score) -> FloatArray:
        """R_i from the models that miss row i, and one warning for rows that none misses."""
        per_model = np.full((len(y), len(parts)), np.nan)
        self.in_bag_: BoolArray = np.ones((len(parts), len(y)), dtype=bool)
        for b, (rows, values) in enumerate(parts):
            per_model[rows, b], self.in_bag_[b, rows] = values, False
        judged = ~self.in_bag_.all(axis=0)
        residuals = np.full(len(y), np.inf)
        average = np.nanmean if self.aggregate == "mean" else np.nanmedian
        known = per_model[judged]
        residuals[judged] = np.abs(y[judged] - average(known, axis=1)) + averaging_error(known)
        if not judged.all():
            warn(
                f"{np.count_nonzero(~judged)} of {len(y)} rows are in all {len(per_model.T)} "
                "bootstrap samples: no model left them out, so their errors count as infinite. "
                "Intervals are valid but may be infinite: use more bootstrap samples.",
                InEveryBootstrapWarning,
            )
        return residuals

    def _left_out(self, per_model: FloatArray) -> FloatArray:
        """μ₋ᵢ(x), (m, n), from predictions (m, B); 0 where every model saw row i."""
        unseen = ~self.in_bag_
        if self.aggregate == "mean":
            weights: FloatArray = unseen / np.maximum(unseen.sum(axis=0), 1)
            return per_model @ weights
        left_out = np.zeros((len(per_model), unseen.shape[1]))
        for i in np.flatnonzero(unseen.any(axis=0)):
            left_out[:, i] = np.median(per_model[:, unseen[:, i]], axis=1)
        return left_out

    def _spread(self, per_model: FloatArray) -> FloatArray:
        return self.residuals_ + averaging_error(per_model)[:, None]

    def _proved(self, coverage: float, n: int) -> float:
        if conformal_rank(coverage, n) > n:
            return 1.0
        if not self.draw_number:
            return 0.0
        trials, chance = self._binomial(n)
        return max(0.0, jackknife_coverage(coverage, n) - (1 - chance) ** trials)

    def _remark(self, coverage: float) -> str:
        if self.draw_number:
            return f"{USUALLY}."
        proved = jackknife_coverage(coverage, len(self.residuals_))
        return (
            f"The proof of {proved:.4g} needs a number of bootstraps drawn at random "
            f"(draw_number=True); with the {len(self.models_)} chosen beforehand it holds "
            f"approximately. {USUALLY}."
        )


def averaging_error(per_model: FloatArray) -> FloatArray:
    """What an average of some of B predictions may be wrong by through rounding, (m,).

    A sum of B products is wrong by at most (B + 2)u times the sum of their sizes, with u half the
    spacing of numbers at 1; a median of two by less. NaN stands for a model that is not asked.
    """
    n_models = per_model.shape[1]
    return np.asarray((n_models + 3) * 2.0**-53 * np.nanmax(np.abs(per_model), axis=1))

"""Covariate shift: new inputs have a different distribution, targets given inputs do not.

Calibration inputs are drawn from P and new ones from Q. With weights w(x) ∝ dQ/dP, a new point is
exchangeable with the calibration rows *by weight*: a threshold is reached by the share of
weights, not of points, and the new row's own weight counts as infinite (``quantile.Shares``).

Weights that are not known are estimated: a classifier tells new inputs from old ones, and its odds,
corrected for the numbers of both, are the density ratio. Wrong weights ŵ cost at most
½ E|ŵ/Eŵ − w| of coverage, the mean over P.

References: Tibshirani, Barber, Candès, Ramdas (2019), "Conformal prediction under covariate shift",
arXiv:1904.06019. Lei, Candès (2021), arXiv:2006.06138 (the price of estimated weights).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from calliper._kept import Field, Inline, Keeps, NameList, Number, Plain
from calliper._trees import BoostedSum
from calliper._types import FloatArray
from calliper._validation import check_level, check_vector, counted, n_rows, shape_of
from calliper.exceptions import CalliperError, ShiftWarning, warn
from calliper.quantile import TINY, Shares, effective_size, required_calibration_size
from calliper.rows import stacked

__all__ = ["LikelihoodRatio", "Recency", "ShiftReport"]

#: Folds of the default classifier.
N_FOLDS = 5
#: From how many rows mean weights are compared. Without a shift, estimated weights of new rows may
#: be some 8 % lower; below the share ``LESS``, by so many standard errors, is not chance.
FEWEST_TO_COMPARE, LESS, SURELY = 30, 0.8, 5.0


@dataclass(frozen=True, eq=False)
class ShiftTrees(Keeps):
    """The default classifier of ``LikelihoodRatio`` as bare trees, those of each fold."""

    sums: Annotated[list[BoostedSum], Inline(BoostedSum, several=True)]
    names: Annotated[list[Any], NameList()]  # of the columns of a frame, none for arrays

    @classmethod
    def of(cls, classifier: Any) -> Self | None:
        """From a fitted ``CalibratedClassifierCV``; None if it splits by categories."""
        found: list[Any] = []
        for each in classifier.calibrated_classifiers_:
            (sigmoid,) = each.calibrators
            found.append(BoostedSum.of(each.estimator, float(sigmoid.a_), float(sigmoid.b_)))
        names = vars(classifier).get("feature_names_in_", ())
        return None if None in found else cls(found, [*names])

    def predict_proba(self, X: Any) -> FloatArray:
        """(m, 2) probabilities that a row is old, and new."""
        if self.names and hasattr(X, "columns") and [*X.columns] != self.names:
            raise CalliperError(f"inputs must have the columns {self.names}, in this order.")
        rows = np.asarray(X, dtype=np.float64)
        now = sum(each.probability(rows) for each in self.sums) / len(self.sums)
        return np.stack([1 - now, now], axis=1)


class LikelihoodRatio(BaseEstimator):  # type: ignore[misc]
    """A function that gives rows weights, learnt from unlabelled old and new rows.

    Parameters
    ----------
    classifier : classifier with ``predict_proba``, optional
        By default boosted trees with a sigmoid over 5 folds, for a shift of any shape. If it is
        smooth, logistic regression on standardised inputs is more accurate.
    random_state : seed of the default classifier

    Attributes
    ----------
    classifier_ : the fitted classifier; its second class is the new rows
    ratio_ : number of old rows over number of new rows

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> before, now = rng.normal(size=(2000, 1)), 1 + rng.normal(size=(1000, 1))
    >>> weights = LikelihoodRatio(LogisticRegression()).fit(before, now)
    >>> weights([[-1.0], [0.5], [2.0]]).round(1)  # e^(x − 1/2)
    array([0.2, 1. , 4.6])
    """

    keeps: ClassVar[Mapping[str, Field]] = {
        "trees": Inline(ShiftTrees, optional=True),
        "classifier_": Plain("classifier"),
        "ratio_": Number(least=TINY),
    }

    def for_file(self) -> dict[str, Any]:
        """What a file holds: trees of the default classifier; another one is passed to ``load``."""
        made = self.classifier_
        if self.classifier is None and not isinstance(made, ShiftTrees):
            made = ShiftTrees.of(made) or made
        trees, others = (made, None) if isinstance(made, ShiftTrees) else (None, made)
        return {"trees": trees, "classifier_": others, "ratio_": self.ratio_}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the trees, or the classifier that was passed."""
        self.ratio_, self.classifier_ = state["ratio_"], state["trees"] or state["classifier_"]
        trees, usual = state["trees"], self.classifier is None  # usual: with splits by categories
        needs = "calibrated_classifiers_" if usual and trees is None else "predict_proba"
        if not hasattr(self.classifier_, needs) or (trees is not None and not trees.sums):
            raise CalliperError("a density ratio needs trees or a classifier.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ratio_")

    def __init__(self, classifier: Any = None, *, random_state: Any = None) -> None:
        self.classifier, self.random_state = classifier, random_state

    def fit(self, X_before: Any, X_now: Any) -> Self:
        """Learn to tell rows like the new ones from rows like the calibration rows.

        The latter, (n, d), must not be calibration rows themselves: take training inputs.
        """
        if self.classifier is not None and not hasattr(self.classifier, "predict_proba"):
            raise TypeError(f"classifier must have predict_proba; got {self.classifier!r}.")
        (before, d_before), (now, d_now) = map(_columns, (X_before, X_now))
        named = before is not None and now is not None
        if (set(before) != set(now)) if named else (d_before != d_now):
            what = f"X_now must have the same columns as X_before ({before or d_before})"
            what += f", but has {now or d_now}"
            raise CalliperError(f"{what}: call fit(X_train, X_new), without targets.")
        X_now = X_now[before] if named else X_now
        classifier = None if self.classifier is None else clone(self.classifier)
        if classifier is None:
            from sklearn.calibration import CalibratedClassifierCV
            from sklearn.ensemble import HistGradientBoostingClassifier

            trees = HistGradientBoostingClassifier(
                max_iter=50, max_leaf_nodes=8, random_state=self.random_state
            )
            classifier = CalibratedClassifierCV(trees, method="sigmoid", cv=N_FOLDS)
        sizes = n_rows(X_before), n_rows(X_now)
        if min(sizes) < (least := N_FOLDS if self.classifier is None else 1):
            what = f"X_before and X_now need at least {least} rows each"
            raise CalliperError(f"{what}; got {sizes[0]} and {sizes[1]}.")
        try:
            rows, is_now = stacked(X_before, X_now), np.repeat([0, 1], sizes)
            self.classifier_ = classifier.fit(rows, is_now)
        except (TypeError, ValueError) as error:
            how = "Pass numbers, columns of dtype category, or classifier= for these rows."
            why = str(error).rstrip(".")
            raise CalliperError(f"the classifier cannot use these rows: {why}. {how}") from error
        self.ratio_ = sizes[0] / sizes[1]
        if self.classifier is None and len(np.unique(self(rows))) == 2:  # one split says it all
            warn(
                "One column tells every row of X_now from every row of X_before, so weights cannot "
                "correct the shift. Is it empty, or in another unit, in one of them?",
                ShiftWarning,
            )
        return self

    def __call__(self, X: Any) -> FloatArray:
        """The weight of each row, (m,)."""
        check_is_fitted(self, msg="This %(name)s is not fitted: call fit(X_train, X_new) first.")
        now: FloatArray = np.asarray(self.classifier_.predict_proba(X), dtype=np.float64)[:, 1]
        if (now == 1).any():
            raise CalliperError(
                f"the classifier is certain (probability 1) that {int((now == 1).sum())} of "
                f"{len(now)} rows are new, so their weights would be infinite: calibrate it "
                "(CalibratedClassifierCV)."
            )
        return np.asarray(self.ratio_ * now / (1 - now))


def _columns(X: Any) -> tuple[Any, int]:
    """The names of the columns of a frame, None of anything else; and how many there are."""
    names, shape = getattr(X, "columns", None), shape_of(X) or np.shape(X)
    n_columns = int(np.prod(shape[1:])) if len(shape) > 1 else 0
    return None if names is None else [*names], n_columns


@dataclass(frozen=True)
class Recency:
    """Weights of rows in order of time, halved for every ``half_life`` rows of age.

    With weights w_i ≤ 1 that are fixed beforehand and 1 for a new row, coverage is at least
    1 − α − Σ w_i d_i/(Σw + 1), where d_i is the total variation distance between the rows and the
    same rows with row i and the new one exchanged. Slow drift costs little; but the sum is unknown,
    so nothing is guaranteed unless rows are exchangeable.

    Reference: Barber, Candès, Ramdas, Tibshirani (2023), "Conformal prediction beyond
    exchangeability", Annals of Statistics 51.

    Parameters
    ----------
    half_life : in rows, of which about 1.44 half-lives count; a level of 0.9 needs 9

    Examples
    --------
    >>> Recency(half_life=2).of_age(4)
    array([0.25      , 0.35355339, 0.5       , 0.70710678])
    """

    half_life: float

    def __call__(self, X: Any) -> FloatArray:
        """New rows weigh 1, (m,)."""
        return np.ones(n_rows(X))

    def of_age(self, n: int) -> FloatArray:
        """Weights of n rows in order of time, the last of age 1: (n,)."""
        if not isinstance(self.half_life, Real) or not 0 < float(self.half_life) < np.inf:
            raise CalliperError(f"half_life must be a positive number; got {self.half_life!r}.")
        return np.asarray(2.0 ** (-np.arange(n, 0, -1) / float(self.half_life)))

    def explain(self) -> str:
        """Why there is no guarantee."""
        self.of_age(0)  # refuses what is no number
        return (
            f"A row's weight halves with every {self.half_life:g} later rows. Drift over the rows "
            "of largest weight lowers coverage by an unknown amount."
        )


@dataclass(frozen=True)
class ShiftReport:
    """How much of a calibration set remains effective after weighting.

    Attributes
    ----------
    coverage : the level asked for
    n_calibration : N
    n_effective : (Σw)²/Σw², the equivalent number of points of equal weight
    largest : the largest weight of a new row, in units of the sum of calibration weights
    infinite : share of new rows whose own weight alone makes their interval infinite

    Examples
    --------
    >>> round(ShiftReport.of(np.linspace(1, 2, 200), np.ones(3)).n_effective)
    193
    """

    coverage: float
    n_calibration: int
    n_effective: float
    largest: float
    infinite: float

    @classmethod
    def of(cls, calibration: Any, new: Any, coverage: float = 0.9) -> Self:
        """From weights of calibration rows, (N,), and of new rows, (m,)."""
        shares = as_shares(check_weights(calibration), check_weights(new, positive=True))
        total = shares.reached[-1]
        return cls(
            check_level(coverage),
            len(shares.calibration),
            effective_size(shares.calibration),
            float(shares.new.max() / total),
            float((total < shares.needed(coverage)).mean()),
        )

    def describe(self) -> str:
        """The numbers in words."""
        return (
            f"With these weights, {self.n_calibration:,} calibration rows are worth "
            f"{self.n_effective:.1f} rows of equal weight; the largest weight of a new row is "
            f"{100 * self.largest:.3g} % of their sum, and {100 * self.infinite:.3g} % of the new "
            f"rows have too much weight for a finite interval at coverage {self.coverage:g}."
        )

    def warn_if_poor(self) -> None:
        """Warn if weights leave too few effective rows for the level."""
        if self.infinite or self.n_effective < required_calibration_size(self.coverage):
            warn(
                f"{self.describe()} Intervals are valid but uninformative; calibrate on rows more "
                f"like the new ones.",
                ShiftWarning,
            )


def warn_if_reversed(shares: Shares) -> None:
    """Warn if new rows weigh clearly less than calibration rows: by dQ/dP they weigh more."""
    old, new = shares.calibration, shares.new
    gap = LESS * old.mean() - new.mean()
    if min(len(old), len(new)) < FEWEST_TO_COMPARE or not gap > 0:
        return
    if gap > SURELY * np.hypot(*(each.std() / np.sqrt(len(each)) for each in (old, new))):
        warn(
            f"On average, new rows have {100 * new.mean() / old.mean():.2g} % of the weight of "
            "calibration rows. Unless these are only some of the new rows, check the weights: they "
            "should be larger where new rows are more frequent (LikelihoodRatio.fit takes X_train, "
            "then X_new).",
            ShiftWarning,
        )


def check_weights(
    weights: Any, *, n: int | None = None, positive: bool = False, some: bool = True
) -> FloatArray:
    """Finite and non-negative, one for each row; positive for new rows; not all zero if any."""
    vector = check_vector(weights, "weights", n=n)
    wrong = np.flatnonzero(vector <= 0 if positive else vector < 0)
    if len(wrong):
        raise CalliperError(
            f"weights must be {'positive' if positive else '0 or more'}, but "
            f"{counted(wrong, vector, '0 or negative' if positive else 'negative')}."
        )
    if some and not vector.any():
        raise CalliperError(f"all {len(vector)} weights are 0, so no calibration rows are left.")
    return vector


def as_shares(calibration: FloatArray, new: FloatArray) -> Shares:
    """Checked weights in units of the largest calibration weight."""
    with np.errstate(over="ignore"):
        shares = new / calibration.max()
    # A weight beyond the largest number counts as that number, which outweighs all others as well.
    return Shares(calibration / calibration.max(), np.minimum(shares, np.finfo(np.float64).max))

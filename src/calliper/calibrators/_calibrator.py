"""The frame of all methods: features and scores in, a radius at any level and a guarantee out.

A method is a subclass of :class:`Calibrator` that writes at most three things, as in its paper:

    _learn(rows)                learns from checked calibration rows
    _radius(Z, levels, shares)  the radius at checked rows, (m, L); or ``_local_scale(Z)``, by which
                                the thresholds that ``_rescale`` kept in ``_learn`` are multiplied
    _proved(level)              the marginal coverage that is proved, if not that of split conformal

and declares the attributes that :class:`Calibrator` lists. Everything else happens here, once:
checking input, forgetting an earlier fit, mapping levels to ranks, warning, rounding outward.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from calliper import _validation as valid
from calliper import guarantees, quantile
from calliper._blocks import map_row_blocks
from calliper._handlers import EngineRows, handler_of_tensor
from calliper._kept import Array, Field, NameList, Number, restore_columns
from calliper._notebook import card
from calliper._types import Coverage, FloatArray, IntArray, Levels
from calliper._validation import as_array
from calliper.declarations import About, Uses
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError, SharedRowsWarning, SmallCalibrationWarning, warn
from calliper.guarantees import Guarantee
from calliper.kernels import Kernel, as_kernel, check_length_scale, rescale
from calliper.quantile import Shares
from calliper.rows import Rows, same_rows
from calliper.shift import ShiftReport, as_shares, check_weights, warn_if_reversed

#: What a file keeps of rows: calibration, training and left-out ones.
ROWS: dict[str, Field] = {
    "Z": Array("float64", ("M", "d")),
    "scores": Array("float64", ("N",)),
    "magnitudes": Array("float64", ("N",), least=0, optional=True),
    "signs": Array("int8", ("N",), least=-1, most=1, optional=True, becomes="float64"),
    "weights": Array("float64", ("N",), least=0, optional=True),
    "Z_train": Array("float64", ("n", "d"), optional=True),
    "scores_train": Array("float64", ("n",), optional=True),
    "targets_train": Array("float64", ("n",), optional=True),
    "Z_left_out": Array("float64", ("l", "d"), optional=True),
    "scores_left_out": Array("float64", ("l",), optional=True),
    "length": Number(least=0, optional=True),  # ``length_scale``, which some have as a parameter
    "levels": Array("float64", ("L",), least=5e-324, most=1 - 2**-53),
    "names": NameList(),
}
#: Most training points that a method tries its settings on, where that takes all pairs.
MOST_POINTS = 2000
#: How many of the rows to add are found among known ones, beyond chance; scores that are equal.
LEAST_KNOWN, EQUAL = 5, 1e-9
#: Levels that are remembered, since a controller asks for another one at each step.
MOST_LEVELS = 1000
#: Methods by their names on the command line.
_METHODS: "dict[str, type[Calibrator]]" = {}


def methods() -> "dict[str, type[Calibrator]]":
    """Every method that has a name on the command line, by that name, the most useful first."""
    from calliper import calibrators

    ours = [getattr(calibrators, name).about.cli for name in calibrators.__all__]  # loads them
    return {name: _METHODS[name] for name in (*ours, *sorted(_METHODS)) if name is not None}


class Calibrator(valid.MadeByCoverage, BaseEstimator, ABC):  # type: ignore[misc]
    """A method: learns from features and scores, gives a radius for any level.

    Attributes
    ----------
    uses : what ``fit`` takes beyond features and scores, and what it needs
    about : how people choose it; its name on the command line, if it has one
    judges_nearness : whether the radius depends on the features
    takes_inputs : whether rows come as they were passed, frames included; no distances are needed
    takes_any_score : whether scores may be negative
    by_rank : whether N points reach a level if and only if its rank ⌈(1−α)(N+1)⌉ is at most N
    has_law : whether coverage given the calibration set has the Beta law
    averages : what its guarantee averages over besides draws of the calibration rows
    has_distribution : whether there is a predictive distribution, if ``fit`` is given signs
    through_kernel : whether features go to the kernel alone, whose engine may hold them
    promises : whether anything is known about its coverage
    kernel : which points count as neighbours, if the method has this parameter
    """

    uses: Any = Uses()
    about: Any = About(width="")
    judges_nearness = True
    takes_inputs = False
    takes_any_score = False
    by_rank = True
    has_law = False
    averages = "all inputs"
    has_distribution = False
    through_kernel = False
    promises = True
    kernel: Any = None

    #: Whether the radius is exactly one of the scores, or already rounded outward.
    _rounded = False
    #: What a file keeps besides parameters: rows, and what ``learns`` names.
    keeps: ClassVar[Mapping[str, Field]] = ROWS
    #: What a method learns, draws, or finds at great expense; ``_once`` has it back from a file.
    learns: ClassVar[Mapping[str, Field]] = {}
    _known: Mapping[str, Any] = {}
    #: What a kernel made of the rows, which names what a file should keep of it.
    _of_kernel: Any = None
    #: While ``extend`` learns: the method as it was, and whether none of its rows was dropped.
    _before: Any = None
    _grows = False

    n_calibration_: int
    #: Levels that a radius was asked for since ``fit``, the first of them.
    levels_asked_: set[float]
    #: What ``fit`` was given: calibration, training and left-out rows, and a length scale.
    _rows: Any = None
    _training: Any = None
    _left_out: Any = None
    _length_scale: float | None = None
    #: What ``_rescale`` keeps: ascending ratios, the same with signs, and weights in that order.
    rescaled_scores_: FloatArray
    _signed: Any
    _signed_weights: Any
    #: Weights of the calibration rows, in the order in which the method keeps them, or None.
    weights_: FloatArray | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "keeps" not in vars(cls):
            cls.keeps = {**ROWS, **cls.learns}
        if cls.about.cli is not None:
            _METHODS.setdefault(cls.about.cli, cls)

    @abstractmethod
    def _learn(self, rows: Rows) -> None:
        """Learn from the calibration rows; ``_training`` and its like hold what else is known."""

    def _radius(self, Z: FloatArray, levels: list[float], shares: Shares | None) -> FloatArray:
        """The radius at each row and level, (m, L); with weights, by ``shares`` of them."""
        threshold = quantile.conformal_thresholds(self.rescaled_scores_, levels, shares)
        return quantile.rescaled_back(self._local_scale(Z)[:, None], threshold)

    def _proved(self, level: float) -> float:
        """The marginal coverage that is proved at one level."""
        return guarantees.conformal_coverage(level, self.n_calibration_)

    def _note(self, level: float, proved: float) -> str | None:
        """What replaces the usual guarantee, as the end of a sentence."""
        return None

    def _check_parameters(self) -> None:
        """Refuse invalid parameters; called before training rows are looked at."""
        return

    def fit(
        self,
        Z: Any,
        scores: Any,
        *,
        magnitudes: Any = None,
        signs: Any = None,
        weights: Any = None,
        groups: Any = None,
        training: Any = None,
        left_out: Any = None,
        length_scale: float | None = None,
    ) -> Self:
        """Learn from the calibration rows; what a method does not use (``uses``) is refused.

        Parameters
        ----------
        Z : (N, d) features in which nearness is judged
        scores : (N,) errors of the calibration rows
        magnitudes : (N,), default ``scores``
            What local scales are made of. One-sided errors are rescaled by absolute errors.
        signs : (N,), optional
            Signs of the errors, for a distribution.
        weights : (N,), optional
            How much more often a row's inputs occur among new rows, up to a constant; see
            ``docs/shifted-inputs.md``.
        groups : (N,), column name or function of the rows, optional
            The group of each point, for :class:`Grouped`.
        training : (Z, scores), (Z, scores, targets) or Rows, optional
            Training inputs, errors and targets; none of them calibration rows.
        left_out : (Z, scores) or Rows, optional
            Training rows and the sizes of their out-of-fold or out-of-bag errors.
        length_scale : float, optional
            Distance in ``Z`` at which N points still inform one another, if the space has a unit.
        """
        apart = {"training": training, "left_out": left_out, "length_scale": length_scale}
        self._refuse_unused(magnitudes=magnitudes, signs=signs, **apart)
        sizes = {"scores": scores, "magnitudes": magnitudes, "signs": signs}
        return self.fit_to(Rows.given(Z, **sizes, weights=weights, groups=groups), **apart)

    def fit_to(
        self, rows: Rows, *, training: Any = None, left_out: Any = None, length_scale: Any = None
    ) -> Self:
        """As :meth:`fit`; what the method does not use is ignored, except weights and groups."""
        self._refuse_unused(weights=rows.weights, groups=rows.groups)
        for name in [name for name in vars(self) if name.endswith("_") and name[0] != "_"]:
            delattr(self, name)  # so that a fit that fails leaves nothing fitted
        uses, rows = self.uses, self._checked(rows, first=True)
        self._check_parameters()
        for name, given in (("training", training), ("left_out", left_out)):
            used = given if name in uses else None
            setattr(self, f"_{name}", self._checked_apart(name, used, rows.Z, uses))
        length = length_scale if "length_scale" in uses else None
        self._length_scale = None if length is None else check_length_scale(length)
        self._relearn(rows)
        return self

    def extend(
        self,
        Z: Any,
        scores: Any,
        *,
        window: int | None = None,
        magnitudes: Any = None,
        signs: Any = None,
        weights: Any = None,
        groups: Any = None,
        length_scale: float | None = None,
    ) -> Self:
        """Add calibration rows: the result is bit for bit that of a new fit to all of them.

        Parameters
        ----------
        Z, scores : (m, d) and (m,), points that come after the present ones
        window : int, optional
            Keep only this many points, the latest.
        magnitudes, signs, weights, groups : (m,), of the new points, if ``fit`` was given them
        length_scale : float, optional
            For the number of points that there are now. Training and left-out rows stay.
        """
        self._refuse_unused(magnitudes=magnitudes, signs=signs, length_scale=length_scale)
        sizes = {"scores": scores, "magnitudes": magnitudes, "signs": signs}
        rows = Rows.given(Z, **sizes, weights=weights, groups=groups)
        return self.extend_by(rows, window=window, length_scale=length_scale)

    def extend_by(
        self, rows: Rows, *, window: int | None = None, length_scale: float | None = None
    ) -> Self:
        """As :meth:`extend`; unused sizes, signs and length scales are ignored."""
        check_is_fitted(self)
        self._refuse_unused(weights=rows.weights, groups=rows.groups)
        rows = self._rows.join(self._checked(rows, first=False))
        n = len(rows) if window is None else min(valid.at_least(window, 1, "window"), len(rows))
        grown = copy(self)  # as it was, should anything be refused
        if length_scale is not None and "length_scale" in self.uses:
            grown._length_scale = check_length_scale(length_scale)
        grown._check_parameters()
        grown._before, grown._grows = self, n == len(rows)
        grown._relearn(rows.latest(n))
        del grown._before, grown._grows
        self.__dict__.update(vars(grown))
        return self

    def aged(self, factor: float) -> Self:
        """A copy whose points' weights are multiplied by a factor."""
        made = copy(self)
        made._rows = replace(self._rows, weights=self._rows.weights * factor)
        return made

    def warn_if_known(self, scores: Any) -> None:
        """Warn if rows to be added seem to be there already, judging by their scores."""
        known, new = np.unique(self._rows.scores), np.unique(scores)
        n_known, n_new = len(self._rows), len(scores)
        if len(known) < 0.9 * n_known:
            return
        near = EQUAL * np.abs(new)
        index = np.minimum(np.searchsorted(known, new - near), len(known) - 1)
        n = int(np.count_nonzero(np.abs(known[index] - new) <= near))
        # Chance lets two rows agree as often as within either set, and by closeness.
        ties = n_known - len(known) + n_new - len(new)
        chance = (2 * ties / (n_known**2 + n_new**2) + EQUAL) * n_known * n_new
        if n >= LEAST_KNOWN + 2 * int(chance):
            warn(
                f"{n:,} of the {n_new:,} new rows have the same errors as rows already used for "
                "calibration or learning. If they are duplicates, the guarantee no longer holds: "
                "pass only rows that have not been used before.",
                SharedRowsWarning,
            )

    def _relearn(self, rows: Rows) -> None:
        """Keep checked calibration rows (not their features if unused), and learn from them."""
        self.weights_, self.levels_asked_ = rows.weights, set()
        self._rows = rows if self.judges_nearness else replace(rows, Z=rows.Z[:0].copy())
        self._learn(rows)
        self.n_calibration_ = len(rows.scores)

    def _refuse_unused(self, **given: Any) -> None:
        for name, value in given.items():
            if value is not None and name not in self.uses:
                hint = takers_of_weights() if name == "weights" else f"{self!r} does not use it"
                raise TypeError(f"{type(self).__name__} does not support {name}: {hint}.")

    def _checked(self, rows: Rows, *, first: bool) -> Rows:
        """Calibration rows, the ``first`` ones or further ones, with what is used of each."""
        if first:
            Z, any_sign = self._as_rows(rows.Z, None), self.takes_any_score
            Z, scores = valid.check_calibration(self, Z, rows.scores, any_sign=any_sign)
        else:
            Z = self._check_new(rows.Z)
            how: Any = {"n": len(Z), "beside": Z, "any_sign": self.takes_any_score}
            scores = valid.check_sizes(rows.scores, "scores", **how)
        n, sizes, signs, weights, uses = len(scores), scores, None, None, self.uses
        if rows.magnitudes is not None and "magnitudes" in uses:
            sizes = valid.check_sizes(rows.magnitudes, "magnitudes", n=n, beside=Z)
        if rows.signs is not None and "signs" in uses:
            signs = valid.check_signs(rows.signs, scores, Z)
        if rows.weights is not None:
            weights = check_weights(as_array(rows.weights, "weights", Z), n=n, some=first)
        return Rows(Z, scores, sizes, signs, weights)

    def _checked_apart(self, name: str, given: Any, Z: Any, uses: Uses) -> Rows | None:
        """Training or left-out rows, with what the method uses of them, checked."""
        rows = Rows.of(given)
        if name == "training" and (uses.learns or (uses.needs and self.kernel is None)):
            uses.refuse_missing(rows, type(self).__name__)
        if rows is None:
            return None
        label = f"Z of {name}"
        features = valid.check_features(as_array(rows.Z, label, Z), label)
        if features.shape[1] != Z.shape[1]:
            raise CalliperError(f"{label} has {features.shape[1]} columns, Z has {Z.shape[1]}.")
        scores, targets, how = rows.scores, rows.targets, {"n": len(features), "beside": Z}
        if scores is not None and (name == "left_out" or "errors" in uses):
            how["any_sign"] = self.takes_any_score
            scores = valid.check_sizes(scores, f"scores of {name}", **how)
        if targets is not None and "targets" in uses:
            targets = valid.check_sizes(targets, f"targets of {name}", **how | {"any_sign": True})
        return Rows(features, scores, targets=targets)

    def _as_rows(self, Z: Any, held: Any) -> Any:
        """Features to be checked; ``held`` are the calibration rows."""
        if not self.judges_nearness:
            return valid.numbers_or_zeros(Z)
        handler = None if isinstance(Z, np.ndarray) else handler_of_tensor(Z)
        return Z if handler is None else handler.rows_of(Z, self, held)

    def _check_new(self, Z: Any) -> Any:
        """Features of new rows, checked, on the device of the calibration rows."""
        held, rows = self._rows.Z, self._as_rows(Z, self._rows.Z)
        if isinstance(held, EngineRows):
            held.check_beside(rows, self.kernel)
        return valid.check_new_features(self, rows)

    def _once(self, name: str, learn: Callable[[], Any]) -> Any:
        """What a file holds under this name, else what ``learn`` finds."""
        return self._known[name] if name in self._known else learn()

    def _sampled(self, n: int, rng: np.random.RandomState) -> IntArray:
        """Numbers of n training points, or of all if there are fewer, drawn at random."""
        n_all = len(self._training.Z)
        drawn: IntArray = self._once("sample_", lambda: rng.permutation(n_all)[:n])
        if not len(np.unique(drawn)) == len(drawn) == min(n, n_all):
            raise CalliperError(f"{self!r} did not draw the {len(drawn)} stored training rows.")
        return drawn

    @property
    def _found_before(self) -> Mapping[str, Any]:
        """What a file holds, by the names that kernels give it."""
        return {name.rstrip("_"): kept for name, kept in self._known.items()}

    def for_file(self) -> dict[str, Any]:
        """What a file holds of a fitted method, by the names of ``keeps``."""
        rows, uses, none = self._rows, self.uses, Rows(None)
        train, left_out = self._training or none, self._left_out or none
        same = np.array_equal(rows.magnitudes, rows.scores)
        found = {} if self._of_kernel is None else self._of_kernel.for_file()
        learnt = {**{f"{name}_": each for name, each in found.items()}, **vars(self)}
        return {
            **{name: getattr(rows, name) for name in ("Z", "scores", "signs", "weights")},
            "magnitudes": None if same else rows.magnitudes,
            "Z_train": train.Z,
            "scores_train": train.scores if "errors" in uses else None,
            "targets_train": train.targets if "targets" in uses else None,
            "Z_left_out": left_out.Z,
            "scores_left_out": left_out.scores,
            "length": self._length_scale,
            "levels": np.array(sorted(self.levels_asked_)),
            "names": list(vars(self).get("feature_names_in_", ())),
            **{name: learnt.get(name) for name in self.learns},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Fit to the rows of a file, with what was learnt before."""
        Z, scores = state["Z"], state["scores"]
        train = Rows(state["Z_train"], state["scores_train"], targets=state["targets_train"])
        left_out = Rows(state["Z_left_out"], state["scores_left_out"])
        given = {"training": train, "left_out": left_out}
        apart: Any = {name: rows for name, rows in given.items() if rows.Z is not None}
        of_each = [state[name] for name in ("magnitudes", "signs", "weights")]
        if not self.judges_nearness:  # rows are only counted
            Z = np.zeros((len(scores), 1))
        self._known = {name: state[name] for name in self.learns}
        try:
            self.fit_to(Rows(Z, scores, *of_each), **apart, length_scale=state["length"])
        finally:
            del self._known
        if not self.judges_nearness:
            Z = state["Z"][:0]
            self.n_features_in_, self._rows = Z.shape[1], replace(self._rows, Z=Z)
        self.levels_asked_ = set(state["levels"].tolist())
        restore_columns(self, {"n_columns": self.n_features_in_, "names": state["names"]})

    def predict_radius(
        self,
        Z: Any,
        coverage: Coverage = 0.9,
        *,
        confidence: float | None = None,
        weights: Any = None,
        groups: Any = None,
    ) -> FloatArray:
        """The radius at each row: (m,), or (m, L) for a list of L levels.

        With a ``confidence``, methods that have a law reach the coverage for this particular
        calibration set, in at least that share of draws of it. ``weights``, (m,), are those of the
        rows, if ``fit`` was given weights of the calibration rows; ``groups``, (m,) labels, a
        column name or a function of the rows, are for :class:`Grouped`.
        """
        check_is_fitted(self)
        if weights is not None or groups is not None:
            weights, groups = same_rows(Z, "Z", weights=weights, groups=groups)
        new = Rows(Z, weights=weights, groups=groups)
        found = self._radii(new, valid.check_levels(coverage), confidence)
        return valid.like_coverage(found, coverage)

    def _radii(self, new: Rows, levels: Levels, confidence: Any) -> FloatArray:
        """The radius at each row and level, (m, L), rounded outward; infinite out of reach."""
        self._refuse_unused(groups=new.groups)
        Z, n = self._check_new(new.Z), self.n_calibration_
        reached, shares = list(range(len(levels))), self._shares(new.weights, len(Z), levels)
        if len(self.levels_asked_) < MOST_LEVELS:
            self.levels_asked_.update(levels)
        if confidence is not None:
            levels = self._confident(levels, confidence, warned=True)
        if self.by_rank and shares is None:
            reached = (valid.warn_if_too_few if confidence is None else valid.reachable)(n, levels)
        radius = np.full((len(Z), len(levels)), np.inf)
        if reached:
            found = self._radius(Z, [levels[column] for column in reached], shares)
            radius[:, reached] = found if self._rounded else quantile.outward(found)
        return radius

    def predict_distribution(
        self, Z: Any, y_pred: Any, *, bounds: Any = None, weights: Any = None, groups: Any = None
    ) -> Distribution:
        """The distribution at each row, around ``y_pred`` (m,); ``fit`` must have had ``signs``.

        ``bounds`` (y_min, y_max) is the range that y can have, if it is known beforehand, and
        ``weights``, (m,), are those of the rows, if ``fit`` was given weights.
        """
        check_is_fitted(self)
        self._refuse_unused(groups=groups)
        refuse_distribution(self)
        if self._rows.signs is None:
            what = "a distribution needs the sign of each error: pass signs=np.sign(y - y_pred)"
            raise CalliperError(f"{what} to {type(self).__name__}.fit.")
        y_pred, weights = same_rows(Z, "Z", y_pred=y_pred, weights=weights)
        Z = self._check_new(Z)
        centre = valid.check_vector(as_array(y_pred, "y_pred", Z), "y_pred", n=len(Z))
        ends = (-np.inf, np.inf) if bounds is None else valid.check_bounds(bounds)
        shares = self._shares(weights, len(Z), (0.9,))
        if shares is not None:
            shares = replace(shares, calibration=self._signed_weights / self._signed_weights.max())
        n, signed = self.n_calibration_, self.signed_thresholds
        return Distribution(centre, Z, signed, n, bounds=ends, _shares=shares)

    def _rescale(self, rows: Rows, scale: FloatArray | None = None) -> None:
        """Keep scores in units of local scales, for ``_radius`` to multiply back."""
        ratio = rows.scores if scale is None else rescale(rows.scores, scale)
        self.rescaled_scores_, self.weights_ = quantile.in_order(ratio, rows.weights)
        self._keep_signed(ratio)

    def _keep_signed(self, ratio: FloatArray) -> None:
        """Rescaled scores with the signs of their errors in ascending order, if these are known."""
        signed = weights = None
        if self._rows.signs is not None:
            signed = quantile.with_signs(ratio, self._rows.signs)
            signed, weights = quantile.in_order(signed, self._rows.weights)
        # In this order: a thread that sees signed scores also finds their weights.
        self._signed_weights, self._signed = weights, signed

    def _local_scale(self, Z: FloatArray) -> FloatArray:
        """What rescaled scores are multiplied by at each row, (m,)."""
        return np.ones(len(Z))

    def signed_thresholds(self, Z: FloatArray, ranks: list[int] | None = None) -> FloatArray:
        """±t_i with the errors' signs: all of a few rows, (m, N), or some ranks of any rows."""
        ratio = self._signed if ranks is None else self._signed[np.array(ranks) - 1]
        sizes = quantile.rescaled_back(self._local_scale(Z)[:, None], np.abs(ratio))
        return quantile.with_signs(sizes, np.sign(ratio))

    def _all_thresholds(self, Z: FloatArray) -> FloatArray:
        """Thresholds t_i of a few rows, (m, N), in any order."""
        return quantile.rescaled_back(self._local_scale(Z)[:, None], self.rescaled_scores_)

    def share_below(self, Z: FloatArray, scores: FloatArray) -> FloatArray | None:
        """Share of N + 1 thresholds below the score of each row, (m,); None if unknown."""
        if not self.has_distribution:
            return None

        def count(rows: slice) -> Any:
            return quantile.count_true(self._all_thresholds(Z[rows]) < scores[rows, None])

        n = self.n_calibration_
        return np.concatenate(map_row_blocks(count, len(Z), n)) / (n + 1)

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several."""
        check_is_fitted(self)
        most = 1.0 if self.weights_ is None else 0.0  # by weight, no more than the level
        return valid.each_level(lambda c: min(self._proved(c), max(c, most)), coverage)

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The guarantee with its assumptions; ``.describe()`` puts it in words."""
        coverage = valid.check_level(coverage)
        proved = float(self.guaranteed_coverage(coverage))
        if confidence is not None:
            proved = self._proved(self._confident((coverage,), confidence)[0])
        return Guarantee(
            method=type(self).__name__,
            coverage=coverage,
            n_calibration=self.n_calibration_,
            proved=proved,
            has_law=self.has_law,
            averages=self.averages,
            note=self._note(coverage, proved),
            confidence=confidence,
            n_effective=None if self.weights_ is None else quantile.effective_size(self.weights_),
        )

    def shift_report(self, weights: Any, coverage: float = 0.9) -> ShiftReport:
        """What the weights of ``fit`` leave for new rows with these weights, (m,)."""
        check_is_fitted(self)
        if self.weights_ is None:
            raise CalliperError(f"{type(self).__name__} was fitted without weights.")
        return ShiftReport.of(self.weights_, weights, coverage)

    def _shares(self, new: Any, m: int, levels: Levels) -> Shares | None:
        """What ``_radius`` takes where there are weights; None where there are none."""
        name = type(self).__name__
        if new is None and self.weights_ is None:
            return None
        if self.weights_ is None:
            raise CalliperError(f"{name} was fitted without weights: {takers_of_weights()}.")
        if new is None:
            raise CalliperError(
                f"{name} was fitted with weights: also pass weights of the new rows."
            )
        new = check_weights(as_array(new, "weights", self._rows.Z), n=m, positive=True)
        shares = as_shares(self.weights_, new)
        if shares.equal:  # to the last bit what it is without weights
            return None
        ShiftReport.of(self.weights_, new, levels[-1]).warn_if_poor()
        warn_if_reversed(shares)
        return shares

    def _confident(self, levels: Levels, confidence: float, *, warned: bool = False) -> Levels:
        """Levels whose plain ranks are those that reach ``levels`` with this confidence."""
        confidence, n = valid.check_level(confidence, "confidence"), self.n_calibration_
        if self.weights_ is not None:
            raise CalliperError(
                "confidence cannot be combined with weights: leave one of them out."
            )
        if not self.has_law:
            able = sorted(kind.__name__ for kind in methods().values() if kind.has_law is True)
            what = f"{type(self).__name__} does not support confidence"
            why = "because it is not known how its coverage varies between calibration sets"
            raise CalliperError(f"{what}, {why}. Leave it out, or use one of {', '.join(able)}.")
        ranks = [guarantees.confident_rank(level, n, confidence) for level in levels]
        unreached = [level for level, rank in zip(levels, ranks, strict=True) if rank > n]
        if unreached and warned:
            warn(
                f"{n} calibration rows cannot support coverage {unreached[0]:g} with confidence "
                f"{confidence:g}, so intervals are infinite. Use at least "
                f"{guarantees.required_for_confidence(unreached[0], confidence)} rows.",
                SmallCalibrationWarning,
            )
        return tuple((rank - 0.5) / (n + 1) for rank in ranks)  # halves are safe from rounding

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()
        if not hasattr(self, "n_calibration_"):
            return diagram
        facts = [f"fitted to the scores of {self.n_calibration_:,} calibration rows"]
        return diagram + card("", facts)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_calibration_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = not self.judges_nearness
        return tags


class ForeignCalibrator(Calibrator):
    """A calibrator of another library: ``fit(Z, scores)`` and ``predict_radius(Z, coverage)``.

    Training and left-out rows are passed to a ``fit`` that takes ``training=`` and ``left_out=``.
    """

    takes_any_score = True

    def __init__(self, calibrator: Any) -> None:
        self.calibrator = calibrator

    @property
    def promises(self) -> bool:  # type: ignore[override]
        """Whether it has ``guaranteed_coverage``."""
        return hasattr(self.calibrator, "guaranteed_coverage")

    @property
    def uses(self) -> Uses:
        """What ``fit`` takes besides features and scores."""
        taken = {"training", "left_out"} & signature(self.calibrator.fit).parameters.keys()
        return Uses(*taken, *(("errors", "targets") if "training" in taken else ()))

    def _learn(self, rows: Rows) -> None:
        apart = {"training": self._training, "left_out": self._left_out}
        known = {name: apart[name] for name in self.uses if name in apart}
        self.fitted_ = clone(self.calibrator).fit(rows.Z, rows.scores, **known)

    def _radii(self, new: Rows, levels: Levels, confidence: Any) -> FloatArray:
        self._refuse_unused(weights=new.weights, groups=new.groups)
        if confidence is not None:
            self._confident(levels, confidence)
        return np.asarray(self.fitted_.predict_radius(self._check_new(new.Z), [*levels]))

    def _proved(self, level: float) -> float:
        return float(self.fitted_.guaranteed_coverage(level)) if self.promises else 0.0

    def _note(self, level: float, proved: float) -> str | None:
        return f"it states {proved:g} itself." if self.promises else "no guarantee is known."

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The calibrator's own guarantee, else what its ``guaranteed_coverage`` states."""
        if confidence is not None or not hasattr(self.fitted_, "guarantee"):
            promise = super().guarantee(coverage, confidence)
            return replace(promise, method=type(self.calibrator).__name__)
        return self.fitted_.guarantee(coverage)  # type: ignore[no-any-return]


def as_calibrator(calibrator: Any) -> Calibrator:
    """A method of calliper as it is, a foreign one in its adapter; anything else is refused."""
    if isinstance(calibrator, Calibrator):
        return calibrator
    if isinstance(calibrator, type) or not hasattr(calibrator, "predict_radius"):
        made = isinstance(calibrator, type) and issubclass(calibrator, Calibrator)
        got = f"the class {calibrator.__name__}: add ()" if made else repr(calibrator)
        what = "calibrator must be a calibration method such as FullRescaled() or Split()"
        raise TypeError(f"{what}; got {got}. See calliper.calibrators for all methods.")
    return ForeignCalibrator(calibrator)


def fixed_kernel(given: Any, default: Kernel, Z: Any, errors: Any, rng: Any) -> Kernel:
    """The kernel given, or the default, as training rows determine it."""
    return as_kernel(given, default).resolved(Z, rng).fixed(Z, errors, rng)


def columns_by(setting: Callable[[float], float], levels: list[float]) -> dict[float, list[int]]:
    """Columns of the levels that share a setting, by setting."""
    columns: dict[float, list[int]] = {}
    for column, level in enumerate(levels):
        columns.setdefault(setting(level), []).append(column)
    return columns


def refuse_distribution(calibrator: Calibrator) -> None:
    """Say why a method has no predictive distribution, if it has none, and which have."""
    if not calibrator.has_distribution:
        what = f"{calibrator!r} does not support predictive distributions"
        raise CalliperError(
            f"{what}, because none is proved for it. Use one of {', '.join(_users_of('signs'))}."
        )


def takers_of_weights() -> str:
    """Which methods take weights, as the end of a sentence."""
    return f"weights can be passed to one of {', '.join(_users_of('weights'))}"


def _users_of(word: str) -> list[str]:
    return sorted(kind.__name__ for kind in methods().values() if word in kind().uses)


def kernel_needs(kernel: Any, *, fixed: bool) -> tuple[str, ...]:
    """What ``fit`` needs for this kernel, in words of ``Uses``; ``fixed`` if learnt on errors."""
    if kernel is None:
        return ()
    if fixed and as_kernel(kernel).learns_on_errors:
        return ("training", "errors")
    return as_kernel(kernel).needs

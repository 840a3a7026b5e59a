"""The frame of all methods: features and scores in, a radius at any level and a promise out.

A method is a subclass of :class:`Calibrator` that writes three things, named as in its paper:

    fit(Z, scores, *, ...)     learns from ``self._check_fit(...)``, sets ``n_calibration_`` last
    _radius(Z, levels)         the radius at checked rows, (m, L)
    _proved(level)             the marginal coverage that is proved, for the N at hand

and says of itself, in class attributes or properties, what :class:`Calibrator` lists. All else
happens here, once: input is checked and an earlier fit forgotten, levels become ranks, levels that
N points cannot reach are infinite with one warning, the radius is rounded outward and shaped.

What ``fit`` was given is kept, as most of it is in any case, so that ``extend`` can fit to more of
it. A method that knows a shorter way writes ``_take_in``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from calliper._device import (
    DeviceRows,
    device_rows,
    engine_device,
    followed_by,
    is_tensor,
    to_host,
)
from calliper._kept import Array, Field, Number, Plain
from calliper._notebook import card, histogram
from calliper._types import Coverage, FloatArray
from calliper._validation import (
    check_bounds,
    check_calibration,
    check_level,
    check_levels,
    check_new_features,
    check_scores,
    check_signs,
    check_training,
    check_vector,
    check_window,
    each_level,
    forget_fit,
    like_coverage,
    numbers_or_zeros,
    refuse_huge_scores,
    warn_if_too_few,
)
from calliper.distribution import Distribution
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.guarantees import Guarantee, confident_rank, required_for_confidence
from calliper.quantile import (
    conformal_rank,
    effective_size,
    in_order,
    outward,
    rescaled_back,
    with_signs,
)
from calliper.shift import ShiftReport, as_shares, check_weights


@dataclass(frozen=True, eq=False)
class FitRows:
    """What ``fit`` was given, checked; None where nothing was.

    Attributes
    ----------
    Z, scores : (N, d) and (N,), the calibration points
    magnitudes : (N,), the scores if not given
    Z_train, scores_train, y_train : (n, d) and (n,), training points
    Z_left_out, scores_left_out : (n, d) and (n,), those that a model was trained without
    length_scale : distance at which N points still speak for one another
    signs : (N,), those of the errors
    weights : (N,), those of a covariate shift
    """

    Z: FloatArray
    scores: FloatArray
    magnitudes: Any = None
    Z_train: Any = None
    scores_train: Any = None
    y_train: Any = None
    Z_left_out: Any = None
    scores_left_out: Any = None
    length_scale: float | None = None
    signs: Any = None
    weights: Any = None

    def latest(self, n: int) -> FitRows:
        """The same with the last n calibration points alone."""
        known = {name: value for name in CALIBRATION if (value := getattr(self, name)) is not None}
        return replace(self, **{name: value[-n:] for name, value in known.items()})


#: What a file keeps of them.
ROWS: dict[str, Field] = {
    "Z": Array("float64", ("M", "d")),
    "scores": Array("float64", ("N",)),
    "magnitudes": Array("float64", ("N",), least=0, optional=True),
    "signs": Array("int8", ("N",), least=-1, most=1, optional=True, becomes="float64"),
    "weights": Array("float64", ("N",), least=0, optional=True),
    "Z_train": Array("float64", ("n", "d"), optional=True),
    "scores_train": Array("float64", ("n",), optional=True),
    "y_train": Array("float64", ("n",), optional=True),
    "Z_left_out": Array("float64", ("l", "d"), optional=True),
    "scores_left_out": Array("float64", ("l",), optional=True),
    "length": Number(least=0, optional=True),  # ``length_scale``, which some have as a parameter
}

#: What else is kept of every fitted method.
FITTED: dict[str, Field] = {
    "levels": Array("float64", ("L",), least=0, most=1),
    "names": Plain(),
}

#: What of :class:`FitRows` belongs to calibration points.
CALIBRATION = ("Z", "scores", "magnitudes", "signs", "weights")


class Calibrator(BaseEstimator, ABC):  # type: ignore[misc]
    """A method: learns from features and scores, answers with a radius for any level.

    Attributes
    ----------
    judges_nearness : whether the radius depends on the features
    takes_inputs : whether rows shall come as they are, frames too: no distance is asked of them
    takes_any_score : whether scores may be negative
    by_rank : whether N points reach a level if and only if its rank ⌈(1−α)(N+1)⌉ is at most N
    has_law : whether coverage given the calibration set has the Beta law
    averages : what its promise averages over besides draws of the calibration points
    has_distribution : whether ``fit`` takes ``signs`` and there is a predictive distribution
    takes_device : whether features may be tensors on a torch device
    """

    judges_nearness = True
    takes_inputs = False
    takes_any_score = False
    by_rank = True
    has_law = False
    averages = "all inputs"
    has_distribution = False
    takes_device = False

    #: What a file keeps besides parameters: rows, and what ``learns`` names.
    keeps: ClassVar[Mapping[str, Field]] = {**ROWS, **FITTED}
    #: What ``fit`` learns, draws, or finds at great expense; it gets it back from a file.
    learns: ClassVar[Mapping[str, Field]] = {}
    #: What is kept in the place of all that.
    own_keeps: ClassVar[Mapping[str, Field]] = {}
    _known: Mapping[str, Any] = {}

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        cls.keeps = cls.own_keeps or {**ROWS, **FITTED, **cls.learns}

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of what ``fit`` cannot do without, beyond the calibration points."""
        return ()

    @property
    def uses_left_out(self) -> bool:
        """Whether left-out errors would make a difference to ``fit``; they may be costly."""
        return False

    @property
    def rounded(self) -> bool:
        """Whether the radius is one of the scores to the last bit, or rounded outward already."""
        return False

    @property
    def _refusal(self) -> str:
        """What to say if one of ``needs`` is missing; empty if a kernel will refuse."""
        return ""

    n_calibration_: int
    #: Levels that a radius was asked for since ``fit``.
    levels_asked_: set[float]
    _rows: FitRows
    _signed: Any
    #: Weights in the order of what ``signed_thresholds`` gives of all points.
    _signed_weights: Any

    #: Weights of the calibration points, in the order in which the method keeps them, or None.
    weights_: FloatArray | None = None

    @abstractmethod
    def fit(self, Z: Any, scores: Any) -> Self:
        """Learn from the scores of the calibration points."""

    @abstractmethod
    def _radius(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        """The radius at each row and level, (m, L); takers of weights are given ``shares``, too."""

    @abstractmethod
    def _proved(self, level: float) -> float:
        """The marginal coverage that is proved at one level."""

    def _once(self, name: str, learn: Callable[[], Any]) -> Any:
        """What a file knows of this, else what ``learn`` finds."""
        return self._known[name] if name in self._known else learn()

    def for_file(self) -> dict[str, Any]:
        """What a file holds of a fitted method, by the names of ``keeps``."""
        rows, state = self._rows, {**vars(self._rows), "length": self._rows.length_scale}
        del state["length_scale"]
        if rows.magnitudes is not None and np.array_equal(rows.magnitudes, rows.scores):
            state["magnitudes"] = None
        state["levels"] = np.array(sorted(self.levels_asked_))
        state["names"] = list(vars(self).get("feature_names_in_", ()))
        return state | {name: getattr(self, name) for name in self.learns}

    def restore(self, state: dict[str, Any]) -> None:
        """Fit to the rows of a file, with what was learnt before."""
        rows = {name: state[name] for name in ROWS if state[name] is not None}
        Z, scores = rows["Z"], rows["scores"]
        if "length" in rows:
            rows["length_scale"] = rows.pop("length")
        if not self.judges_nearness:  # rows are only counted
            rows["Z"] = np.zeros((len(scores), 1))
        self._known = {name: state[name] for name in self.learns}
        try:
            self.fit(**rows)
        finally:
            del self._known
        if not self.judges_nearness:
            self.n_features_in_, self._rows = Z.shape[1], replace(self._rows, Z=Z[:0])
        self.levels_asked_ = set(state["levels"].tolist())
        if state["names"]:
            self.feature_names_in_ = np.array(state["names"], dtype=object)
            if len(self.feature_names_in_) != self.n_features_in_:
                raise CalliperError("there are not as many names as columns.")

    def extend(
        self,
        Z: Any,
        scores: Any,
        *,
        window: int | None = None,
        length_scale: float | None = None,
        **per_point: Any,
    ) -> Self:
        """Add calibration points: all is then, bit for bit, as if fitted anew to all of them.

        Parameters
        ----------
        Z, scores : (m, d) and (m,), points that come after those at hand
        window : int, optional
            Keep so many points, the latest, and drop those before.
        length_scale : float, optional
            For the number of points that there are now. What else ``fit`` was given of other
            points still counts.
        **per_point : what ``fit`` was given of each point, that is, ``magnitudes``, ``signs``
            and ``weights``, of the new ones
        """
        check_is_fitted(self)
        for name, value in {**per_point, "length_scale": length_scale}.items():
            if value is not None and not has_fit_parameter(self, name):
                raise TypeError(f"{type(self).__name__} takes no {name}.")
        rows = self._joined(Z, scores, **per_point)
        if length_scale is not None:
            rows = replace(rows, length_scale=length_scale)
        n = len(rows.scores) if window is None else min(check_window(window), len(rows.scores))
        grown = copy(self)  # as it was, should anything be refused
        if n < len(rows.scores) or not grown._take_in(rows):
            rows = rows.latest(n)
            given = {name: value for name, value in vars(rows).items() if value is not None}
            grown.fit(**{name: given[name] for name in given if has_fit_parameter(self, name)})
        self.__dict__.update(vars(grown))  # names of columns stay: a fit to arrays has none
        return self

    def _take_in(self, rows: FitRows) -> bool:
        """Learn from rows whose first are those at hand by some shorter way; False if none is."""
        return False

    def _joined(self, Z: Any, scores: Any, magnitudes: Any = None, **per_point: Any) -> FitRows:
        """The rows that ``fit`` was given, and these."""
        before = self._rows
        Z = self._check_new(Z)
        scores, magnitudes = (to_host(each, "scores", self._place) for each in (scores, magnitudes))
        check = check_vector if self.takes_any_score else check_scores
        added = {"Z": Z, "scores": check(scores, "scores", n=len(Z))}
        added["magnitudes"] = added["scores"]
        if magnitudes is not None:
            added["magnitudes"] = check_scores(magnitudes, "magnitudes", n=len(Z))
        for name in ("scores", "magnitudes"):
            refuse_huge_scores(added[name], name)
        added |= _as_before(before, added["scores"], **per_point)
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(before, name), added[name]]) for name in [*added][1:]
        }
        joined["Z"] = followed_by(before.Z, Z)
        if not self.judges_nearness:  # rows are only counted, and none were kept
            joined["Z"] = np.zeros((len(joined["scores"]), Z.shape[1]))
        return replace(before, **joined)

    @property
    def _place(self) -> str | None:
        """The device that calibration points were given on, if they were."""
        rows = getattr(self, "_rows", None)
        return rows.Z.device if rows is not None and isinstance(rows.Z, DeviceRows) else None

    @property
    def _engine(self) -> str | None:
        """What the kernel says about where to compute."""
        return getattr(getattr(self, "kernel", None), "engine", None)

    def _as_rows(self, Z: Any, device: str | None) -> Any:
        """Features as they are checked: tensors as rows on their device, which must be this one."""
        if not self.judges_nearness:
            return numbers_or_zeros(Z)
        if not is_tensor(Z) or (Z.device.type == "cpu" and self._engine != "torch:cpu"):
            return Z
        kernel = getattr(self, "kernel", None)
        if not self.takes_device or not getattr(kernel, "takes_device", kernel is None):
            raise CalliperError(
                f"Z is on {Z.device}, where {self!r} does not compute: pass Z.cpu(), or use "
                f"FullRescaled or JackknifeRescaled with KNN(...) or RBF(...)."
            )
        return device_rows(Z, "Z", device)

    def _check_new(self, Z: Any) -> Any:
        """Features of new rows, checked, and where the calibration points are."""
        place = self._place or engine_device(self._engine)
        rows = self._as_rows(Z, place or "cpu")
        if self._place and not self._engine and not isinstance(rows, DeviceRows):
            raise CalliperError(
                f"calibration points are on {place}, and Z is in main memory: pass a tensor there, "
                f"or name the engine, as in KNN(10, engine='torch:{place}'), to have rows moved."
            )
        return check_new_features(self, rows)

    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense; the frame asks before it looks at training rows."""
        return

    def _note(self, level: float, proved: float) -> str | None:
        """What is promised instead of the usual, as the end of a sentence."""
        return None

    def predict_radius(
        self,
        Z: Any,
        coverage: Coverage = 0.9,
        *,
        confidence: float | None = None,
        weights: Any = None,
    ) -> FloatArray:
        """The radius at each row: (m,), or (m, L) for a list of L levels.

        With a ``confidence``, methods that have a law cover so much given these very calibration
        points, in at least that share of draws of them. ``weights``, (m,), are those of the rows,
        if ``fit`` was given weights of the calibration points.
        """
        check_is_fitted(self)
        Z, levels, n = self._check_new(Z), check_levels(coverage), self.n_calibration_
        reached, how = list(range(len(levels))), self._shares(weights, len(Z), levels)
        self.levels_asked_.update(levels)
        if confidence is not None:
            levels = self._confident(levels, confidence, warned=True)
        if self.by_rank and not how:
            if confidence is None:
                warn_if_too_few(n, levels)
            reached = [place for place in reached if conformal_rank(levels[place], n) <= n]
        radius = np.full((len(Z), len(levels)), np.inf)
        if reached:
            found = self._radius(Z, [levels[place] for place in reached], **how)
            radius[:, reached] = found if self.rounded else outward(found)
        return like_coverage(radius, coverage)

    def predict_distribution(
        self, Z: Any, y_pred: Any, *, bounds: Any = None, weights: Any = None
    ) -> Distribution:
        """The distribution at each row, around ``y_pred`` (m,); ``fit`` must have had ``signs``.

        ``bounds`` (y_min, y_max) is the range that y can have, if it is known beforehand, and
        ``weights``, (m,), are those of the rows, if ``fit`` was given weights.
        """
        check_is_fitted(self)
        refuse_distribution(self)
        if self._rows.signs is None:
            raise CalliperError(
                f"a distribution needs to know on which side each target lay: pass "
                f"signs=np.sign(y - y_pred) to fit of {type(self).__name__}."
            )
        Z = self._check_new(Z)
        centre = check_vector(to_host(y_pred, "y_pred", self._place), "y_pred", n=len(Z))
        ends = (-np.inf, np.inf) if bounds is None else check_bounds(bounds)
        shares = self._shares(weights, len(Z), (0.9,)).get("shares")
        if shares is not None:
            shares = replace(shares, calibration=self._signed_weights / self._signed_weights.max())
        n, signed = self.n_calibration_, self.signed_thresholds
        return Distribution(centre, Z, signed, n, bounds=ends, shares=shares)

    def signed_thresholds(self, Z: FloatArray, ranks: list[int] | None = None) -> FloatArray:
        """±t_i with the errors' signs: of a few rows all, (m, N), or of any rows those of ranks."""
        ratio = self._signed if ranks is None else self._signed[np.array(ranks) - 1]
        sizes = rescaled_back(self._local_scale(Z)[:, None], np.abs(ratio))
        return with_signs(sizes, np.sign(ratio))

    def _local_scale(self, Z: FloatArray) -> FloatArray:
        """What rescaled scores are multiplied by at each row, (m,)."""
        return np.ones(len(Z))

    def _keep_signed(self, ratio: FloatArray) -> None:
        """Rescaled scores with the signs of their errors in ascending order, if these are known."""
        signed = weights = None
        if self._rows.signs is not None:
            signed = with_signs(ratio, self._rows.signs)
            signed, weights = in_order(signed, self._rows.weights)
        # In this order: a thread that sees the first finds the second.
        self._signed_weights, self._signed = weights, signed

    def guaranteed_coverage(self, coverage: Coverage = 0.9) -> float | FloatArray:
        """The proved marginal coverage at a level, or at each of several."""
        check_is_fitted(self)

        def proved(level: float, n: int) -> float:
            return min(self._proved(level), level if self.weights_ is not None else 1.0)

        return each_level(proved, coverage, self.n_calibration_)

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The promise with its assumptions; ``.describe()`` puts it in words."""
        coverage = check_level(coverage)
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
            n_effective=None if self.weights_ is None else effective_size(self.weights_),
        )

    def shift_report(self, weights: Any, coverage: float = 0.9) -> ShiftReport:
        """What the weights of ``fit`` leave for new rows of these weights, (m,)."""
        check_is_fitted(self)
        if self.weights_ is None:
            raise CalliperError(f"{type(self).__name__} was fitted without weights.")
        return ShiftReport.of(self.weights_, weights, coverage)

    def _shares(self, new: Any, m: int, levels: tuple[float, ...]) -> dict[str, Any]:
        """What ``_radius`` takes where there are weights: shares; nothing where there are none."""
        name = type(self).__name__
        if new is None and self.weights_ is None:
            return {}
        if self.weights_ is None:
            raise CalliperError(f"{name} was fitted without weights: {takers_of_weights()}.")
        if new is None:
            raise CalliperError(f"{name} was fitted with weights: pass those of the new rows, too.")
        new = check_weights(to_host(new, "weights", self._place), n=m, positive=True)
        shares = as_shares(self.weights_, new)
        if shares.equal:  # to the last bit what it is without weights
            return {}
        ShiftReport.of(self.weights_, new, levels[-1]).warn_if_poor()
        return {"shares": shares}

    def _confident(
        self, levels: tuple[float, ...], confidence: float, *, warned: bool = False
    ) -> tuple[float, ...]:
        """Levels whose plain ranks are those that reach ``levels`` with this confidence."""
        confidence, n = check_level(confidence, "confidence"), self.n_calibration_
        if self.weights_ is not None:
            raise CalliperError(
                "no confidence is known with weights: coverage given the calibration points has no "
                "law then. Leave one of them out."
            )
        if not self.has_law:
            able = sorted(kind.__name__ for kind in _methods() if kind.has_law is True)
            raise CalliperError(
                f"{type(self).__name__} takes no confidence: no law is known of its coverage given "
                f"the calibration points. Leave it out, or use one of {', '.join(able)}."
            )
        ranks = [confident_rank(level, n, confidence) for level in levels]
        unreached = [level for level, rank in zip(levels, ranks, strict=True) if rank > n]
        if unreached and warned:
            warn(
                f"{n} calibration points cannot support coverage {unreached[0]:g} with confidence "
                f"{confidence:g}: the only valid interval is infinite. At least "
                f"{required_for_confidence(unreached[0], confidence)} points are required.",
                SmallCalibrationWarning,
            )
        return tuple((rank - 0.5) / (n + 1) for rank in ranks)  # halves are safe from rounding

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()
        if not hasattr(self, "n_calibration_"):
            return diagram
        facts = [f"fitted to the scores of {self.n_calibration_:,} calibration rows"]
        return diagram + card("", facts, picture_of(self))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_calibration_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = not self.judges_nearness
        return tags

    def _check_fit(
        self,
        Z: Any,
        scores: Any,
        *,
        magnitudes: Any = None,
        signs: Any = None,
        weights: Any = None,
        **beyond: Any,
    ) -> FitRows:
        """What ``fit`` was given, checked, with an earlier fit forgotten.

        ``beyond`` holds what else the method's ``fit`` takes of :class:`FitRows`.
        """
        forget_fit(self)
        named = None if self._engine == "torch" else engine_device(self._engine)
        rows = self._as_rows(Z, named)
        place = rows.device if isinstance(rows, DeviceRows) else None
        scores, magnitudes = (to_host(each, "scores", place) for each in (scores, magnitudes))
        signs, weights = (to_host(each, "signs", place) for each in (signs, weights))
        beyond = {name: to_host(each, name, place) for name, each in beyond.items()}
        Z, scores = check_calibration(self, rows, scores, non_negative=not self.takes_any_score)
        self._check_parameters()
        if self._refusal and any(beyond[name] is None for name in self.needs):
            raise CalliperError(self._refusal)
        self.levels_asked_ = set()
        if weights is not None:
            self.weights_ = weights = check_weights(weights, n=len(scores))
        sizes = scores
        if magnitudes is not None:
            sizes = check_scores(magnitudes, "magnitudes", n=len(scores))
        for name in ("train", "left_out"):
            beyond |= self._check_rows(name, beyond, Z)
        for name, values in {"scores": scores, "magnitudes": sizes, **beyond}.items():
            if values is not None and not name.startswith("Z_"):
                refuse_huge_scores(values, name)
        if signs is not None:
            signs = check_signs(signs, scores)
        rows = FitRows(Z, scores, sizes, signs=signs, weights=weights, **beyond)
        self._rows = rows if self.judges_nearness else replace(rows, Z=Z[:0].copy())
        return rows

    def _check_rows(self, name: str, beyond: dict[str, Any], Z: FloatArray) -> dict[str, Any]:
        """Rows apart from the calibration points, and what is known of each, by their names."""
        given = {key: value for key, value in beyond.items() if key.endswith(f"_{name}")}
        rows = check_training(given.pop(f"Z_{name}", None), Z, f"Z_{name}")
        known = {key: values for key, values in given.items() if values is not None}
        if rows is None:
            if known:
                raise CalliperError(f"{next(iter(known))} was given without Z_{name}: pass both.")
            return {}
        for key, values in known.items():
            signed = self.takes_any_score or not key.startswith("scores")
            known[key] = (check_vector if signed else check_scores)(values, key, n=len(rows))
        return {f"Z_{name}": rows, **known}


def scales_of(method: Any) -> Callable[..., Any]:
    """How its kernel makes the scales of the Jackknife+: of what a file knows, if it does."""
    before = {name.rstrip("_"): value for name, value in method._known.items() if value is not None}
    if "without_one" not in before:
        return method.kernel_.leave_two_out  # type: ignore[no-any-return]
    return partial(method.kernel_.leave_two_out_again, before)


def keep_scales(method: Any) -> None:
    """Name what its scales keep as ``learns`` does."""
    found = {} if method.scale_ is None else method.scale_.for_file()
    for name in method.learns:
        if name != "kernel_":
            setattr(method, name, found.get(name.rstrip("_")))


def picture_of(calibrator: Any) -> str:
    """The scores that a fitted calibrator keeps as a histogram, for notebooks; empty if none."""
    rows = getattr(calibrator, "_rows", None)
    return "" if rows is None else histogram(rows.scores, "scores (errors) of calibration rows")


def _as_before(
    before: FitRows, scores: FloatArray, *, signs: Any = None, weights: Any = None
) -> dict[str, FloatArray]:
    """What is known of each further point, checked: what was known before, and no more."""
    given = {"signs": signs, "weights": weights}
    for name, values in given.items():
        if (getattr(before, name) is None) != (values is None):
            known, now = ("without", "with") if values is not None else ("with", "without")
            raise CalliperError(f"fitted {known} {name} and extended {now}: give them to both.")
    if signs is not None:
        given["signs"] = check_signs(signs, scores)
    if weights is not None:
        given["weights"] = check_weights(weights, n=len(scores), some=False)
    return {name: values for name, values in given.items() if values is not None}


def _methods() -> list[type[Calibrator]]:
    """Every method of the library; their modules are imported for it."""
    from calliper import calibrators

    return [getattr(calibrators, name) for name in calibrators.__all__]


def refuse_distribution(calibrator: Any) -> None:
    """Say why a method has no predictive distribution, if it has none, and which have."""
    if not getattr(calibrator, "has_distribution", False):
        able = [kind.__name__ for kind in _methods() if has_fit_parameter(kind, "signs")]
        raise CalliperError(
            f"{calibrator!r} has no predictive distribution: calibration points do not have one "
            f"threshold each, the same at every level. Use {', '.join(sorted(able))}."
        )


def takers_of_weights() -> str:
    """Who takes weights, as the end of a sentence."""
    able = [kind for kind in _methods() if has_fit_parameter(kind, "weights")]
    return f"pass weights to fit, of one of {', '.join(sorted(kind.__name__ for kind in able))}"


def kernel_needs(kernel: Any, *, fixed: bool) -> tuple[str, ...]:
    """Names of what ``fit`` must be given for this kernel.

    ``fixed`` if the method takes a tuned or learnt kernel as training errors made it; otherwise
    it is tuned on the calibration points, and needs training inputs for its grid alone.
    """
    if fixed and getattr(kernel, "learns_on_errors", False):
        return ("Z_train", "scores_train")
    needs: tuple[str, ...] = getattr(kernel, "needs", ())
    return needs

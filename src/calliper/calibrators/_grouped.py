"""Mondrian calibration: the promise in each group, by a calibrator of its own.

A group is a fixed function of the input (or of input and prediction): a site, a sex, a class of
products. Calibration rows of a group and a new row of the same group are exchangeable among
themselves, so a method that is calibrated on the group's rows alone keeps in it what it promises:

    P(Y ∈ C(X) | group of X is g) ≥ 1−α     for every group g.

A group with too few rows for the level, or with none, gets infinite intervals: nothing else would
be valid. For groups that overlap, ``ConditionalCalibration`` takes their indicators as its basis.

Reference: Vovk, Lindsay, Nouretdinov, Gammerman (2003), "Mondrian confidence machine", working
paper 4 of the On-line Compression Modelling project, alrw.net.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from calliper._kept import Array, Part, Plain
from calliper._per_row import places_of_groups, row_values
from calliper._types import Coverage, FloatArray, IntArray
from calliper._validation import (
    check_levels,
    check_vector,
    check_window,
    forget_fit,
    like_coverage,
    n_rows,
    refuse_no_rows,
    refuse_sparse,
)
from calliper.calibrators._base import Calibrator, refuse_distribution
from calliper.distribution import Distribution, GroupedDistribution
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.guarantees import Guarantee, required_for_confidence
from calliper.quantile import required_calibration_size
from calliper.shift import stacked

#: Groups that a warning names before it only counts.
NAMED = 5

#: What ``fit`` of a method may be given with a value for each calibration row.
PER_ROW = ("magnitudes", "signs", "weights")


class Grouped(Calibrator):
    """Any calibrator, with its promise in each group: a copy for each, on that group's rows.

    Parameters
    ----------
    calibrator : calibrator
        Copied and fitted for each group. Training rows, if it takes any, are shared by all.
    groups : column name or function of the rows, optional
        The group of each row, for whoever does not pass ``groups`` to ``fit`` and
        ``predict_radius``. It must not depend on targets.

    Attributes
    ----------
    calibrators_ : the fitted calibrator of each group, by its label
    n_calibration_ : N, over all groups

    Examples
    --------
    >>> from calliper import Split
    >>> rng = np.random.default_rng(0)
    >>> site = np.repeat(["a", "b"], 200)
    >>> errors = abs(rng.normal(size=400)) * np.where(site == "a", 1, 5)
    >>> method = Grouped(Split()).fit(np.zeros((400, 1)), errors, groups=site)
    >>> method.predict_radius(np.zeros((2, 1)), 0.9, groups=["a", "b"]).round(1)
    array([1.5, 7.5])
    """

    def __init__(self, calibrator: Any, *, groups: Any = None) -> None:
        self.calibrator = calibrator
        self.groups = groups

    own_keeps = {
        "labels": Plain(),
        "code": Array("int32", ("N",), least=0, becomes="int64"),
        "parts": Part("calibrators", several=True),
    }

    @property
    def judges_nearness(self) -> bool:  # type: ignore[override]
        """Whether the radius depends on the features."""
        return bool(getattr(self.calibrator, "judges_nearness", True))

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of what ``fit`` cannot do without, beyond the calibration points."""
        return ("groups", *getattr(self.calibrator, "needs", ()))

    def fit(self, Z: Any, scores: Any, *, groups: Any = None, **known: Any) -> Self:
        """Fit a copy of the calibrator to the rows of each group.

        Parameters
        ----------
        Z, scores : (N, d) and (N,), the calibration points
        groups : (N,) labels, a column name or a function of the rows
        **known : what ``fit`` of the calibrator takes beyond
        """
        forget_fit(self)
        places, known = self._places(groups, Z), _checked(known, n_rows(Z))
        _refuse_unpaired(Z, scores)
        self.calibrators_ = {}
        for label, rows in places.items():
            points = _safe_indexing(Z, rows), _safe_indexing(scores, rows)
            self.calibrators_[label] = clone(self.calibrator).fit(*points, **_of(known, rows))
        self._given = {"Z": Z, "scores": scores, "groups": _labels(places), **known}
        self.n_calibration_ = n_rows(Z)
        return self

    def for_file(self) -> dict[str, Any]:
        """The calibrators of all groups, and which row is in which."""
        places = places_of_groups(self._given["groups"])
        code = np.empty(self.n_calibration_, dtype=np.int64)
        for number, rows in enumerate(places.values()):
            code[rows] = number
        return {"labels": [*places], "code": code, "parts": [*self.calibrators_.values()]}

    def restore(self, state: dict[str, Any]) -> None:
        """The calibrators as they are, and the rows of all of them in order."""
        labels, parts, code = state["labels"], state["parts"], state["code"]
        if not isinstance(labels, list) or not len(labels) == len(parts) > 0:
            raise CalliperError("there must be a calibrator for each group.")
        self.calibrators_ = dict(zip(labels, parts, strict=True))
        n = np.bincount(code, minlength=len(parts)).tolist()
        if [part.n_calibration_ for part in parts] != n or len(self.calibrators_) != len(parts):
            raise CalliperError("groups do not have the rows that are said to be theirs.")
        self.n_calibration_ = len(code)
        order = np.argsort(np.argsort(code, kind="stable"), kind="stable")
        first = parts[0]._rows
        names = [name for name in ("scores", *PER_ROW) if getattr(first, name) is not None]
        given = {
            name: np.concatenate([getattr(part._rows, name) for part in parts])[order]
            for name in names
        }
        given["Z"] = np.zeros((len(code), first.Z.shape[1]))
        if parts[0].judges_nearness:
            given["Z"] = np.concatenate([part._rows.Z for part in parts])[order]
        shared = set(vars(first)) - {"Z", "scores", *PER_ROW}
        given |= {name: value for name in shared if (value := getattr(first, name)) is not None}
        taken = {name: v for name, v in given.items() if name not in PER_ROW or has_fit_parameter(parts[0], name)}
        self._given = {**taken, "groups": _labels_of(labels, code)}

    def extend(
        self,
        Z: Any,
        scores: Any,
        *,
        window: int | None = None,
        groups: Any = None,
        length_scale: float | None = None,
        **known: Any,
    ) -> Self:
        """Add calibration points: as if fitted anew to all of them, or the latest ``window``.

        ``groups`` and what ``fit`` was given of each point are those of the new ones.
        """
        check_is_fitted(self)
        labels, known = _labels(self._places(groups, Z)), _checked(known, n_rows(Z))
        _refuse_unpaired(Z, scores)
        added, given = {"Z": Z, "scores": scores, "groups": labels, **known}, dict(self._given)
        n = self.n_calibration_ + n_rows(Z)
        latest = np.arange(n)[-(n if window is None else check_window(window)) :]
        for name in ("Z", "scores", "groups", *PER_ROW):
            if (given.get(name) is None) != (added.get(name) is None):
                raise CalliperError(f"fit and extend must both be given {name}, or neither.")
            if given.get(name) is not None:
                given[name] = _safe_indexing(stacked(given[name], added[name]), latest)
        if length_scale is not None:
            given["length_scale"] = length_scale
        grown = clone(self).fit(**given)
        self.__dict__.update(vars(grown))
        return self

    @property
    def has_distribution(self) -> bool:  # type: ignore[override]
        """Whether the calibrator of each group has one."""
        return bool(getattr(self.calibrator, "has_distribution", False))

    def predict_distribution(
        self, Z: Any, y_pred: Any, *, groups: Any = None, bounds: Any = None, **how: Any
    ) -> Distribution:
        """The distribution at each row, by the calibrator of its group; see :meth:`fit`."""
        check_is_fitted(self)
        refuse_distribution(self)
        places, how = self._places(groups, Z), _checked(how, n_rows(Z))
        unseen = [label for label in places if label not in self.calibrators_]
        if unseen:
            raise CalliperError(
                f"{len(unseen)} of {len(places)} groups of the new rows have no calibration rows, "
                f"{unseen[0]!r} for one, and so no distribution: leave such rows out, or calibrate "
                f"on rows of them. (An interval there is infinite.)"
            )
        centre = check_vector(y_pred, "y_pred", n=n_rows(Z))
        parts = tuple(
            (
                rows,
                self.calibrators_[label].predict_distribution(
                    _safe_indexing(Z, rows), centre[rows], bounds=bounds, **_of(how, rows)
                ),
            )
            for label, rows in places.items()
        )
        ends, first = parts[0][1].bounds, self.signed_thresholds
        nothing = np.empty((n_rows(Z), 0))
        return GroupedDistribution(
            centre, nothing, first, self.n_calibration_, bounds=ends, parts=parts
        )

    def predict_radius(
        self, Z: Any, coverage: Coverage = 0.9, *, groups: Any = None, **how: Any
    ) -> FloatArray:
        """The radius at each row: (m,), or (m, L) for a list of L levels.

        Parameters
        ----------
        groups : (m,) labels, a column name or a function of the rows
        **how : what ``predict_radius`` of the calibrator takes beyond
        """
        check_is_fitted(self)
        levels = check_levels(coverage)
        places, how = self._places(groups, Z), _checked(how, n_rows(Z))
        reached = self._reached([*places], levels, how.get("confidence"))
        radius = np.full((n_rows(Z), len(levels)), np.inf)
        for label, rows in places.items():
            columns = reached[label]
            if columns:
                ask, asked = self.calibrators_[label].predict_radius, [levels[j] for j in columns]
                found = ask(_safe_indexing(Z, rows), asked, **_of(how, rows))
                radius[rows[:, None], columns] = found
        return like_coverage(radius, coverage)

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The promise with its assumptions, in numbers that hold of every group."""
        check_is_fitted(self)
        how = {} if confidence is None else {"confidence": confidence}
        promises = [own.guarantee(coverage, **how) for own in self.calibrators_.values()]

        def worse(promise: Guarantee) -> tuple[float, int]:
            # With a confidence all finite intervals promise alike, by more points or by fewer.
            alike = confidence is not None and promise.proved < 1
            return 0.0 if alike else promise.proved, promise.n_calibration

        worst: Guarantee = min(promises, key=worse)
        where = f"in each of the {len(promises):,} groups (numbers are those of the worst"
        infinite = sum(promise.proved == 1 for promise in promises)
        if 0 < infinite < len(promises):
            where += f"; infinite for want of points in {infinite:,}"
        return replace(worst, method=f"{worst.method} {where})", groups=len(promises))

    def _proved(self, level: float) -> float:
        return min(float(own.guaranteed_coverage(level)) for own in self.calibrators_.values())

    def _radius(self, Z: FloatArray, levels: list[float]) -> FloatArray:
        raise NotImplementedError  # each group has a calibrator that answers

    def asked(self, groups: Any) -> Any:
        """What tells the group of each row: as given, or by the parameter; refused if neither."""
        given = self.groups if groups is None else groups
        if given is None:
            raise CalliperError(
                "Grouped needs the group of each row: pass groups= to fit and predict_radius "
                "alike (to calibrate and predict_interval of ConformalRegressor)."
            )
        return given

    def _places(self, groups: Any, Z: Any) -> dict[Any, IntArray]:
        """The places of each group's rows; refused if these are no rows that can be picked."""
        refuse_sparse(Z, "Z")
        refuse_no_rows(Z, "Z")
        return places_of_groups(row_values(self.asked(groups), Z, "groups"))

    def _reached(
        self, labels: list[Any], levels: tuple[float, ...], confidence: float | None
    ) -> dict[Any, list[int]]:
        """Which levels the rows of each group suffice for; one warning tells what is missing."""
        if confidence is not None:  # refused, if it is, whether or not any group would be asked
            next(iter(self.calibrators_.values())).guarantee(levels[0], confidence)
        least = [
            required_calibration_size(level)
            if confidence is None
            else required_for_confidence(level, confidence)
            for level in levels
        ]
        reached, short = {}, {}
        for label in labels:
            own = self.calibrators_.get(label)
            n = 0 if own is None else own.n_calibration_
            # With weights, each row has a level of its own that it reaches.
            ranked = own is None or (getattr(own, "by_rank", True) and own.weights_ is None)
            reached[label] = [j for j in range(len(levels)) if n >= least[j] or not ranked]
            if len(reached[label]) < len(levels):
                short[label] = n
        if short:
            _warn_of_short(short, levels[-1], least[-1])
        return reached


def _labels_of(labels: list[Any], code: IntArray) -> Any:
    """The label of each row, (n,), by its number."""
    each = np.empty(len(labels), dtype=object)
    each[:] = labels
    return each[code]


def _labels(places: dict[Any, IntArray]) -> Any:
    """The label of each row, (n,)."""
    labels = np.empty(sum(map(len, places.values())), dtype=object)
    for label, rows in places.items():
        labels[rows] = label
    return labels


def _refuse_unpaired(Z: Any, scores: Any) -> None:
    """Scores that cannot be picked by row, or are not as many."""
    if scores is None:
        raise CalliperError(
            "scores must be one number for each row; got None: pass abs(y - y_pred)."
        )
    refuse_sparse(scores, "scores")
    refuse_no_rows(scores, "scores")
    check_consistent_length(Z, scores)


def _checked(known: dict[str, Any], n: int) -> dict[str, Any]:
    """What is known, checked where it is a number for each of n rows; None counts as not known."""
    return {
        name: check_vector(value, name, n=n) if name in PER_ROW else value
        for name, value in known.items()
        if value is not None
    }


def _of(known: dict[str, Any], rows: IntArray) -> dict[str, Any]:
    """What is known, of some rows alone where there is a value for each."""
    return {name: value[rows] if name in PER_ROW else value for name, value in known.items()}


def _warn_of_short(short: dict[Any, int], level: float, least: int) -> None:
    """One warning that says how many rows are missing in which groups."""
    told = [
        f"{label!r} has {n or 'none'} (missing: {least - n})"
        for label, n in sorted(short.items(), key=lambda item: item[1])
    ]
    rest = f"; and {len(told) - NAMED} more" if len(told) > NAMED else ""
    warn(
        f"Coverage {level:g} in a group takes at least {least} calibration rows of it. Of the "
        f"groups of the new rows, {'; '.join(told[:NAMED])}{rest}: the only valid interval there "
        f"is infinite. Calibrate on more rows of these groups, or join groups that are alike.",
        SmallCalibrationWarning,
    )

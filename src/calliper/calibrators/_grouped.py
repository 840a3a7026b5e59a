"""Mondrian calibration: the guarantee in each group, by a calibrator for each group.

A group is a fixed function of the input (or of input and prediction): a site, a sex, a class of
products. Calibration rows of a group and a new row of the same group are exchangeable, so a method
that is calibrated on the group's rows alone keeps its guarantee there:

    P(Y ∈ C(X) | group of X is g) ≥ 1−α     for every group g.

A group with too few rows for the level, or with none, gets infinite intervals: nothing else would
be valid. For groups that overlap, ``ConditionalCalibration`` takes their indicators as its basis.

Reference: Vovk, Lindsay, Nouretdinov, Gammerman (2003), "Mondrian confidence machine", working
paper 4 of the On-line Compression Modelling project, alrw.net.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from calliper import _validation as valid
from calliper._kept import Array, Field, NameList, Part
from calliper._types import FloatArray, IntArray, Levels
from calliper.calibrators._calibrator import Calibrator, as_calibrator, refuse_distribution
from calliper.declarations import Uses
from calliper.distribution import Distribution, GroupedDistribution
from calliper.exceptions import CalliperError, SmallCalibrationWarning, warn
from calliper.guarantees import Guarantee, required_for_confidence
from calliper.quantile import required_calibration_size
from calliper.rows import Rows, row_values, rows_of_groups, same_rows

#: Groups that a warning names before it only counts.
NAMED = 5


class Grouped(Calibrator):
    """Any calibrator, with its guarantee in each group: one copy per group, fitted to its rows.

    Parameters
    ----------
    calibrator : calibrator
        Copied and fitted for each group. Training rows, if it takes any, are shared by all.
    groups : column name or function of the rows, optional
        The group of each row, if ``groups`` is not passed to ``fit`` and ``predict_radius``. It
        must not depend on targets.

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

    keeps: ClassVar[Mapping[str, Field]] = {
        "labels": NameList(),
        "code": Array("int32", ("N",), least=0, most="N", becomes="int64"),
        "parts": Part("calibrators", several=True),
    }

    calibrators_: dict[Any, Calibrator]

    def __init__(self, calibrator: Any, *, groups: Any = None) -> None:
        self.calibrator, self.groups = calibrator, groups

    @property
    def _of_group(self) -> Calibrator:
        return as_calibrator(self.calibrator)

    @property
    def judges_nearness(self) -> bool:  # type: ignore[override]
        """Whether the radius depends on the features."""
        return self._of_group.judges_nearness

    @property
    def uses(self) -> Uses:
        """What the calibrator uses, and the group of each row."""
        own = self._of_group.uses
        return Uses(*own, needs=("groups", *own.needs))

    @property
    def has_distribution(self) -> bool:  # type: ignore[override]
        """Whether the calibrator of each group has distributions."""
        return self._of_group.has_distribution

    def _checked(self, rows: Rows, *, first: bool) -> Rows:
        """Rows as they come, with what is known of each; the calibrators check them."""
        numbers, n = self._numbers(rows.groups, rows.Z), valid.n_rows(rows.Z)
        groups, scores = np.empty(n, dtype=object), valid.check_vector(rows.scores, "scores", n=n)
        for label, own in numbers.items():
            groups[own] = label
        sizes = scores if rows.magnitudes is None else _checked(rows.magnitudes, "magnitudes", n)
        # A group's calibrator keeps no signs that it does not use, and rows to add must be alike.
        signs = _checked(rows.signs, "signs", n) if "signs" in self._of_group.uses else None
        return Rows(rows.Z, scores, sizes, signs, _checked(rows.weights, "weights", n), groups)

    def _checked_apart(self, name: str, given: Any, Z: Any, uses: Uses) -> Any:
        return given

    def _learn(self, rows: Rows) -> None:
        self._rows, self.calibrators_ = rows, {}
        apart = {"training": self._training, "left_out": self._left_out}
        for label, numbers in rows_of_groups(rows.groups).items():
            own = replace(rows.take(numbers), groups=None)
            fresh: Calibrator = clone(self._of_group)
            self.calibrators_[label] = fresh.fit_to(own, **apart, length_scale=self._length_scale)

    def for_file(self) -> dict[str, Any]:
        """The calibrators of all groups, and the group of each row."""
        number_of = {label: number for number, label in enumerate(self.calibrators_)}
        code = np.array([number_of[label] for label in self._rows.groups])
        return {"labels": [*number_of], "code": code, "parts": [*self.calibrators_.values()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the calibrators, and the rows of all of them in order."""
        labels, parts, code = state["labels"], state["parts"], state["code"]
        n = np.bincount(code, minlength=len(parts)).tolist()
        of_each = isinstance(labels, list) and len(labels) == len(parts) == len({*labels}) > 0
        if not of_each or [part.n_calibration_ for part in parts] != n:
            raise CalliperError("each group must have one calibrator, with as many rows.")
        self.calibrators_, first = dict(zip(labels, parts, strict=True)), parts[0]
        joined = reduce(Rows.join, [part._rows for part in parts])
        if not first.judges_nearness:
            joined = replace(joined, Z=np.zeros((len(code), 0)))
        each = np.empty(len(labels), dtype=object)
        each[:] = labels
        order = np.argsort(np.argsort(code, kind="stable"))
        self._rows, self.n_calibration_ = replace(joined.take(order), groups=each[code]), len(code)
        if not first.judges_nearness:  # zeros that take no memory
            Z = np.broadcast_to(0.0, (len(code), first.n_features_in_))
            self._rows = replace(self._rows, Z=Z)
        self._training, self._left_out = first._training, first._left_out
        self._length_scale, self.weights_ = first._length_scale, self._rows.weights

    def predict_distribution(
        self, Z: Any, y_pred: Any, *, bounds: Any = None, weights: Any = None, groups: Any = None
    ) -> Distribution:
        """The distribution at each row, by the calibrator of its group; see :meth:`fit`."""
        check_is_fitted(self)
        refuse_distribution(self)
        y_pred, weights, groups = same_rows(Z, "Z", y_pred=y_pred, weights=weights, groups=groups)
        numbers, n_new = self._numbers(groups, Z), valid.n_rows(Z)
        every = Rows(Z, weights=_checked(weights, "weights", n_new))
        unseen = [label for label in numbers if label not in self.calibrators_]
        if unseen:
            raise CalliperError(
                f"{len(unseen)} of {len(numbers)} groups of the new rows have no calibration rows "
                f"(for example {unseen[0]!r}), so they have no distribution: leave these rows out, "
                "or calibrate on rows from these groups. (Their intervals are infinite.)"
            )
        centre = valid.check_vector(y_pred, "y_pred", n=n_new)
        parts = []
        for label, rows in numbers.items():
            own, new = self.calibrators_[label], every.take(rows)
            how = {"bounds": bounds, "weights": new.weights}
            parts.append((rows, own.predict_distribution(new.Z, centre[rows], **how)))
        ends, nothing = parts[0][1].bounds, np.empty((n_new, 0))
        n, first = self.n_calibration_, self.signed_thresholds
        return GroupedDistribution(centre, nothing, first, n, bounds=ends, parts=tuple(parts))

    def _radii(self, new: Rows, levels: Levels, confidence: Any) -> FloatArray:
        numbers, n_new = self._numbers(new.groups, new.Z), valid.n_rows(new.Z)
        every = Rows(new.Z, weights=_checked(new.weights, "weights", n_new))
        least = [*map(required_calibration_size, levels)]
        if confidence is not None:  # refused, if it is, whether or not any group is asked
            next(iter(self.calibrators_.values())).guarantee(levels[0], confidence)
            least = [required_for_confidence(level, confidence) for level in levels]
        radius, short = np.full((n_new, len(levels)), np.inf), {}
        for label, rows in numbers.items():
            own = self.calibrators_.get(label)
            n = 0 if own is None else own.n_calibration_
            # With weights, each row has a level of its own that it reaches.
            ranked = own is None or (own.by_rank and own.weights_ is None)
            columns = [j for j in range(len(levels)) if n >= least[j] or not ranked]
            if len(columns) < len(levels):
                short[label] = n
            if own is not None and columns:
                asked = tuple(levels[j] for j in columns)
                radius[rows[:, None], columns] = own._radii(every.take(rows), asked, confidence)
        if short:
            _warn_of_short(short, levels[-1], least[-1])
        return radius

    def guarantee(self, coverage: float = 0.9, confidence: float | None = None) -> Guarantee:
        """The guarantee with its assumptions, in numbers that hold for every group."""
        check_is_fitted(self)
        promises = [own.guarantee(coverage, confidence) for own in self.calibrators_.values()]

        def worse(promise: Guarantee) -> tuple[float, int]:
            # With a confidence all finite intervals promise alike, by more points or by fewer.
            alike = confidence is not None and promise.proved < 1
            return 0.0 if alike else promise.proved, promise.n_calibration

        worst: Guarantee = min(promises, key=worse)
        where = f"in each of the {len(promises):,} groups (with the lowest guarantee of these"
        infinite = [
            f"{k!r}" for k, p in zip(self.calibrators_, promises, strict=True) if p.proved == 1
        ]
        if 0 < len(infinite) < len(promises):
            named = ", ".join(infinite[:NAMED]) + (", …" if len(infinite) > NAMED else "")
            where += f"; infinite, with too few rows, in {len(infinite):,}: {named}"
        return replace(worst, method=f"{worst.method} {where})", groups=len(promises))

    def _proved(self, level: float) -> float:
        return min(float(own.guaranteed_coverage(level)) for own in self.calibrators_.values())

    def asked(self, groups: Any) -> Any:
        """The groups that were passed, or the parameter ``groups``; refused if there is neither."""
        given = self.groups if groups is None else groups
        if given is None:
            raise CalliperError(
                "Grouped needs the group of each row: pass groups= to both fit and predict_radius "
                "(with ConformalRegressor, to calibrate and predict_interval)."
            )
        return given

    def _numbers(self, groups: Any, Z: Any) -> dict[Any, IntArray]:
        """The numbers of each group's rows; refused if these are no rows that can be picked."""
        valid.refuse_sparse(Z, "Z")
        valid.refuse_no_rows(Z, "Z")
        return rows_of_groups(row_values(self.asked(groups), Z, "groups"))


def _checked(values: Any, name: str, n: int) -> FloatArray | None:
    return None if values is None else valid.check_vector(values, name, n=n)


def _warn_of_short(short: dict[Any, int], level: float, least: int) -> None:
    """One warning that says which groups need how many more rows."""
    told = [
        f"group {label!r} has {n} ({least - n} more needed)"
        for label, n in sorted(short.items(), key=lambda item: item[1])
    ]
    rest = f", and {len(told) - NAMED} more groups have too few" if len(told) > NAMED else ""
    warn(
        f"Coverage {level:g} needs at least {least} calibration rows in each group, but "
        f"{', '.join(told[:NAMED])}{rest}: intervals there are infinite. "
        "Calibrate on more rows from such groups, or merge similar groups.",
        SmallCalibrationWarning,
    )

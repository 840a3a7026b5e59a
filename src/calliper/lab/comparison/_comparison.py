"""What a comparison holds: points, intervals of each method, measures, findings and verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import rankdata

from calliper._types import FloatArray, IntArray
from calliper._validation import check_features, check_vector, labels_of
from calliper._writing import to_text
from calliper.exceptions import CalliperError
from calliper.guarantees import Guarantee
from calliper.intervals import Intervals
from calliper.lab.metrics import CoverageTable
from calliper.rows import same_rows
from calliper.scores import Score

#: Increased when a field of the JSON changes its meaning or is removed, not when one is added.
SCHEMA = 1
#: The label of rows that have none.
NO_LABEL = "(missing)"
#: Features examined one by one; of more, those most correlated with the error.
MOST_FEATURES = 8

Severity = Literal["void", "warning", "note"]


@dataclass(frozen=True, eq=False)
class Points:
    """Features, targets, predictions and names of the same rows.

    Parameters
    ----------
    Z : (n, d) features, or (n,) for one
    y, y_pred : (n,) targets, and predictions of the model
    ids : n names of the rows, shown with their points, optional
    feature_names : d names, by default ``z0``, ``z1``, …

    Examples
    --------
    >>> Points([[0.0], [1.0]], y=[1.0, 2.0], y_pred=[1.1, 1.9]).feature_names
    ('z0',)
    """

    Z: FloatArray
    y: FloatArray
    y_pred: FloatArray
    ids: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] = ()
    #: Row labels if a series or a frame was passed, otherwise None.
    index: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        same_rows(self.Z, "Z", y=self.y, y_pred=self.y_pred, ids=self.ids)
        one = np.ndim(self.Z) == 1
        Z = check_features(np.asarray(self.Z, dtype=float)[:, None] if one else self.Z)
        n, d = Z.shape
        names = tuple(map(str, self.feature_names)) or tuple(f"z{i}" for i in range(d))
        if len(names) != d or len(set(names)) < len(names):
            what = f"feature_names must be {d} different names, one for each column of Z"
            raise CalliperError(f"{what}; got {len(names)}: {names!r}.")
        labels = map(labels_of, (self.Z, self.y, self.y_pred))
        self.__dict__.update(
            index=next((each for each in labels if each is not None), None),
            Z=Z,
            y=check_vector(self.y, "y", n=n),
            y_pred=check_vector(self.y_pred, "y_pred", n=n),
            ids=None if self.ids is None else check_labels(self.ids, "ids", n=n),
            feature_names=names,
        )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def errors(self) -> FloatArray:
        """``|y − ŷ|``."""
        return np.abs(self.y - self.y_pred)

    def take(self, rows: IntArray) -> "Points":
        """Some of the rows."""
        ids = None if self.ids is None else tuple(self.ids[row] for row in rows)
        return Points(self.Z[rows], self.y[rows], self.y_pred[rows], ids, self.feature_names)


def check_labels(labels: Sequence[Any], name: str, *, n: int) -> tuple[str, ...]:
    """One label for each row as text; :data:`NO_LABEL` where it is None, NaN or their text."""
    known = ("" if label is None or label != label else str(label) for label in labels)
    texts = [NO_LABEL if t.strip().lower() in ("", "nan", "<na>") else t for t in known]
    if len(texts) != n:
        raise CalliperError(f"{name} has {len(texts)} labels for {n} rows.")
    return tuple(texts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """The intervals of one method, (m, L), with a guarantee for each level, or why it failed.

    It may be plain split conformal (``constant``), the baseline, or calliper's ``default``;
    ``seconds`` is the time to fit and predict, ``what`` its description in a line.
    """

    method: str
    intervals: Intervals | None = None
    guarantees: tuple[Guarantee, ...] = ()
    seconds: float = 0.0
    constant: bool = False
    default: bool = False
    needs_training: bool = False
    what: str = ""
    failure: str | None = None
    warned: tuple[str, ...] = ()

    def at(self, level: float) -> Intervals:
        """Its intervals at one level."""
        if self.intervals is None:
            raise CalliperError(f"{self.method} failed: {self.failure}")
        return self.intervals.at(level)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One method at one level; NaN where a measure does not exist.

    99 of 100 draws of calibration and test set put the coverage between ``chance_low`` and
    ``chance_high``. ``score`` is the mean interval score, ``relative_score`` that over the one of
    split. The worst coverage is that of a tenth, or of other parts where ties allow no tenths.
    """

    method: str
    level: float
    coverage: float
    coverage_error: float
    chance_low: float
    chance_high: float
    mean_width: float
    median_width: float
    score: float
    score_error: float
    relative_score: float
    relative_score_error: float
    worst_by_prediction: float
    worst_by_width: float
    tau_si: float
    r2_sqi: float
    fraction_infinite: float
    proved: float
    guarantee: str
    seconds: float


class Cut(NamedTuple):
    """Coverage in bins ``by`` width, prediction, group or feature; these two have a ``name``."""

    method: str
    level: float
    by: str
    name: str
    table: CoverageTable


@dataclass(frozen=True)
class Check:
    """A finding that matters before the numbers are trusted.

    ``kind`` is a word for programs, ``title`` what was found, ``meaning`` what follows from it.
    """

    kind: str
    severity: Severity
    title: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict at one level in plain words.

    ``method`` is recommended, ``clear`` if it is better than a constant width beyond chance;
    ``size`` tells how wide its intervals are, ``caveat`` the one thing to know before using it,
    and ``instead`` the runner-up, and how it differs.
    """

    level: float
    method: str | None = None
    clear: bool = False
    headline: str
    covers: str
    adapts: str = "Cannot be determined."
    why: str = "Cannot be determined."
    promise: str
    as_good: tuple[str, ...] = ()
    size: str = ""
    caveat: str = ""
    instead: str = ""


@dataclass(eq=False, kw_only=True)
class Comparison:
    """The result of :func:`compare`; :meth:`to_json` writes it, ``calliper.lab.report`` shows it.

    Attributes
    ----------
    calibration, test, training : the points; ``training`` may be None
    levels, coverage : all levels, and the one that the verdict is about
    groups, group_name : labels of the test points, or None, and what they are called
    score_function, random_state : of :func:`compare`
    answers : the intervals of each method, or its ``failure``
    records : measures of each method that did not fail, at each level
    parts, deciles : coverage in parts of the test set; errors in each tenth of the widths
    checks : findings about the data, the most severe first: ``kind``, ``severity`` (``"void"``,
        ``"warning"`` or ``"note"``), ``title`` and ``meaning``
    verdicts : one for each level: ``method``, ``headline``, and more in words

    Examples
    --------
    >>> from calliper import Split, compare
    >>> x = np.random.default_rng(0).normal(size=(2, 200))
    >>> found = compare(*(Points(each, each, 0 * each) for each in x), methods={"split": Split()})
    >>> found.record("split", 0.9).relative_score, len(found.records) == len(found.levels)
    (1.0, True)
    """

    calibration: Points
    test: Points
    training: Points | None = None
    levels: tuple[float, ...]
    coverage: float
    groups: tuple[str, ...] | None = None
    group_name: str = "group"
    score_function: Score | None = None
    random_state: int = 0
    answers: tuple[Answer, ...] = ()
    records: tuple[Record, ...] = ()
    parts: tuple[Cut, ...] = ()
    deciles: tuple[dict[str, Any], ...] = ()
    checks: tuple[Check, ...] = ()
    verdicts: tuple[Verdict, ...] = ()

    def __post_init__(self) -> None:
        expected = self.calibration.feature_names
        for points, name in ((self.test, "test"), (self.training, "training")):
            if points is not None and points.feature_names != expected:
                what = f"calibration and {name} points must have the same features"
                raise CalliperError(f"{what}; got {expected} and {points.feature_names}.")

    @property
    def verdict(self) -> Verdict:
        """The verdict at ``coverage``."""
        return self.verdicts[self.levels.index(self.coverage)]

    @property
    def is_void(self) -> bool:
        """Whether rows that sets share make the numbers meaningless."""
        return any(check.severity == "void" for check in self.checks)

    @property
    def answered(self) -> list[Answer]:
        """The methods that did not fail."""
        return [answer for answer in self.answers if answer.intervals is not None]

    @property
    def methods(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(answer.method for answer in self.answered)

    @cached_property
    def shown_features(self) -> tuple[int, ...]:
        """Columns by which test points are cut into parts; the test rows do not choose them."""
        Z, known = self.calibration.Z, self.calibration
        # A feature that equals the prediction is shown as the prediction.
        found = [i for i, z in enumerate(Z.T) if np.ptp(z) > 0 and (z != known.y_pred).any()]
        if len(found) > MOST_FEATURES and np.ptp(known.errors) > 0:
            # The rank correlation of each with the error, (d,).
            strength = np.abs(np.corrcoef(rankdata(Z[:, found], axis=0).T, rankdata(known.errors)))
            found = [found[i] for i in np.argsort(strength[-1, :-1])[::-1]]
        return tuple(sorted(found[:MOST_FEATURES]))

    def record(self, method: str, level: float) -> Record:
        """The measures of one method at one level."""
        return next(r for r in self.records if r.method == method and r.level == level)

    def to_json(self, *, provenance: Mapping[str, Any] | None = None) -> str:
        """All numbers as JSON; ``null`` for undefined numbers, ``"inf"`` for infinity."""
        values = {**self.to_values(), "provenance": dict(provenance or {})}
        return to_text(values, ensure_ascii=False, indent=1)

    def to_values(self) -> dict[str, Any]:
        """The values that :meth:`to_json` writes: everything but the points."""
        columns = ("labels", "n", "coverage", "lower", "upper", "mean_width")
        own = ("coverage", "levels", "methods", "random_state", "deciles")
        failed = [{"method": a.method, "failure": a.failure} for a in self.answers if a.failure]
        return {
            "schema": SCHEMA,
            **{name: getattr(self, name) for name in own},
            "n_calibration": len(self.calibration),
            "n_test": len(self.test),
            "n_training": None if self.training is None else len(self.training),
            "features": self.test.feature_names,
            "verdicts": [*map(asdict, self.verdicts)],
            "checks": [*map(asdict, self.checks)],
            "records": [*map(asdict, self.records)],
            "failures": failed,
            "parts": [
                dict(zip(part._fields, part[:-1], strict=False))
                | {column: vars(part.table)[column] for column in columns}
                for part in self.parts
            ],
        }

"""The Python API used in any order, with arrays, levels, groups and weights of every kind.

State machines of Hypothesis: one uses a calibrator, one a regressor around a model, of every method
that is named in ``checks/promises/methods.py``. Every call must end in one of two ways. Either it answers,
with no NaN, nothing upside down, wider intervals at higher levels, each row as if asked alone, and
the same again when asked again. Or it refuses by an error that somebody raised on purpose and that
says something; the object is then as it was (a ``fit`` that fails leaves it unfitted).
"""

from __future__ import annotations

import copy
import linecache
import os
import pickle
import traceback
import warnings
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import calliper
from calliper import ConformalRegressor, FullRescaled, Split
from calliper.calibrators import LVD, Grouped
from calliper.exceptions import CalliperError
from cases.kept import brought
from checks.promises import methods

#: How each call ended.
ENDED: Counter[str] = Counter()

NAN = float("nan")


def rows_of(kind, rng, n, d):
    """Rows of features, or what somebody takes for them."""
    plain = rng.normal(size=(n, d))
    return {
        "plain": lambda: plain, "grid": lambda: rng.integers(0, 3, (n, d)) / 2, "zeros": lambda: np.zeros((n, d)),
        "copies": lambda: np.repeat(plain[:1], n, axis=0), "whole": lambda: rng.integers(-2, 3, (n, d)),
        "half": lambda: plain.astype(np.float16), "single": lambda: plain.astype(np.float32), "list": lambda: plain.tolist(),
        "frame": lambda: pd.DataFrame(plain), "named": lambda: pd.DataFrame(plain, columns=[f"c{i}" for i in range(d)]),
        "columns": lambda: np.asfortranarray(plain), "strided": lambda: np.repeat(plain, 2, axis=0)[::-2],
        "yes": lambda: plain > 0, "large": lambda: plain * 1e149, "small": lambda: plain * 5e-324, "objects": lambda: plain.astype(object),
        "empty": lambda: np.empty((0, d)), "number": lambda: 1.0, "nothing": lambda: None, "line": lambda: plain[:, 0],
        "cube": lambda: plain[None], "wider": lambda: np.hstack([plain, plain]), "no columns": lambda: np.empty((n, 0)),
        "nan": lambda: np.where(plain > 0, plain, NAN), "infinite": lambda: np.where(plain > 0, plain, np.inf),
        "huge": lambda: plain * 1e200, "text": lambda: plain.astype(str), "words": lambda: np.full((n, d), "word"),
        "none": lambda: np.full((n, d), None), "complex": lambda: plain + 1j, "ragged": lambda: [[1.0], [1.0, 2.0]],
        "sparse": lambda: sparse.csr_matrix(plain), "coordinates": lambda: sparse.coo_matrix(plain),
        "dates": lambda: np.full((n, d), np.datetime64("2024-01-01")),
        "set": lambda: {1.0, 2.0}, "masked": lambda: np.ma.masked_greater(plain, 0), "iterator": lambda: iter(plain.tolist()),
        "dictionary": lambda: {"a": 1}, "bytes": lambda: b"abc", "word": lambda: "word", "record": lambda: np.zeros(n, [("a", float)]),
    }[kind]()  # fmt: skip


SOUND_ROWS = [
    "plain",
    "grid",
    "zeros",
    "copies",
    "whole",
    "half",
    "single",
    "list",
    "columns",
    "strided",
    "yes",
    "large",
    "small",
    "objects",
]
ODD_ROWS = ["frame", "named", "empty", "number", "nothing", "line", "cube", "wider", "no columns", "nan", "infinite", "huge", "text", "words",
            "none", "complex", "ragged", "sparse", "coordinates", "dates", "set", "masked", "iterator", "dictionary", "bytes", "word", "record"]  # fmt: skip


def values_of(kind, rng, n):
    """One number a row, or what somebody takes for that."""
    plain = np.abs(rng.normal(size=n))
    return {
        "plain": lambda: plain, "ties": lambda: rng.integers(0, 3, n) / 2, "zeros": lambda: np.zeros(n), "same": lambda: np.full(n, 0.1),
        "ones": lambda: np.ones(n), "whole": lambda: rng.integers(0, 9, n), "bytes": lambda: rng.integers(0, 200, n).astype(np.uint8),
        "half": lambda: plain.astype(np.float16), "list": lambda: plain.tolist(), "series": lambda: pd.Series(plain, index=range(5, n + 5)),
        "column": lambda: plain[:, None], "small": lambda: plain * 1e-310, "large": lambda: plain * 1e300, "yes": lambda: plain > 0.5,
        "mixed": lambda: np.where(plain > 1, 1e290, 1e-290), "objects": lambda: plain.astype(object), "heavy": lambda: np.exp(20 * plain),
        "fewer": lambda: plain[1:], "more": lambda: np.append(plain, 1.0), "negative": lambda: -plain, "nan": lambda: np.where(plain > 1, plain, NAN),
        "infinite": lambda: np.where(plain > 1, plain, np.inf), "text": lambda: plain.astype(str), "word": lambda: "word", "nothing": lambda: None,
        "number": lambda: 1.0, "square": lambda: np.ones((n, n + 1)), "complex": lambda: plain + 1j, "none": lambda: [None] * n,
        "huge": lambda: np.full(n, 1.7e308), "ragged": lambda: [[1.0], [1.0, 2.0]], "dates": lambda: np.full(n, np.datetime64("2024-01-01")),
        "giant": lambda: [10**400] * n, "masked": lambda: np.ma.masked_greater(plain, 1),
        "sparse": lambda: sparse.csr_matrix(plain[:, None]), "dictionary": lambda: dict(enumerate(plain)), "set": lambda: {*plain},
        "iterator": lambda: iter(plain),
    }[kind]()  # fmt: skip


SOUND_VALUES = ["plain", "plain", "ties", "zeros", "same", "ones", "whole", "bytes", "half", "list", "series", "column", "small", "large",
                "mixed", "objects", "heavy"]  # fmt: skip
ODD_VALUES = ["yes", "fewer", "more", "negative", "nan", "infinite", "text", "word", "nothing", "number", "square", "complex", "none", "huge",
              "ragged", "dates", "giant", "masked", "sparse", "dictionary", "set", "iterator"]  # fmt: skip

SOUND_LEVELS = [
    0.9,
    0.5,
    1 / 3,
    0.999,
    [0.2, 0.5, 0.9],
    [0.5],
    (1e-9, 1 - 1e-12),
    np.float32(0.9),
    np.array([0.3, 0.8]),
    np.array(0.75),
]
ODD_LEVELS = [0, 1, -0.5, NAN, np.inf, [], [0.9, 0.5], [0.5, 0.5], "0.9", "high", None, 90, [[0.5]], True, Fraction(1, 3), Decimal("0.9"), [None],
              [0.5, NAN], 0.5j, {0.5}, 10**400, [0.5, [0.9]], np.array(["a"]), 5e-324, 1 - 1e-17]  # fmt: skip
GROUPS = [lambda n: np.arange(n) % 2, lambda n: ["a"] * n, lambda n: np.array(["u", "v"])[np.arange(n) // 2 % 2], lambda n: [None] * n,
          lambda n: np.full(n, NAN), lambda n: ["a"] * (n + 1), lambda n: 7, lambda n: "missing", lambda n: [[1]] * n, lambda n: [{}] * n,
          lambda n: [("a", 1)] * n, lambda n: pd.Categorical(["a"] * n), lambda n: np.arange(n),
          lambda n: dict.fromkeys(range(n)), lambda n: {*range(n)}, lambda n: np.full(n, "a", dtype=object), lambda n: iter("a" * n)]  # fmt: skip


def mostly(sound, odd):
    """Something sound four times of five."""
    return st.integers(0, 4).flatmap(lambda which: st.sampled_from(odd if which == 4 else sound))


ROWS, VALUES, LEVELS = (
    mostly(SOUND_ROWS, ODD_ROWS),
    mostly(SOUND_VALUES, ODD_VALUES),
    mostly(SOUND_LEVELS, ODD_LEVELS),
)
CONFIDENCE = st.sampled_from([None, None, None, 0.9, 0, "x", [0.5], {}])
COUNT, SEED = st.integers(1, 12), st.integers(0, 2**16)

#: Costly ones come less often.
SLOW = ("Mahalanobis", "Tuned", "ForestProximity", "LVD", "Locart", "RLCP", "Conditional")
CALIBRATORS = methods.CALIBRATORS | {
    "LVD": LVD(random_state=0),
    "Grouped(Split)": Grouped(Split()),
    "Grouped(FullRescaled)": Grouped(FullRescaled()),
}
#: Of which each level is a method of its own, so that radii of several may cross.
EACH_LEVEL = ("quantile", "RCP", "SLCP", "Conditional", "LVD")
QUICK = [name for name in CALIBRATORS if not any(slow in name for slow in SLOW)]


class RefusedError(Exception):
    """A call was refused as it should be."""


def is_named(error):
    """Whether somebody raised this on purpose: here, or where scikit-learn checks arrays."""
    places = traceback.extract_tb(error.__traceback__)
    if isinstance(error, NotFittedError) or any(at.filename == methods.__file__ for at in places):
        return True  # the latter by a model, which has its own words
    if not isinstance(error, ValueError | TypeError) or not str(error).strip():
        return False
    last = places[-1]
    if isinstance(error, CalliperError):
        return True
    if "sklearn" in last.filename and not last.filename.endswith("_indexing.py"):
        return True  # of checks; what picks rows trusts them
    return linecache.getline(last.filename, last.lineno).strip().startswith("raise")


def called(what, call, *given, **known):
    """What a call answers; RefusedError if it refuses by name, and all else is found."""
    try:
        answer = call(*given, **known)
    except Exception as error:
        if is_named(error):
            ENDED[f"{what} refused"] += 1
            raise RefusedError(str(error)) from error
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(at.filename)}:{at.lineno}"
        raise AssertionError(f"{what}: {type(error).__name__} {error!s:.100} at {place}") from error
    ENDED[f"{what} answered"] += 1
    return answer


def same(one, other):
    """Whether arrays are equal to the last bit."""
    one, other = np.asarray(one), np.asarray(other)
    return (
        one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    )


def close(one, other, size=0.0):
    """Whether arrays are equal but for rounding: their own, or that of sums of terms of this size.

    Of a mean of 1e290 and -1e290 what is left is their rounding, which depends on the order of
    terms, and that on the number of rows. Ten terms or so are wrong by a few times 1e-16 of the
    largest, so that 1e-14 of it is ample; all else must agree by its own digits.
    """
    return np.shape(one) == np.shape(other) and np.allclose(
        one, other, rtol=1e-9, atol=1e-14 * size
    )


def _no_answer(error):
    """None of what is not fitted; of what takes other rows than these, its words."""
    if isinstance(error, NotFittedError):
        return None
    if not is_named(error):
        raise error
    return np.array([str(error)])


class Use(RuleBasedStateMachine):
    """What calibrators and regressors have in common: to be copied, kept, and asked once more."""

    folder = "."

    def __init__(self):
        super().__init__()
        self.made, self.known, self.d, self.how, self.size = None, None, 1, {}, 0.0

    def answer(self):
        """Bits of what is said of some rows; None where nothing can be."""
        raise NotImplementedError

    def again(self):
        """Note what is said now, after a change."""
        self.known = self.answer()

    def unchanged(self):
        """After a call that must change nothing."""
        now = self.answer()
        assert (self.known is None) == (now is None), "no longer answers, or does now"
        assert now is None or same(self.known, now), "answers otherwise than before"

    def tried(self, what, call, *given, **known):
        """As ``called``; a refusal must have changed nothing. None then."""
        try:
            return called(what, call, *given, **known)
        except RefusedError:
            self.unchanged()
            return None

    @rule(how=st.sampled_from(["copy", "deepcopy", "pickle", "save", "parameters", "clone"]))
    def moved(self, how):
        """Go on with a copy, which must answer the same."""
        if how == "save":
            path = os.path.join(self.folder, "machine.calliper")
            if self.tried("save", self._save, path):
                known = {"bring": brought(self.made)}
                self.made = called("load", calliper.load, path, self._model(), **known)
                os.unlink(path)
        elif how == "clone":
            called("clone", clone, self.made)
        elif how == "parameters":
            given = called("get_params", self.made.get_params, deep=False)
            called("set_params", self.made.set_params, **given)
            self.tried("set_params", self.made.set_params, no_such_parameter=1)
        else:
            ways = {
                "copy": copy.copy,
                "deepcopy": copy.deepcopy,
                "pickle": lambda made: pickle.loads(pickle.dumps(made)),
            }
            self.made = called(how, ways[how], self.made)
        self.unchanged()

    @rule(level=LEVELS)
    def guarantee(self, level):
        """What is promised is at most a certainty, and said in words."""
        if hasattr(self.made, "guaranteed_coverage"):
            proved = self.tried("guaranteed_coverage", self.made.guaranteed_coverage, level)
            assert proved is None or np.all(np.asarray(proved) <= 1), proved
        promise = self.tried("guarantee", self.made.guarantee, level)
        assert promise is None or promise.describe(), "a promise without words"

    def _save(self, path):
        calliper.save(self.made, path)
        return True

    def _model(self):
        return None


class UseCalibrator(Use):
    """Fit, extend, and ask for a radius or a distribution."""

    @initialize(place=SEED, often=st.integers(0, 9), d=st.integers(1, 2), n=COUNT)
    def begin(self, place, often, d, n):
        """One of the methods, fitted to a few rows."""
        names = QUICK if often else [*CALIBRATORS]
        self.name, self.d = names[place % len(names)], d
        self.made, self.grouped = clone(CALIBRATORS[self.name]), self.name.startswith("Grouped")
        self.fit("grid", "ties", n, 5 * place + 1, weighted=place % 3 == 0, signed=place % 2 == 0)

    def answer(self):
        Z = np.resize([0.0, 0.5, -1.0, 2.0], (3, self.d))
        how = {"groups": [0, 1, 0]} if self.grouped else {}
        how |= {"weights": [1.0, 2.0, 0.5]} if self.how.get("weights") is not None else {}
        try:
            return self.made.predict_radius(Z, [0.3, 0.9], **how)
        except Exception as error:
            return _no_answer(error)

    def per_row(self, rng, n, place, weighted, scores):
        """Groups, weights and signs, where they are taken; mostly sound ones."""
        how, inner = {}, self.made
        if self.grouped:
            how["groups"], inner = (
                GROUPS[place % len(GROUPS) if place % 5 == 0 else 0](n),
                self.made.calibrator,
            )
        if weighted and "weights" in inner.uses:
            kinds = (
                SOUND_VALUES + ODD_VALUES if place % 5 == 0 else ["ones", "plain", "whole", "heavy"]
            )
            how["weights"] = values_of(kinds[place % len(kinds)], rng, n)
        if scores is not None and "signs" in inner.uses:
            signs = rng.choice([-1.0, 1.0], n)
            sizes = np.resize(np.ravel(np.asarray(scores, dtype=object)), n)
            how["signs"] = np.array(
                [
                    sign * (not np.isscalar(size) or bool(size))
                    for sign, size in zip(signs, sizes, strict=True)
                ]
            )
        return how

    @rule(
        rows=ROWS, values=VALUES, n=COUNT, place=SEED, weighted=st.booleans(), signed=st.booleans()
    )
    def fit(self, rows, values, n, place, weighted, signed):
        """Fit anew; a fit that fails leaves nothing."""
        rng = np.random.default_rng(place)
        Z, scores = rows_of(rows, rng, n, self.d), values_of(values, rng, n)
        how = self.per_row(rng, n, place, weighted, scores if signed else None)
        d = (
            np.shape(Z)[1]
            if rows not in ("ragged", "sparse", "coordinates") and np.ndim(Z) == 2
            else self.d
        )
        train, errors = rng.normal(size=(8, d)), rng.normal(size=8)
        told = methods.told(self.name, self.made, train, errors)
        told = {"training": (train, None, errors)} if self.name == "LVD" else told
        try:
            called("fit", self.made.fit, Z, scores, **told, **how)
            self.how, self.d = how, getattr(self.made, "n_features_in_", d)
        except RefusedError:
            assert self.answer() is None, "a fit that failed left something"
        self.again()

    @rule(
        rows=ROWS,
        values=VALUES,
        n=COUNT,
        place=SEED,
        window=st.sampled_from([None, None, 1, 5, 0, -1, 2.5, "all", True]),
    )
    def extend(self, rows, values, n, place, window):
        """Add points, as given at first or not."""
        rng = np.random.default_rng(place)
        Z, scores = rows_of(rows, rng, n, self.d), values_of(values, rng, n)
        asked = {name: self.how.get(name) is not None for name in ("weights", "signs")}
        how = self.per_row(
            rng, n, place, asked["weights"] ^ (place % 9 == 0), scores if asked["signs"] else None
        )
        if self.tried("extend", self.made.extend, Z, scores, window=window, **how) is not None:
            self.again()

    @rule(
        rows=ROWS,
        level=LEVELS,
        n=COUNT,
        place=SEED,
        confidence=CONFIDENCE,
    )
    def predict_radius(self, rows, level, n, place, confidence):
        """Radii that are numbers, grow with the level and are those of each row alone."""
        rng = np.random.default_rng(place)
        Z = rows_of(rows, rng, n, self.d)
        how = self.per_row(
            rng, n, place, (self.how.get("weights") is not None) ^ (place % 9 == 0), None
        )
        if self.made.has_law or place % 9 == 1:
            how["confidence"] = confidence
        radius = self.tried("predict_radius", self.made.predict_radius, Z, level, **how)
        if radius is None:
            return
        assert not np.isnan(radius).any(), "a radius is NaN"
        assert np.shape(radius) == (len(Z), *np.shape(level)), "the shape is another"
        if np.ndim(level) and not any(word in self.name for word in EACH_LEVEL):
            assert (radius[:, 1:] >= radius[:, :-1]).all(), "a higher level is narrower"
        if rows in SOUND_ROWS and "RLCP" not in self.name:
            alone = [_row(self.made.predict_radius, Z, level, how, i) for i in range(len(Z))]
            assert close(np.concatenate(alone), radius), "a row alone is another"
        self.unchanged()

    @rule(rows=ROWS, n=COUNT, place=SEED, level=LEVELS, values=VALUES)
    def predict_distribution(self, rows, n, place, level, values):
        """A distribution that can be asked whatever there is to ask."""
        rng = np.random.default_rng(place)
        Z, centre = rows_of(rows, rng, n, self.d), values_of(values, rng, n)
        how = self.per_row(
            rng, n, place, (self.how.get("weights") is not None) ^ (place % 9 == 0), None
        )
        made = self.tried("predict_distribution", self.made.predict_distribution, Z, centre, **how)
        if made is not None:
            asked_distribution(self, made, level, centre, n)


def _row(call, X, level, how, i):
    """The answer for one row, asked alone."""
    own = {
        name: value if name in ("confidence", "bounds") else np.asarray(value)[i : i + 1]
        for name, value in how.items()
        if value is not None
    }
    return call(X[i : i + 1], level, **own)


def asked_distribution(machine, made, level, y, n):
    """Whether quantiles rise, distribution functions are in [0, 1], and nothing is NaN."""
    ends = machine.tried("quantile", made.quantile, level)
    assert ends is None or not np.isnan(ends).any(), "a quantile is NaN"
    assert ends is None or not np.ndim(level) or (ends[:, 1:] >= ends[:, :-1]).all(), (
        "quantiles fall"
    )
    interval = machine.tried("interval", made.interval, level)
    assert interval is None or sound(interval), "an interval is NaN or upside down"
    share = machine.tried("cdf", made.cdf, y)
    assert share is None or ((share >= 0) & (share <= 1)).all(), "a share is none"
    place = machine.tried("pit", made.pit, y, random_state=0)
    assert place is None or ((place >= 0) & (place <= 1)).all(), "a place is none"
    drawn = machine.tried("sample", made.sample, 3, random_state=0)
    assert drawn is None or not np.isnan(drawn).any(), "a draw is NaN"
    band = machine.tried("cdf_band", made.cdf_band, y)
    assert band is None or ((np.stack(band) <= 1).all() and (band[0] <= band[1]).all()), "no band"
    score = machine.tried("crps", made.crps, y)
    assert score is None or (score >= 0).all(), "a score is NaN or negative"


def sound(ends):
    """Whether intervals are numbers and not upside down, wider at higher levels."""
    lower, upper = np.asarray(ends.lower), np.asarray(ends.upper)
    if np.isnan(lower).any() or np.isnan(upper).any() or not (lower <= upper).all():
        return False
    if lower.ndim == 1:
        return True
    return bool((lower[:, 1:] <= lower[:, :-1]).all() and (upper[:, 1:] >= upper[:, :-1]).all())


@cache
def fitted_line(d):
    """A model of d columns."""
    rng = np.random.default_rng(d)
    return LinearRegression().fit(rng.normal(size=(9, d)), rng.normal(size=9))


REGRESSORS = methods.REGRESSORS | methods.REFITTED | {
    f"ConformalRegressor({name})": ConformalRegressor(LinearRegression(), CALIBRATORS[name], embed=embed)
    for name, embed in (("Split", "auto"), ("FullRescaled", "auto"), ("FullRescaled(KNN 3)", "inputs"),
                        ("JackknifeRescaled(KNN 2)", "prediction"), ("MADSplit(KNN)", "inputs"), ("LCP(gaussian)", "auto"))
}  # fmt: skip


class UseRegressor(Use):
    """Train, calibrate, extend, and ask for intervals or a distribution."""

    @initialize(place=SEED, d=st.integers(1, 2))
    def begin(self, place, d):
        """One of the regressors, with a model that is trained or not."""
        self.name, self.d = [*REGRESSORS][place % len(REGRESSORS)], d
        self.made = clone(REGRESSORS[self.name])
        self.refitted = self.name in methods.REFITTED
        if isinstance(self.made.estimator, LinearRegression):
            self.made.set_params(estimator=fitted_line(d), refits=0)
        self.learn("plain", "plain", 12, 8 * place + 1, train=place % 2 == 0)

    def answer(self):
        X = np.resize([0.0, 0.5, -1.0, 2.0], (3, self.d))
        how = {name: [1, 2, 1] for name in ("groups", "weights") if self.how.get(name) is not None}
        try:
            return np.stack([*self.made.predict_interval(X, [0.3, 0.8], **how)])
        except Exception as error:
            return _no_answer(error)

    def per_row(self, rng, n, place):
        """Groups or weights, mostly not."""
        how = {}
        if place % 4 == 0:
            how["groups"] = GROUPS[place // 4 % len(GROUPS) if place % 3 == 0 else 0](n)
        if place % 5 == 0:
            kinds = SOUND_VALUES + ODD_VALUES if place % 3 == 0 else ["ones", "plain", "whole"]
            how["weights"] = values_of(kinds[place // 5 % len(kinds)], rng, n)
        return how

    @rule(rows=ROWS, values=VALUES, n=st.integers(1, 24), place=SEED, train=st.booleans())
    def learn(self, rows, values, n, place, train):
        """Train or calibrate; where that fails all is as before."""
        rng = np.random.default_rng(place)
        X, y = rows_of(rows, rng, n, self.d), values_of(values, rng, n)
        train = train or self.refitted
        how = {} if train else self.per_row(rng, n, place)
        if "MADSplit" in self.name and not train:
            how |= {"X_train": rng.normal(size=(9, self.d)), "y_train": rng.normal(size=9)}
        name = "fit" if train else "calibrate"
        if self.tried(name, getattr(self.made, name), X, y, **how) is not None:
            self.how = how
            if self.refitted:  # means of models, whose predictions are of this size
                self.size = float(np.abs(np.asarray(y, dtype=float)).max())
            self.again()

    @rule(
        rows=ROWS,
        values=VALUES,
        n=COUNT,
        place=SEED,
        window=st.sampled_from([None, None, 1, 5, 0, 2.5, "all"]),
    )
    @precondition(lambda self: not self.refitted)
    def extend(self, rows, values, n, place, window):
        """Add rows."""
        rng = np.random.default_rng(place)
        X, y = rows_of(rows, rng, n, self.d), values_of(values, rng, n)
        how = self.new_per_row(rng, n, place)
        if self.tried("extend", self.made.extend, X, y, window=window, **how) is not None:
            self.again()

    def new_per_row(self, rng, n, place):
        """What new rows need, or something odd."""
        if place % 8 == 0:
            return self.per_row(rng, n, place // 8)
        given = {"groups": np.arange(n) % 2, "weights": np.abs(rng.normal(size=n)) + 0.1}
        return {name: given[name] for name in given if self.how.get(name) is not None}

    @rule(rows=ROWS, level=LEVELS, n=COUNT, place=SEED,
          bounds=st.sampled_from([None, None, None, (-1e9, 1e9), (None, 0.5), (1, 0), (NAN, 1), "ab", 3, (0, 10**400)]),
          confidence=CONFIDENCE)  # fmt: skip
    def predict_interval(self, rows, level, n, place, bounds, confidence):
        """Intervals that are numbers, nested, and those of each row alone."""
        rng = np.random.default_rng(place)
        X = rows_of(rows, rng, n, self.d)
        how = self.new_per_row(rng, n, place) | ({} if bounds is None else {"bounds": bounds})
        how |= {"confidence": confidence} if place % 9 == 1 else {}
        how = {} if self.refitted else how
        ends = self.tried("predict_interval", self.made.predict_interval, X, level, **how)
        if ends is None:
            return
        assert sound(ends), "an interval is NaN, upside down or not nested"
        if rows in SOUND_ROWS:
            alone = [
                np.stack([*_row(self.made.predict_interval, X, level, how, i)])
                for i in range(len(X))
            ]
            alone = np.concatenate(alone, axis=1)
            assert close(alone, np.stack([*ends]), self.size), "a row alone is another"
        self.unchanged()

    @rule(rows=ROWS, n=COUNT, place=SEED, level=LEVELS, values=VALUES)
    @precondition(lambda self: not self.refitted)
    def predict_distribution(self, rows, n, place, level, values):
        """A distribution that can be asked whatever there is to ask."""
        rng = np.random.default_rng(place)
        X, y = rows_of(rows, rng, n, self.d), values_of(values, rng, n)
        how = self.new_per_row(rng, n, place)
        made = self.tried("predict_distribution", self.made.predict_distribution, X, **how)
        if made is not None:
            asked_distribution(self, made, level, y, n)

    @rule(rows=ROWS, n=COUNT, place=SEED)
    def predict(self, rows, n, place):
        """The model's own prediction."""
        self.tried(
            "predict", self.made.predict, rows_of(rows, np.random.default_rng(place), n, self.d)
        )

    def _model(self):
        own = getattr(self.made, "estimator_", self.made.estimator)
        return [own, *self.made.models_] if self.refitted else own


MACHINES = (UseCalibrator, UseRegressor)


def prepare(folder):
    """What examines a number; files are saved in this folder."""
    Use.folder = str(folder)
    return examine


def examine(number, *, sequences=10, steps=25, shrink=False):
    """What is wrong with some sequences of calls, '' if nothing is; and how calls ended."""
    ENDED.clear()
    machine = MACHINES[number % 3 // 2]
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    how = settings(
        max_examples=sequences, stateful_step_count=steps, phases=phases, deadline=None, database=None,
        print_blob=False, report_multiple_bugs=False, suppress_health_check=[*HealthCheck],
    )  # fmt: skip
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            run_machine(seed(number)(machine), settings=how)
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            steps = " ".join(note for note in getattr(error, "__notes__", ()) if "state." in note)
            where = f"{os.path.basename(at.filename)}:{at.lineno}"
            return f"{type(error).__name__} {error!s:.300} {where} {steps}", Counter(ENDED)
    return "", Counter(ENDED)

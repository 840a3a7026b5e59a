"""Save what was calibrated, load it again, and say what a file holds."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from calliper._estimator import CalibratedRegressor
from calliper._stored import CalibratedOnStored, stored_predictions
from calliper._types import FloatArray
from calliper._version import __version__
from calliper.calibrators import Calibrator, Grouped
from calliper.exceptions import (
    CalliperError,
    DamagedFileError,
    OtherModelError,
    unheard,
)
from calliper.files import _file
from calliper.files._codec import Reader, Writer, in_words, refuse
from calliper.files._model import (
    ask,
    check_class,
    check_same,
    fingerprint,
    models_again,
    needed,
    parts_of,
    refuse_class,
    refuse_unfitted,
    shorten,
    slots_of,
)
from calliper.monitoring import CoverageMonitor, ExchangeabilityMonitor
from calliper.online import Controller
from calliper.refitting import RefittedRegressor
from calliper.rows import row_values, rows_again
from calliper.shift import LikelihoodRatio

#: What numbers may depend on.
LIBRARIES = {each.__name__: each.__version__ for each in (np, scipy, sklearn)}

#: What can be saved: what promises something, and what does not.
SILENT = (Controller, CoverageMonitor, ExchangeabilityMonitor, LikelihoodRatio)
KINDS = (CalibratedRegressor, Calibrator, RefittedRegressor, CalibratedOnStored, *SILENT)

UNFITTED = (
    "This {name} has not been calibrated, so there is nothing to save: call calibrate or fit first."
)

#: The attribute that has a few rows as they came, of whatever kind; see ``_model.py``.
PROBE = "_probe"

#: Calibration points at which a loaded calibrator is asked for the radius that it gave before.
N_ASKED = 5


def save(calibrated: Any, path: Any) -> None:
    """Save a calibrated object to one file of plain data; the model is not part of it.

    Parameters
    ----------
    calibrated : fitted ``ConformalRegressor`` (``MultiTargetRegressor``, ``JackknifePlus``, …) or
        calibrator
    path : where to write; the file is written completely or not at all

    Returns
    -------
    None
        The file is written.

    Notes
    -----
    The file holds the calibration points, a few calibration rows as they came (so that another
    model is noticed), and what was learnt from training rows. Do not keep secrets in it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from calliper import Split
    >>> path = tempfile.mkdtemp() + "/split.calliper"
    >>> save(Split().fit(np.zeros((9, 1)), np.arange(9.0)), path)
    >>> load(path)
    Split()
    """
    if not isinstance(calibrated, KINDS):
        raise TypeError(
            f"save takes a calibrated ConformalRegressor or a fitted calibrator, then the path; "
            f"got a {type(calibrated).__name__}."
        )
    if isinstance(calibrated, BaseEstimator) and not calibrated.__sklearn_is_fitted__():
        raise NotFittedError(UNFITTED.format(name=type(calibrated).__name__))
    writer = Writer(slots_of(calibrated))
    nodes = {"object": writer.record(calibrated)}
    radii = map(_radius, _answering(calibrated)[:N_ASKED] if writer.brought else ())
    nodes["radii"] = writer.plain([*radii], "radii")
    nodes["probe"] = _probe(calibrated, writer)
    _file.write(path, _file.Contents(_header(calibrated, writer), nodes, writer.arrays))


def load(path: Any, model: Any = None, *, embed: Any = None, bring: Any = None) -> Any:
    """Load what :func:`save` wrote, ready to predict.

    Parameters
    ----------
    path : the file
    model : the fitted model that was calibrated; a list of all of them for methods that refit.
        None for a calibrator alone
    embed : the fitted transformer, function or ``Layer`` that was passed as ``embed``, if any:
        ``embedding_.transformer`` of what was saved
    bring : dict, optional
        Other objects of yours that the file does not hold, by the name of the parameter:
        functions, forests, regressors and classifiers. :func:`inspect` says which names are needed

    Returns
    -------
    object
        What was saved, of the same class; it answers as it did before.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from calliper import Split
    >>> path = tempfile.mkdtemp() + "/split.calliper"
    >>> save(Split().fit(np.zeros((9, 1)), np.arange(9.0)), path)
    >>> load(path).predict_radius([[0.0]], 0.5)
    array([4.])
    """
    contents = _file.read(path)
    header, nodes = _whole(contents.header, path), contents.nodes
    brought = _brought(header["brought"], embed, {} if bring is None else bring)
    with _file.refused_as_damaged(path):
        models = models_again(model, header["needs"], f"a {header['object']}")
        stored = header["object"] == CalibratedOnStored.__name__
        reader = Reader(contents.arrays, [stored_predictions] if stored else models, brought)
    try:
        # What the parts refuse is the fault of the file, too.
        passed = DamagedFileError, OtherModelError, Warning
        with _file.refused_as_damaged(path, passed), unheard(Warning):
            calibrated = reader.record(nodes["object"])
            kind = type(calibrated).__name__
            if kind != header["object"] or not isinstance(calibrated, KINDS):
                refuse(f"it holds a {kind}, and its header says {header['object']!r:.40}")
            _compare(calibrated, reader.plain(nodes["probe"]), models, header)
            asked = zip(reader.plain(nodes["radii"]), _answering(calibrated), strict=False)
            for radius, method in asked:
                _check_radius(method, radius, path, header["brought"])
    except DamagedFileError:
        if models:  # of another class, or untrained, it may lack what is read from it again
            with _file.refused_as_damaged(path):
                check_class(models[0], header["model"])
                refuse_unfitted(models[0])
        raise
    return calibrated


@dataclass(frozen=True)
class Kept:
    """What a file says about itself, without a model.

    Attributes
    ----------
    header : all that is written there
    n_bytes : length of the file

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from calliper import Split
    >>> path = tempfile.mkdtemp() + "/split.calliper"
    >>> save(Split().fit(np.zeros((9, 1)), np.arange(9.0)), path)
    >>> inspect(path).header["n_calibration"]
    9
    """

    header: dict[str, Any]
    n_bytes: int

    def describe(self) -> list[str]:
        """Lines for people."""
        head = self.header
        made = ", ".join(f"{name} {number}" for name, number in head["versions"].items())
        levels = ", ".join(f"{level:g}" for level in head["levels"]) or "none"
        model = "none: a calibrator alone" if head["model"] is None else _in_words(head["model"])
        taught = head["n_taught"]
        others = f"; {taught:,} others used to learn how the model errs" if taught else ""
        lines = [
            f"{head['object']} calibrated on {head['n_calibration']:,} rows by {head['method']}"
            + others,
            f"model: {model}",
            f"feature space: {head['space']}" if head["space"] else "",
            f"locality: {head['locality']}" if head["locality"] else "",
            f"score: {head['score']}" if head["score"] else "",
            f"levels asked for so far: {levels}",
            *head["guarantee"].splitlines(),
        ]
        if not head["guarantee"]:  # a controller or a ratio, which is calibrated on nothing
            lines = [head["object"]]
        lines.append(
            f"made by calliper {head['calliper']} (format {head['format']}; {made}); "
            f"{self.n_bytes:,} bytes"
        )
        brought = head["brought"].items()
        lines += [f"load needs {_passed(name)}: {what}" for name, what in brought]
        return [line for line in lines if line]


def inspect(path: Any) -> Kept:
    """Read what a file says about itself, without loading the object.

    Parameters
    ----------
    path : the file

    Returns
    -------
    Kept
        With ``header``: method, number of calibration points, space, model and promise.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from calliper import Split
    >>> path = tempfile.mkdtemp() + "/split.calliper"
    >>> save(Split().fit(np.zeros((9, 1)), np.arange(9.0)), path)
    >>> inspect(path).header["method"]
    'Split'
    """
    contents = _file.read(path)
    return Kept(_whole(contents.header, path), Path(path).stat().st_size)


def _header(calibrated: Any, writer: Writer) -> dict[str, Any]:
    """What people and ``inspect`` want to know."""
    method = next(iter(_methods(calibrated)), calibrated)
    front = calibrated.regressor if isinstance(calibrated, CalibratedOnStored) else calibrated
    embedding = getattr(front, "embedding_", None)
    models = [model for model, place in slots_of(front) if place == 0]
    needs = needed(calibrated)
    locality = getattr(method, "locality_", None)
    levels = _levels(calibrated)
    said, name, n_calibration = "", type(calibrated).__name__, 0
    if not isinstance(calibrated, SILENT):
        promise = calibrated.guarantee(levels[-1] if levels else 0.9)
        said, name, n_calibration = promise.describe(), promise.method, int(promise.n_calibration)
    return {
        "format": _file.FORMAT,
        "calliper": __version__,
        "versions": {"python": platform.python_version(), **LIBRARIES},
        "object": type(calibrated).__name__,
        "method": name,
        "kernel": repr(getattr(method, "kernel_", getattr(method, "kernel", ""))) or "",
        "locality": "" if locality is None else locality.describe(),
        "space": "" if embedding is None else embedding.space.name,
        "score": repr(front.score_) if isinstance(front, CalibratedRegressor) else "",
        "n_calibration": n_calibration,
        "n_taught": front.calibration_.n_taught if isinstance(front, CalibratedRegressor) else 0,
        "levels": levels,
        "guarantee": said,
        "model": fingerprint(models[0]) if models and needs["models"] else None,
        "columns": [str(name) for name in getattr(calibrated, "feature_names_in_", ())],
        "needs": needs,
        "brought": {name: in_words(each) for name, each in writer.brought.items()},
    }


def _methods(calibrated: Any) -> tuple[Calibrator, ...]:
    """Its fitted calibrators, one for each tail or target; none of what has no such."""
    if isinstance(calibrated, CalibratedOnStored):
        return tuple(calibrated.regressor.calibrators_)
    if isinstance(calibrated, CalibratedRegressor):
        return tuple(calibrated.calibrators_)
    return (calibrated,) if isinstance(calibrated, Calibrator) else ()


def _answering(calibrated: Any) -> list[Calibrator]:
    """Calibrators that give radii: of tails, and of groups."""
    parts = [
        [*each.calibrators_.values()] if isinstance(each, Grouped) else [each]
        for each in _methods(calibrated)
    ]
    return [each for part in parts for each in part]


def _levels(calibrated: Any) -> list[float]:
    """Levels that intervals were asked for so far, ascending."""
    asked = {level for method in _answering(calibrated) for level in method.levels_asked_}
    tails = 1 if parts_of(calibrated) else len(_methods(calibrated))
    return sorted(round(1 - (1 - level) * tails, 12) for level in asked)


def _probe(calibrated: Any, writer: Writer) -> Any:
    """A few rows, and what the model said of them; None where they cannot be kept."""
    front = isinstance(calibrated, CalibratedRegressor)
    state = calibrated.calibration_.probe if front else vars(calibrated).get(PROBE)
    if state is None:
        return None
    rows = rows_again(state)
    known = {
        "rows": state,
        "said": ask(calibrated, rows),
        "functions": _functions(calibrated, rows),
    }
    tried = Writer()
    tried.plain(known, "rows")
    return None if tried.brought else writer.plain(known, "rows")


def _functions(calibrated: Any, rows: Any) -> dict[str, list[Any]]:
    """What functions of groups and of weights say of rows, by name."""
    if not isinstance(calibrated, CalibratedRegressor):
        return {}
    given = vars(calibrated.calibration_.per_row)
    known = {name: value for name, value in given.items() if callable(value)}
    return {name: row_values(value, rows, name).tolist() for name, value in known.items()}


def _check_radius(method: Calibrator, before: FloatArray, path: Any, brought: Any) -> None:
    """Refuse a method that gives other radii at its first calibration points than it did."""
    found = _radius(method) if len(before) else before
    if not np.allclose(found, before, rtol=1e-6, atol=0.0):
        raise OtherModelError(
            f"{str(path)!r} gives radius {found[0]:.6g} where it gave {before[0]:.6g} when it was "
            f"saved: pass what it was calibrated with ({', '.join(brought)}), fitted as it was "
            f"then."
        )


def _radius(method: Calibrator) -> FloatArray:
    """What it answers at its first calibration points; that it was asked is forgotten.

    Nothing if it is drawn at random each time, or cannot be asked for.
    """
    asked, rows, none = set(method.levels_asked_), method._rows, np.empty(0)
    weights = None if rows.weights is None else rows.weights[:N_ASKED]
    possible = isinstance(rows.Z, np.ndarray) and len(rows.Z) and (weights is None or all(weights))
    if not possible or getattr(method, "basis", None) is not None:
        return none
    with unheard(Warning):
        once, again = (method.predict_radius(rows.Z[:N_ASKED], 0.9, weights=weights) for _ in "12")
    method.levels_asked_ = asked
    return once if np.array_equal(once, again) else none


#: What a header has, and of which kind.
PARTS: dict[str, Any] = {
    **dict.fromkeys(("calliper", "object", "method", "kernel", "locality"), str),
    **dict.fromkeys(("space", "score", "guarantee"), str),
    **{"levels": list, "brought": dict, "columns": list, "versions": dict, "needs": dict},
    **{"n_calibration": int, "n_taught": int, "format": int, "model": dict | None},
}


def _whole(header: dict[str, Any], path: Any) -> dict[str, Any]:
    """The header, if it has all its parts and they can be described; otherwise it is refused."""
    with _file.refused_as_damaged(path):
        if not all(name in header and isinstance(header[name], PARTS[name]) for name in PARTS):
            raise ValueError("its header lacks parts")
        Kept(header, 0).describe()
    return header


def _brought(needs: dict[str, str], embed: Any, bring: Any) -> dict[str, Any]:
    """What the reader brought, by name; what is missing is asked for."""
    if not isinstance(bring, Mapping):
        raise TypeError(
            f"bring takes a dict, as bring={{'basis': my_function}}; got {bring!r:.60}."
        )
    refuse_class(embed, "embed")
    given = dict(bring) | ({} if embed is None else {"embed": embed})
    needless = [name for name in given if name not in needs]
    if needless:
        wanted = ", ".join(needs) if needs else "nothing"
        raise CalliperError(f"the file needs {wanted}, and not {needless[0]}: leave it out.")
    missing = [name for name in needs if name not in given]
    if missing:
        name = missing[0]
        raise CalliperError(
            f"the file was made with {needs[name]} as {name}, which cannot be stored in a file: "
            f"pass {_passed(name)}, fitted as it was then."
        )
    return {name: given[name] for name in needs}


def _passed(name: str) -> str:
    """How something is passed to ``load``."""
    return "embed=…" if name == "embed" else f"bring={{{name!r}: …}}"


def _compare(calibrated: Any, probe: Any, models: list[Any], header: dict[str, Any]) -> None:
    """Refuse another model: by what it says of the rows that are remembered, or by its class."""
    if probe is not None:
        rows, made_for = rows_again(probe["rows"]), _in_words(header["model"])
        check_same(calibrated, rows, probe["said"], made_for, header["brought"].get("embed"))
        for name, said in _functions(calibrated, rows).items():
            if said != probe["functions"].get(name):
                raise OtherModelError(
                    f"the function for {name} gives {said[:3]} for stored rows, where it gave "
                    f"{probe['functions'].get(name)}: pass the function used at calibration."
                )
        if isinstance(calibrated, CalibratedRegressor):
            known = replace(calibrated.calibration_, probe=probe["rows"])
            calibrated.calibration_ = known
        else:
            vars(calibrated)[PROBE] = probe["rows"]
    elif models:
        check_class(models[0], header["model"])


def _in_words(model: dict[str, Any] | None) -> str:
    """A model as it was called; long lists of parameters are cut."""
    if model is None:
        return "no model"
    given = ", ".join(f"{name}={value}" for name, value in model["parameters"].items())
    return shorten(f"{model['class'].rpartition('.')[2]}({given})", 200)

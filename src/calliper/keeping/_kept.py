"""Save what was calibrated, load it again, and say what a file holds."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from calliper._calibrated import CalibratedOnStored
from calliper._version import __version__
from calliper.calibrators import Calibrator
from calliper.exceptions import (
    CalliperError,
    CannotSaveError,
    DamagedFileError,
    OtherVersionWarning,
    warn,
)
from calliper.keeping import _file
from calliper.keeping._classes import full_name
from calliper.keeping._graph import GraphReader, GraphWriter
from calliper.keeping._model import (
    ask,
    check_same,
    fingerprint,
    models_again,
    needed,
    parts_of,
    slots_of,
)
from calliper.keeping._rows import rows_again, state_of
from calliper.refitting import RefittedRegressor
from calliper.regressor import ConformalRegressor

#: What numbers may depend on.
LIBRARIES = ("numpy", "scipy", "scikit-learn")

#: What can be saved.
KINDS = (ConformalRegressor, Calibrator, RefittedRegressor, CalibratedOnStored)

#: Rows of features at which a loaded calibrator is asked for the radius that it gave before.
N_ASKED = 5


def save(calibrated: Any, path: Any) -> None:
    """Write what was calibrated to one file of numbers and names; the model stays outside.

    Parameters
    ----------
    calibrated : fitted ``ConformalRegressor`` (``MultiTargetRegressor``, ``JackknifePlus``, …) or
        calibrator
    path : where to write; the file appears whole or not at all

    Returns
    -------
    None
        The file is there.

    Notes
    -----
    The file holds the calibration points, a few calibration rows as they came (so that another
    model is noticed), and what was learnt from training rows. It is no place for secrets.

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
            f"save takes a calibrated ConformalRegressor or a fitted calibrator; got "
            f"{type(calibrated).__name__}."
        )
    if not isinstance(calibrated, CalibratedOnStored):
        check_is_fitted(calibrated)
    writer = GraphWriter(slots_of(calibrated))
    root = writer.node(calibrated)
    graph = {
        "root": root,
        "probe": writer.node(_probe(calibrated)),
        "radius": writer.node(_radius(calibrated)),
        "objects": writer.objects,
    }
    header = _header(calibrated, sorted(writer.trusted))
    _file.write(path, _file.Contents(header, graph, writer.arrays))


def load(path: Any, model: Any = None, *, trusted: Iterable[Any] = ()) -> Any:
    """What :func:`save` wrote, ready to predict.

    Parameters
    ----------
    path : the file
    model : the fitted model that was calibrated; a list of all of them for methods that refit.
        None for a calibrator alone
    trusted : functions and classes of your own that belong to it, such as a function given as
        ``embed``. A file names them but cannot bring them along

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
    header, needs = contents.header, _needs(contents.header, path)
    models = models_again(model, needs, f"a {header.get('object')}")
    known = {full_name(each): each for each in trusted}
    _refuse_missing(header, known)
    _warn_of_version(header)
    with _file.refused_as_damaged(Path(path)):
        graph = contents.graph
        reader = GraphReader(graph["objects"], contents.arrays, models, known)
        calibrated = reader.value(graph["root"])
        probe, radius = reader.value(graph["probe"]), reader.value(graph["radius"])
        _refuse_other_kind(calibrated, header)
        rows = None if probe is None else rows_again(probe["rows"])
    if probe is not None:
        check_same(calibrated, rows, probe["said"], _in_words(header["model"]))
    if radius is not None:
        _check_radius(calibrated, radius, path)
    return calibrated


@dataclass(frozen=True)
class Kept:
    """What a file says of itself, without a model.

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
        lines = [
            f"{head['object']} calibrated on {head['n_calibration']:,} rows by {head['method']}",
            f"model: {model}",
            f"near in: {head['space']}" if head["space"] else "",
            f"as local as: {head['locality']}" if head["locality"] else "",
            f"score: {head['score']}" if head["score"] else "",
            f"levels asked for so far: {levels}",
            head["guarantee"],
            f"made by calliper {head['calliper']} (format {head['format']}; {made}); "
            f"{self.n_bytes:,} bytes",
        ]
        if head["trusted"]:
            lines.append(f"load needs trusted=[…] for: {', '.join(head['trusted'])}")
        return [line for line in lines if line]


def inspect(path: Any) -> Kept:
    """What a file says of itself; nothing of it but numbers and names is made.

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
    _needs(contents.header, path)
    return Kept(contents.header, Path(path).stat().st_size)


def _header(calibrated: Any, trusted: list[str]) -> dict[str, Any]:
    """What people and ``inspect`` want to know."""
    method = _method(calibrated)
    embedding = getattr(calibrated, "embedding_", getattr(calibrated, "embedding", None))
    models = [model for model, place in slots_of(calibrated) if place == 0]
    locality = getattr(method, "locality_", None)
    levels = _levels(calibrated)
    promise = calibrated.guarantee(levels[-1] if levels else 0.9)
    return {
        "format": _file.FORMAT,
        "calliper": __version__,
        "versions": {"python": platform.python_version(), **{n: version(n) for n in LIBRARIES}},
        "object": type(calibrated).__name__,
        "method": promise.method,
        "kernel": repr(getattr(method, "kernel_", getattr(method, "kernel", ""))) or "",
        "locality": "" if locality is None else locality.describe(),
        "space": "" if embedding is None else embedding.space.name,
        "score": repr(calibrated.score_) if hasattr(calibrated, "score_") else "",
        "n_calibration": int(promise.n_calibration),
        "levels": levels,
        "guarantee": promise.describe(),
        "model": fingerprint(models[0]) if models else None,
        "columns": [str(name) for name in getattr(calibrated, "feature_names_in_", ())],
        "needs": needed(calibrated),
        "trusted": trusted,
    }


def _method(calibrated: Any) -> Any:
    """The first fitted calibrator, or the object itself."""
    if isinstance(calibrated, CalibratedOnStored):
        return calibrated.calibrator
    return calibrated.calibrators_[0] if isinstance(calibrated, ConformalRegressor) else calibrated


def _levels(calibrated: Any) -> list[float]:
    """Levels that intervals were asked for so far, ascending."""
    methods: Any = (calibrated,)
    if isinstance(calibrated, CalibratedOnStored):
        methods = calibrated.calibrated.calibrators
    elif isinstance(calibrated, ConformalRegressor):
        methods = calibrated.calibrators_
    asked = {level for method in methods for level in _asked(method)}
    tails = 1 if parts_of(calibrated) else len(methods)
    return sorted(round(1 - (1 - level) * tails, 12) for level in asked)


def _asked(method: Any) -> set[float]:
    groups = getattr(method, "calibrators_", None)
    if isinstance(groups, dict):
        return {level for own in groups.values() for level in _asked(own)}
    return set(getattr(method, "levels_asked_", ()))


def _probe(calibrated: Any) -> dict[str, Any] | None:
    """A few rows, and what the model said of them; None where they cannot be kept."""
    rows = getattr(calibrated, "_probe", None)
    state = None if rows is None else state_of(rows)
    if state is None:
        return None
    try:
        GraphWriter().node(state)
    except CannotSaveError:
        return None
    return {"rows": state, "said": ask(calibrated, rows)}


def _radius(calibrated: Any) -> dict[str, Any] | None:
    """Features, and the radius there at a level that was asked before; None if it was never."""
    method = _method(calibrated)
    asked = sorted(_asked(method))
    plain = isinstance(method, Calibrator) and not hasattr(method, "calibrators_")
    if not plain or not asked or method.weights_ is not None:
        return None
    Z = method._rows.Z[:N_ASKED]
    if not len(Z) or not isinstance(Z, np.ndarray):
        return None
    radius, again = (method.predict_radius(Z, asked[-1]) for _ in range(2))
    if not np.array_equal(radius, again):  # something is drawn for each row
        return None
    return {"Z": Z, "level": asked[-1], "radius": radius}


def _check_radius(calibrated: Any, expected: dict[str, Any], path: Any) -> None:
    method, radius = _method(calibrated), expected["radius"]
    with _file.refused_as_damaged(Path(path)):
        found = method.predict_radius(expected["Z"], expected["level"])
    if not np.allclose(found, radius, rtol=1e-6, atol=0.0):
        raise DamagedFileError(
            f"{str(path)!r} gives radius {found[0]:.6g} where it gave {radius[0]:.6g} when it was "
            f"saved: it was altered, or this version computes otherwise."
        )


def _needs(header: dict[str, Any], path: Any) -> dict[str, int]:
    """How many models are needed; a header that lacks anything is refused."""
    needs: Any = header.get("needs")
    words = ("object", "method", "guarantee", "space", "locality", "score")
    whole = isinstance(needs, dict) and all(isinstance(header.get(name), str) for name in words)
    whole = whole and isinstance(header.get("levels"), list) and "model" in header
    whole = whole and isinstance(header.get("versions"), dict) and "trusted" in header
    if not whole or not all(type(needs.get(name)) is int for name in ("models", "columns")):
        raise DamagedFileError(
            f"{str(path)!r} is no whole file of calliper: its header lacks parts."
        )
    return dict(needs)


def _refuse_missing(header: dict[str, Any], known: dict[str, Any]) -> None:
    missing = [name for name in header["trusted"] if name not in known]
    if missing:
        module, _, name = missing[0].partition(":")
        raise CalliperError(
            f"the file names {', '.join(missing)}, which no file can bring along: pass "
            f"trusted=[{name}, …] after 'from {module} import {name}'."
        )


def _refuse_other_kind(calibrated: Any, header: dict[str, Any]) -> None:
    if type(calibrated).__name__ != header["object"]:
        raise DamagedFileError(f"the file is said to hold a {header['object']} and does not.")


def _warn_of_version(header: dict[str, Any]) -> None:
    before, now = header["versions"].get("scikit-learn"), version("scikit-learn")
    if str(before).split(".")[:2] != now.split(".")[:2]:
        warn(
            f"The file was made with scikit-learn {before}, and this is {now}: what it holds of "
            f"trees may be read otherwise. Answers at the rows that it remembers are compared.",
            OtherVersionWarning,
        )


def _in_words(model: dict[str, Any] | None) -> str:
    """A model as it was called; long lists of parameters are cut."""
    if model is None:
        return "no model"
    given = ", ".join(f"{name}={value}" for name, value in model["parameters"].items())
    whole = f"{model['class'].rpartition('.')[2]}({given})"
    return whole if len(whole) <= 200 else f"{whole[:197]}…)"

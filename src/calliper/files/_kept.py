"""Save what was calibrated, load it again, and say what a file holds."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.utils.validation import check_is_fitted

from calliper._probe_rows import rows_again
from calliper._version import __version__
from calliper.calibration import CalibratedOnStored
from calliper.calibrators import Calibrator
from calliper.exceptions import (
    CalliperError,
    CannotSaveError,
    DamagedFileError,
    OtherVersionWarning,
    warn,
)
from calliper.files import _file
from calliper.files._classes import full_name
from calliper.files._graph import PROBE, GraphReader, GraphWriter
from calliper.files._model import (
    ask,
    check_class,
    check_same,
    fingerprint,
    models_again,
    needed,
    parts_of,
    slots_of,
)
from calliper.refitting import RefittedRegressor
from calliper.regressor import ConformalRegressor

#: What numbers may depend on.
LIBRARIES = {each.__name__: each.__version__ for each in (np, scipy, sklearn)}

#: What can be saved.
KINDS = (ConformalRegressor, Calibrator, RefittedRegressor, CalibratedOnStored)

UNFITTED = (
    "This %(name)s has not been calibrated, so that there is nothing to save: call calibrate or "
    "fit first."
)

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
        check_is_fitted(calibrated, msg=UNFITTED)
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
    header = _whole(contents.header, path)
    known = _known(header["trusted"], trusted)
    with _file.refused_as_damaged(Path(path)):
        graph = contents.graph
        most = len(graph["objects"])
        models = models_again(model, header["needs"], f"a {header['object']}", most)
    _refuse_missing(header, known)
    _warn_of_version(header)
    try:
        with _file.refused_as_damaged(Path(path)):
            reader = GraphReader(graph["objects"], contents.arrays, models, known)
            calibrated = reader.value(graph["root"])
            probe, radius = reader.value(graph["probe"]), reader.value(graph["radius"])
            _refuse_other_kind(calibrated, header)
            _compare(calibrated, probe, models, header)
            if radius is not None:
                _check_radius(calibrated, radius, path)
    except DamagedFileError:
        if models:  # of another class it may have nothing of what is read from the model again
            with _file.refused_as_damaged(Path(path)):
                check_class(models[0], header["model"])
        raise
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
            *head["guarantee"].splitlines(),
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
    return Kept(_whole(contents.header, path), Path(path).stat().st_size)


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
        "versions": {"python": platform.python_version(), **LIBRARIES},
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
    state = getattr(calibrated, PROBE, None)
    if state is None:
        return None
    try:
        GraphWriter().node(state)
    except CannotSaveError:
        return None
    return {"rows": state, "said": ask(calibrated, rows_again(state))}


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
    found = method.predict_radius(expected["Z"], expected["level"])
    if not np.allclose(found, radius, rtol=1e-6, atol=0.0):
        raise DamagedFileError(
            f"{str(path)!r} gives radius {found[0]:.6g} where it gave {radius[0]:.6g} when it was "
            f"saved: it was altered, or this version computes otherwise."
        )


#: What a header has, and of which kind.
PARTS: dict[str, Any] = {
    **dict.fromkeys(("calliper", "object", "method", "kernel", "locality"), str),
    **dict.fromkeys(("space", "score", "guarantee"), str),
    **{"levels": list, "trusted": list, "columns": list, "versions": dict, "needs": dict},
    **{"n_calibration": int, "format": int, "model": dict | None},
}


def _whole(header: dict[str, Any], path: Any) -> dict[str, Any]:
    """The header, if it has all its parts; otherwise it is refused."""
    whole = all(name in header and isinstance(header[name], PARTS[name]) for name in PARTS)
    whole = whole and all(isinstance(level, int | float) for level in header["levels"])
    whole = whole and all(isinstance(name, str) for name in header["trusted"])
    model: Any = header.get("model") or {"class": "", "parameters": {}}
    whole = whole and isinstance(model.get("class"), str)
    whole = whole and isinstance(model.get("parameters"), dict)
    counts = [header["needs"].get(name) for name in ("models", "columns")] if whole else []
    if not whole or not all(type(each) is int and each >= 0 for each in counts):
        raise DamagedFileError(
            f"{str(path)!r} is no whole file of calliper: its header lacks parts."
        )
    return header


def _known(names: list[str], trusted: Iterable[Any]) -> dict[str, Any]:
    """What the reader trusts, by the names in the file; of a script, whatever module it is now."""
    by_name: dict[str, Any] = {}
    for each in trusted:
        if not hasattr(each, "__name__"):
            raise TypeError(
                f"trusted takes functions and classes, as trusted=[my_function]; got {each!r:.60}."
            )
        by_name[full_name(each)] = each
    own = {name.partition(":")[2]: each for name, each in by_name.items()}
    scripts = (name.partition(":")[2] for name in names if name.startswith("__main__:"))
    return by_name | {f"__main__:{name}": own[name] for name in scripts if name in own}


def _refuse_missing(header: dict[str, Any], known: dict[str, Any]) -> None:
    missing = [name for name in header["trusted"] if name not in known]
    if missing:
        module, _, name = missing[0].partition(":")
        raise CalliperError(
            f"the file names {', '.join(missing)}, which no file can bring along: pass "
            f"trusted=[{name}, …] after 'from {module} import {name}'."
        )


def _compare(calibrated: Any, probe: Any, models: list[Any], header: dict[str, Any]) -> None:
    """Refuse another model: by what it says of the rows that are remembered, or by its class."""
    if probe is not None:
        rows, made_for = rows_again(probe["rows"]), _in_words(header["model"])
        check_same(calibrated, rows, probe["said"], made_for)
        vars(calibrated)[PROBE] = probe["rows"]
    elif models:
        check_class(models[0], header["model"])


def _refuse_other_kind(calibrated: Any, header: dict[str, Any]) -> None:
    if type(calibrated).__name__ != header["object"]:
        raise DamagedFileError(f"the file is said to hold a {header['object']} and does not.")


def _warn_of_version(header: dict[str, Any]) -> None:
    before, now = header["versions"].get("sklearn"), LIBRARIES["sklearn"]
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

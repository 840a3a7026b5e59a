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
from calliper._version import __version__
from calliper.calibrators import Calibrator
from calliper.exceptions import (
    CalliperError,
    CannotSaveError,
    DamagedFileError,
    OtherModelError,
    unheard,
)
from calliper.files import _file, _model
from calliper.files._codec import Reader, Writer, in_words, refuse
from calliper.monitoring import CoverageMonitor, ExchangeabilityMonitor
from calliper.online import Controller
from calliper.refitting import RefittedRegressor
from calliper.rows import rows_again
from calliper.shift import LikelihoodRatio

#: What numbers may depend on.
LIBRARIES = {each.__name__: each.__version__ for each in (np, scipy, sklearn)}
#: What can be saved: what promises something, and what does not.
SILENT = (Controller, CoverageMonitor, ExchangeabilityMonitor, LikelihoodRatio)
PROMISING = (CalibratedRegressor, Calibrator, RefittedRegressor)
SAVED = (*PROMISING, CalibratedOnStored, *SILENT)
#: The attribute that has a few rows as they came, of whatever kind; see ``_model.py``.
PROBE = "_probe"


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
    The file holds the calibration rows, a few calibration rows as they came (so that another
    model is noticed), and what was learnt from training rows. Do not keep secrets in it.

    Examples
    --------
    >>> import tempfile
    >>> from calliper import Split
    >>> path = tempfile.mkdtemp() + "/split.calliper"
    >>> save(Split().fit([[0.0]] * 9, range(9)), path)
    >>> load(path)
    Split()
    """
    if not isinstance(calibrated, SAVED):
        raise TypeError(
            "save needs a calibrated ConformalRegressor or a fitted calibrator first, then the "
            f"path; got a {type(calibrated).__name__}."
        )
    if isinstance(calibrated, BaseEstimator) and not calibrated.__sklearn_is_fitted__():
        raise NotFittedError(
            f"This {type(calibrated).__name__} has nothing to save yet: calibrate, fit or update "
            "it first."
        )
    writer = Writer(_model.slots_of(calibrated))
    nodes = {"object": writer.record(calibrated), "probe": _probe(calibrated, writer)}
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
    >>> from calliper import Split
    >>> path = tempfile.mkdtemp() + "/split.calliper"
    >>> save(Split().fit([[0.0]] * 9, range(9)), path)
    >>> load(path).predict_radius([[0.0]], 0.5)
    array([4.])
    """
    contents = _file.read(path)
    header, nodes = _whole(contents.header, path), contents.nodes
    brought = _brought(header["brought"], embed, {} if bring is None else bring)
    with _file.refused_as_damaged(path):
        models = _model.models_again(model, header["needs"], f"a {header['object']}")
        stored = header["object"] == CalibratedOnStored.__name__
        known = enumerate([stored_predictions] if stored else models)
        reader = Reader(contents.arrays, dict(known) | brought)
    try:
        # What the parts refuse is the fault of the file, too.
        passed = DamagedFileError, OtherModelError, Warning
        with _file.refused_as_damaged(path, passed), unheard(Warning):
            calibrated = reader.record(nodes["object"])
            kind = type(calibrated).__name__
            if kind != header["object"] or not isinstance(calibrated, SAVED):
                refuse(f"it holds a {kind}, and its header says {header['object']!r:.40}")
            _compare(calibrated, reader.plain(nodes["probe"]), models, header)
            if isinstance(calibrated, PROMISING):
                calibrated.guarantee()  # which may fail by itself
    except DamagedFileError:
        if models:  # of another class, or untrained, it may lack what is read from it again
            with _file.refused_as_damaged(path):
                _model.check_class(models[0], header["model_class"])
                # Of several the last, since the first may be what they were trained from.
                _model.refuse_unfitted(models[header["needs"]["models"] - 1])
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
    >>> from calliper import Split
    >>> path = tempfile.mkdtemp() + "/split.calliper"
    >>> save(Split().fit([[0.0]] * 9, range(9)), path)
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
        taught = head["n_taught"]
        described = {"space": "feature space", "locality": "locality", "score": "score"}.items()
        others = f"; {taught:,} others used to learn where errors are large" if taught else ""
        lines = [
            f"{head['object']} calibrated on {head['n_calibration']:,} rows by {head['method']}"
            + others,
            f"model: {head['model'] or 'none: a calibrator alone'}",
            *(f"{words}: {head[name]}" for name, words in described if head[name]),
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
        With ``header``: method, number of calibration rows, space, model and promise.

    Examples
    --------
    >>> import tempfile
    >>> from calliper import Split
    >>> path = tempfile.mkdtemp() + "/split.calliper"
    >>> save(Split().fit([[0.0]] * 9, range(9)), path)
    >>> inspect(path).header["method"]
    'Split'
    """
    contents = _file.read(path)
    return Kept(_whole(contents.header, path), Path(path).stat().st_size)


def _header(calibrated: Any, writer: Writer) -> dict[str, Any]:
    """What people and ``inspect`` want to know."""
    method = next(iter(_model.methods_of(calibrated)), calibrated)
    front = calibrated.regressor if isinstance(calibrated, CalibratedOnStored) else calibrated
    embedding = getattr(front, "embedding_", None)
    needs, slots = _model.needed(calibrated), _model.slots_of(front)
    model_class, model = _model.fingerprint(slots[0][0]) if slots and needs["models"] else ("", "")
    kernel = getattr(method, "kernel_", getattr(method, "kernel", None))
    locality = getattr(method, "locality_", None)
    levels = _levels(calibrated)
    said, name, n_calibration = "", type(calibrated).__name__, 0
    if not isinstance(calibrated, SILENT):
        promise = front.guarantee(levels[-1] if levels else 0.9)
        said, name, n_calibration = promise.describe(), promise.method, int(promise.n_calibration)
    if isinstance(method, Calibrator):  # rows of all groups
        n_calibration = method.n_calibration_
    return {
        "format": _file.FORMAT,
        "calliper": __version__,
        "versions": {"python": platform.python_version(), **LIBRARIES},
        "object": type(calibrated).__name__,
        "method": name,
        "kernel": "" if kernel is None else repr(kernel),
        "locality": "" if locality is None else locality.describe(),
        "space": "" if embedding is None else embedding.space.name,
        "score": repr(front.score_) if isinstance(front, CalibratedRegressor) else "",
        "n_calibration": n_calibration,
        "n_taught": front.calibration_.n_taught if isinstance(front, CalibratedRegressor) else 0,
        "levels": levels,
        "guarantee": said,
        "model_class": model_class,
        "model": model,
        "columns": [str(name) for name in getattr(calibrated, "feature_names_in_", ())],
        "needs": needs,
        "brought": {name: in_words(each) for name, each in writer.brought.items()},
    }


def _levels(calibrated: Any) -> list[float]:
    """Levels that intervals were asked for so far, ascending."""
    asked = {level for method in _model.answering(calibrated) for level in method.levels_asked_}
    tails = 1 if _model.parts_of(calibrated) else len(_model.methods_of(calibrated))
    return sorted(asked if tails == 1 else {round(1 - (1 - level) * tails, 12) for level in asked})


def _probe(calibrated: Any, writer: Writer) -> Any:
    """A few rows, None where they cannot be kept, and what was said of them."""
    front = isinstance(calibrated, CalibratedRegressor)
    rows = calibrated.calibration_.probe if front else vars(calibrated).get(PROBE)
    tried = Writer()
    tried.plain(rows, "rows")
    rows = None if tried.brought else rows
    again = None if rows is None else rows_again(rows)
    said = _model.ask(calibrated, again)
    owners = (_model.parts_of(calibrated) or (calibrated,)) if front and again is not None else ()
    for owner in owners:
        made = owner.calibration_
        now = made.space.refitted(made.space.model)  # opened anew: trees may have been read before
        if made.predicted and _model.differs(now.predict_and_transform(again)[0], *made.predicted):
            raise CannotSaveError(
                "the model's predictions differ from those at calibration, so it has been changed "
                "or trained again since: calibrate again, then save."
            )
    return writer.plain({"rows": rows, "said": said}, "rows")


#: What a header has, by kind.
PARTS = {
    str: "calliper object method kernel locality space score guarantee model_class model",
    int: "format n_calibration n_taught",
    list: "columns levels",
    dict: "brought needs versions",
}


def _whole(header: dict[str, Any], path: Any) -> dict[str, Any]:
    """The header, if it has all its parts and they can be described; otherwise it is refused."""
    with _file.refused_as_damaged(path):
        parts = [(name, kind) for kind, names in PARTS.items() for name in names.split()]
        if not all(isinstance(header.get(name), kind) for name, kind in parts):
            raise ValueError("its header lacks parts")
        Kept(header, 0).describe()
    return header


def _brought(needs: dict[str, str], embed: Any, bring: Any) -> dict[str, Any]:
    """What the reader brought, by name; what is missing is asked for."""
    if not isinstance(bring, Mapping):
        raise TypeError(
            f"bring must be a dict, such as bring={{'basis': my_function}}; got {bring!r:.60}."
        )
    _model.refuse_class(embed, "embed")
    given = dict(bring) | ({} if embed is None else {"embed": embed})
    for name in given:
        if name not in needs:
            wanted = f"only {', '.join(needs)}" if needs else "no other objects"
            raise CalliperError(f"the file needs {wanted}: leave {name} out.")
    for name, what in needs.items():
        if name not in given:
            raise CalliperError(
                f"the file was made with {what} as {name}, which cannot be stored in a file: "
                f"pass the same again as {_passed(name)}."
            )
    return given


def _passed(name: str) -> str:
    """How something is passed to ``load``."""
    return "embed=…" if name == "embed" else f"bring={{{name!r}: …}}"


def _compare(calibrated: Any, probe: Any, models: list[Any], header: dict[str, Any]) -> None:
    """Refuse another model: by what it says of the rows that are remembered, or by its class."""
    rows = probe["rows"]
    if rows is None and models:
        _model.check_class(models[0], header["model_class"])
    _model.check_same(calibrated, None if rows is None else rows_again(rows), probe["said"], header)
    if isinstance(calibrated, CalibratedRegressor):
        known = None if _model.parts_of(calibrated) else probe["said"].get("y_pred")
        said = None if known is None else (known, np.zeros(1))
        calibrated.calibration_ = replace(calibrated.calibration_, probe=rows, predicted=said)
    elif rows is not None:
        vars(calibrated)[PROBE] = rows

"""The file of length scales: written by ``calliper tune``, read by ``calliper interval``.

JSON, a line for each entry. It holds no path and no data, but fingerprints of the numbers that
the scales were chosen on: with any other numbers they would mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn

import numpy as np

from calliper._types import FloatArray
from calliper._writing import to_text
from calliper.cli._tables import Columns, listed, open_bytes
from calliper.exceptions import CalliperError
from calliper.lab.tuning import TuningCurve

SCALES_FORMAT, SCALES_VERSION = "calliper length scales", 1


@dataclass(frozen=True, eq=False)
class Scales:
    """Length scales that were read from a file, and what they were chosen on."""

    path: str
    chosen: FloatArray
    columns: Columns
    calibration: str  # fingerprint of the calibration rows: target, prediction, features
    training: str | None  # of the training rows that standardised the features; None if raw

    def require_columns(self, columns: Columns, *, has_training: bool) -> None:
        """The names are those that the scales were chosen with, standardised if they were then."""
        made = self.columns
        if made.features != columns.features:
            features = f"the features {listed(made.features, 5)}"
            self._refuse_columns(features, listed(columns.features, 5))
        if made.target != columns.target:
            self._refuse_columns(f"--target {made.target}", columns.target)
        if made.prediction != columns.prediction:
            self._refuse_columns(f"--prediction {made.prediction}", columns.prediction)
        if has_training != (self.training is not None):
            then, do = ("without", "omit it") if has_training else ("with", "give the same file")
            raise CalliperError(f"{self.path}: was made {then} --training; {do} here too.")

    def _refuse_columns(self, was: str, now: str) -> NoReturn:
        again = "give the same, or run calliper tune again"
        raise CalliperError(f"{self.path}: was made with {was}, not {now}; {again}.")

    def require_rows(self, known: FloatArray, training: FloatArray | None) -> None:
        """The numbers are those that the scales were chosen on."""
        if len(known) != len(self.chosen):
            raise CalliperError(
                f"{self.path}: has length scales for {len(self.chosen)} calibration points, but "
                f"there are {len(known)}; run calliper tune again."
            )
        if fingerprint(known) != self.calibration:
            self._refuse("calibration data or features")
        if training is not None and fingerprint(training) != self.training:
            self._refuse("training data")

    def _refuse(self, what: str) -> NoReturn:
        raise CalliperError(f"{self.path}: was made from other {what}; run calliper tune again.")


def fingerprint(rows: FloatArray) -> str:
    """SHA-256 over numbers as float64, row after row, least significant byte first."""
    return sha256(np.ascontiguousarray(rows, dtype="<f8").tobytes()).hexdigest()


def scales_text(
    curve: TuningCurve, columns: Columns, known: FloatArray, training: Any, **settings: Any
) -> str:
    """What the file holds of scales that were chosen on these rows, with these settings."""
    document = {
        "format": SCALES_FORMAT,
        "version": SCALES_VERSION,
        "criterion": curve.criterion,
        **settings,
        "target": columns.target,
        "prediction": columns.prediction,
        "features": list(columns.features),
        "standardised": training is not None,
        "calibration_sha256": fingerprint(known),
        "training_sha256": None if training is None else fingerprint(training),
        "length_scales": curve.candidates,
        "criterion_mean": curve.mean,
        "criterion_deviation": curve.deviation,
        "chosen": curve.chosen,
    }
    lines = (f" {to_text(k)}: {to_text(v)}" for k, v in document.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_scales(path: str) -> Scales:
    """The scales in a file, which may have been edited or be something else altogether."""
    document: Any = _document(path)
    if not isinstance(document, dict) or document.get("format") != SCALES_FORMAT:
        _refuse_format(path, f"its format is not {SCALES_FORMAT!r}")
    if document.get("version") != SCALES_VERSION:
        raise CalliperError(
            f"{path}: is version {document.get('version')!r} of the format, and this calliper "
            f"reads {SCALES_VERSION}; run calliper tune again."
        )
    for name, (is_right, what) in _ENTRIES.items():
        if not is_right(document.get(name)):
            _refuse_format(path, f"{name!r} must be {what}")
    columns = Columns(document["target"], document["prediction"], tuple(document["features"]))
    chosen = np.array(document["chosen"], dtype=np.float64)
    training = document.get("training_sha256")
    return Scales(path, chosen, columns, document["calibration_sha256"], training)


def _document(path: str) -> Any:
    with open_bytes(path) as handle:
        text = handle.read()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        _refuse_format(path, "it is not JSON")


def _refuse_format(path: str, reason: str) -> NoReturn:
    raise CalliperError(
        f"{path}: is not a file of length scales ({reason}); make one with calliper tune."
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_length(value: Any) -> bool:
    # The bounds of the kernel: squares of what lies outside are no numbers.
    return isinstance(value, float | int) and 1e-150 < value < 1e150


def _all(values: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and bool(values) and all(map(is_right, values))


#: What the entries that are needed must be.
_ENTRIES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("target", "prediction", "calibration_sha256"), (_is_text, "text")),
    "training_sha256": (lambda value: value is None or _is_text(value), "text"),
    "features": (lambda values: _all(values, _is_text), "a list of names"),
    "chosen": (lambda values: _all(values, _is_length), "a list of positive numbers"),
}

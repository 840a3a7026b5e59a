"""A comparison as plain values, for files and for the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import isinf, isnan
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from calliper.report.comparison._compare import Comparison

#: Raised when a field changes its meaning or goes away; not when one is added.
SCHEMA = 1


def as_text(comparison: Comparison, provenance: Mapping[str, Any] | None) -> str:
    """JSON that every reader takes: no NaN, no infinity."""
    values = {**as_values(comparison), "provenance": dict(provenance or {})}
    return json.dumps(plain(values), ensure_ascii=False, allow_nan=False, indent=1)


def as_values(comparison: Comparison) -> dict[str, Any]:
    """Everything but the points themselves."""
    return {
        "schema": SCHEMA,
        "coverage": comparison.coverage,
        "levels": list(comparison.levels),
        "methods": list(comparison.methods),
        "random_state": comparison.random_state,
        "n_calibration": len(comparison.calibration),
        "n_test": len(comparison.test),
        "n_training": comparison.n_training,
        "features": list(comparison.test.feature_names),
        "verdicts": [asdict(verdict) for verdict in comparison.verdicts],
        "checks": [asdict(check) for check in comparison.checks],
        "records": [asdict(record) for record in comparison.records],
        "failures": [
            {"method": answer.method, "failure": answer.failure}
            for answer in comparison.answers
            if answer.failure is not None
        ],
        "parts": [
            {
                "method": part.method,
                "level": part.level,
                "by": part.by,
                "name": part.name,
                "labels": list(part.table.labels),
                "n": part.table.n,
                "coverage": part.table.coverage,
                "lower": part.table.lower,
                "upper": part.table.upper,
                "mean_width": part.table.mean_width,
            }
            for part in comparison.parts
        ],
        "deciles": [
            {"method": d.method, "level": d.level, "width": d.width, "error": d.error}
            for d in comparison.deciles
        ],
    }


def plain(value: Any) -> Any:
    """Arrays as lists, NaN as null, infinity as "inf"."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return [plain(entry) for entry in value.tolist()]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if isnan(value):
            return None
        if isinf(value):
            return "inf" if value > 0 else "-inf"
    return value

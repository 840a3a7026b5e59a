"""The metric of LVD, learnt once.

It depends on training rows alone, so that learning it again for every division of the held-out
rows would give the same ten times over; it is learnt once and kept on disk.
"""

from __future__ import annotations

import os
from typing import Any

import joblib

from calliper.kernels import learn_metric
from studies.experiments import FloatArray
from studies.experiments.deutschmann2024.config import LOCAL, SEED


def learnt_once(Z_train: FloatArray, y_train: FloatArray) -> Any:
    """The metric, from all training rows given (it takes 2,000 of them)."""
    path = LOCAL / "metrics" / f"{joblib.hash((Z_train, y_train, SEED))}.joblib"
    if not path.exists():
        metric = learn_metric(Z_train, y_train, random_state=SEED)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        joblib.dump(metric, unfinished)
        unfinished.replace(path)
    return joblib.load(path)

"""Rows, a model that answers row by row, and what is calibrated on them; workers import it."""

import time

import numpy as np
import pandas as pd

COLUMNS = ["a", "b", "c"]


def rows(n, seed=0):
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(n, 3)), columns=COLUMNS)


def targets(frame, seed=1):
    noise = np.random.default_rng(seed).normal(size=len(frame))
    return frame["a"] + frame["b"].abs() * noise


def model(X):
    return np.asarray(X)[:, 0] * 1.5


def slow_model(X):
    time.sleep(0.2)
    return model(X)


def places(X):
    return np.asarray(X)[:, :2]


#: One entry each time that a test has loaded a model in this process.
LOADS: list[int] = []

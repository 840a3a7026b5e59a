"""Localised methods against one exponential and one sort of the N × M matrix; metric learning."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from calliper import RBF
from calliper.calibrators import LCP, LVD, RLCP, SLCP
from calliper.kernels import loss_and_gradient
from studies.benchmarks.timing import best_times, table, verdict

N, M, D = 2_000, 10_000, 8


def prediction(rounds: int) -> str:
    rng = np.random.default_rng(0)
    Z, train, new = (rng.normal(size=(n, D)) for n in (N, N, M))
    scores, errors = rng.exponential(size=N), rng.exponential(size=N)
    fitted: dict[str, Any] = {
        "LCP": LCP(bandwidth=1.0).fit(Z, scores),
        "RLCP": RLCP(1.0, random_state=0).fit(Z, scores),
        "SLCP": SLCP(RBF(1.0)).fit(Z, scores, training=(train, errors)),
        "LVD": LVD(random_state=0).fit(Z, scores, training=(train, None, train[:, 0])),
    }
    matrix = -rng.exponential(size=(M, N))

    def reference() -> None:
        np.sort(np.exp(matrix), axis=1)

    work = {name: partial(method.predict_radius, new) for name, method in fitted.items()}
    time = best_times({"exp and sort": reference, **work}, rounds)
    rows = [[name, verdict(time[name] / time["exp and sort"], 5)] for name in fitted]
    return table([f"prediction, {N:,} × {M:,} × {D}", "/ (exp + sort of each row)"], rows)


def metric_learning(rounds: int) -> str:
    rng = np.random.default_rng(0)
    n, p, d = 1_000, 256, 10
    X, y, A = rng.normal(size=(n, p)), rng.normal(size=n), rng.normal(size=(d, p)) / p
    weights = rng.normal(size=(n, n))

    def products() -> None:
        """What one gradient needs: AX, its Gram matrix, and XᵀWX applied through AX."""
        low = X @ A.T
        low @ low.T
        (weights @ low).T @ X
        (weights.T @ low).T @ X

    time = best_times(
        {"products": products, "iteration": lambda: loss_and_gradient(A, X, y, 1.0)}, 5 * rounds
    )
    rows = [[f"{n:,} × {p}, {d} directions", verdict(time["iteration"] / time["products"], 3)]]
    return table(["LVD's metric", "one iteration / its matrix products"], rows)

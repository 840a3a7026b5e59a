"""Radial kernels against one exponential of the matrix; memory; the cost of importing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from calliper import RBF, FullRescaled, JackknifeRescaled
from studies.benchmarks.timing import best_times, table, verdict


def radial(rounds: int) -> str:
    n, m, d = 2_000, 20_000, 8
    rng = np.random.default_rng(0)
    Z, new, scores = rng.normal(size=(n, d)), rng.normal(size=(m, d)), rng.exponential(size=n)
    matrix = -rng.exponential(size=(m, n))
    rows = []
    for length_scale in (0.3, 1.0, 10.0):
        kernel = RBF(length_scale)
        time = best_times(
            {
                "exp": lambda: np.exp(matrix),
                "jackknife": lambda: JackknifeRescaled(kernel).fit(Z, scores).predict_radius(new),  # noqa: B023
                "full": lambda: FullRescaled(kernel).fit(Z, scores).predict_radius(new),  # noqa: B023
            },
            rounds,
        )
        rows.append(
            [
                f"{n:,} × {m:,} × {d}",
                f"{length_scale}",
                verdict(time["jackknife"] / time["exp"], 3),
                verdict(time["full"] / time["jackknife"], 2.5),
            ]
        )
    return table(["N × M × d", "length scale", "Jackknife / exp", "Full / Jackknife"], rows)


MEMORY = """
import numpy as np
from calliper import KNN, FullRescaled, JackknifeRescaled
from calliper.kernels import TunedRBF
rng = np.random.default_rng(0)
Z, new = rng.normal(size=({n}, {d})), rng.normal(size=({m}, {d}))
scores = rng.exponential(size={n})
method = {method}
method.fit(Z[:200], scores[:200]).predict_radius(new[:200])
def peak():  # of this program alone; the usual counter starts from its parent's
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
before = peak()
method.fit(Z, scores).predict_radius(new)
print(peak() - before)
"""

IMPORT = """
from time import perf_counter
start = perf_counter()
import sklearn.model_selection, sklearn.neighbors, sklearn.preprocessing, scipy.stats
parts = perf_counter() - start
import calliper
print((perf_counter() - start) / parts)
"""


def in_fresh_interpreter(code: str) -> float:
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(out.stdout)


def memory_and_import() -> str:
    rows = []
    large = {"n": 100_000, "m": 100_000, "d": 10}
    for method in ("JackknifeRescaled(KNN(10))", "FullRescaled(KNN(10))"):
        megabytes = in_fresh_interpreter(MEMORY.format(method=method, **large))
        rows.append([f"{method}, 100,000 × 100,000 × 10: MB on top", verdict(megabytes, 500)])
    for criterion in ("mse", "mi"):
        method = f"JackknifeRescaled(TunedRBF({criterion!r}, length_scales=[0.1, 1.0]))"
        megabytes = in_fresh_interpreter(MEMORY.format(method=method, n=2000, m=10_000, d=1))
        rows.append([f"tuning by {criterion}, N = 2,000: MB on top", verdict(megabytes, 400)])
    ratio = min(in_fresh_interpreter(IMPORT) for _ in range(3))
    rows.append(["import calliper / import the parts of scikit-learn it uses", f"{ratio:.2f}"])
    return table(["what", "measured"], rows)

"""Processes forked from one whose threads are predicting answer as it does, and wait for none."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys
import numpy as np
from sklearn.linear_model import LinearRegression
from calliper import KNN, RBF, ConformalRegressor, FullRescaled, JackknifeRescaled, Split
from calliper._blocks import _OneThread

rng = np.random.default_rng(0)
X = rng.normal(size=(900, 3)).round(1)
y = X[:, 0] + rng.normal(size=900)
model = LinearRegression().fit(X[:300], y[:300])
methods = Split(), FullRescaled(KNN(5)), JackknifeRescaled(KNN(5)), FullRescaled(RBF(1.0))
made = [ConformalRegressor(model, method).calibrate(X[300:600], y[300:600]) for method in methods]

def ends(each):
    return each.predict_interval(X[600:], (0.5, 0.9)).upper.tobytes()

def answer():
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if [ends(each) for each in made] == expected else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

expected = [ends(each) for each in made]
codes = [answer()]
with _OneThread.lock:  # as a thread that enters or leaves at that moment
    codes.append(answer())
with _OneThread():  # as one that is inside, and in the copy never leaves
    codes.append(answer())
same = [ends(each) for each in made] == expected
sys.exit(0 if same and codes == [0, 0, 0] and not _OneThread.inside else f"{codes}")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.long
def test_children_of_a_busy_process_answer_as_it_does():
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    # Threads of GNU's OpenMP, which scikit-learn searches with, do not survive a fork.
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env=alone)
    assert done.returncode == 0, done.stderr

import subprocess
import sys

import calliper

SURFACE = [
    "KNN",
    "LCP",
    "LVD",
    "RBF",
    "RCP",
    "RLCP",
    "SLCP",
    "AbsoluteError",
    "CVPlus",
    "CalliperError",
    "ConditionalCalibration",
    "ConformalRegressor",
    "EmbeddingWarning",
    "ForestProximity",
    "FullRescaled",
    "Intervals",
    "JackknifeAfterBootstrap",
    "JackknifeMinmaxRescaled",
    "JackknifePlus",
    "JackknifeRescaled",
    "Layer",
    "LoCart",
    "MADSplit",
    "Mahalanobis",
    "NormalizedKNN",
    "Problem",
    "QuantileError",
    "QuantilePair",
    "SignedError",
    "SmallCalibrationWarning",
    "Split",
    "TunedKNN",
    "TunedRBF",
    "UnscaledFeaturesWarning",
    "ZeroScaleWarning",
    "datasets",
    "evaluate",
    "evaluation",
    "guarantees",
    "metrics",
    "mutual_information",
    "summarise",
    "tuning",
]


def test_public_names():
    assert calliper.__all__ == SURFACE
    assert all(getattr(calliper, name).__doc__ for name in SURFACE)


def in_fresh_interpreter(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_is_light():
    """Nothing heavy beyond what the parts of scikit-learn in use load on their own."""
    heavy = ["pandas", "polars", "pyarrow", "matplotlib", "click", "rich", "torch"]
    code = (
        "import sys, sklearn.neighbors, sklearn.model_selection, sklearn.preprocessing\n"
        "before = set(sys.modules)\n"
        "import calliper\n"
        f"print([m for m in {heavy} if m in set(sys.modules) - before])"
    )
    assert in_fresh_interpreter(code) == "[]"


def test_import_changes_nothing():
    code = (
        "import warnings, logging, threading, numpy, sklearn, scipy.stats\n"
        "before = list(warnings.filters), logging.root.handlers[:], numpy.geterr(),"
        " threading.active_count()\n"
        "import calliper\n"
        "after = list(warnings.filters), logging.root.handlers[:], numpy.geterr(),"
        " threading.active_count()\n"
        "print(before == after)"
    )
    assert in_fresh_interpreter(code) == "True"

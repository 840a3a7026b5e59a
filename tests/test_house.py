"""The house rules that a command can see: who may import what, and what is public."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

import calliper
from checks import house

SOURCE = Path(calliper.__file__).parent

NAMES = [
    "KNN",
    "RBF",
    "AbsoluteError",
    "Boxes",
    "CalliperError",
    "ConformalRegressor",
    "DistributionError",
    "ErrorModel",
    "FullRescaled",
    "Intervals",
    "JackknifeRescaled",
    "JointError",
    "Layer",
    "MultiTargetRegressor",
    "PredictWith",
    "QuantileError",
    "QuantileModel",
    "SignedError",
    "Split",
    "compare",
    "evaluate",
    "load",
    "save",
]
#: Modules of ours that ``import calliper`` may load.
MOST_LOADED = 55
#: Files of the source that a call around a forest may enter, and calls from one file into another.
MOST_ENTERED = {"calibrate": (16, 90), "predict_interval": (12, 35)}
#: Attributes asked for by name.
MOST_BY_NAME = 130
SUBMODULES = {
    "calibrators": [
        "LCP",
        "LVD",
        "RCP",
        "RLCP",
        "SLCP",
        "ConditionalCalibration",
        "FullRescaled",
        "Grouped",
        "JackknifeMinmaxRescaled",
        "JackknifeRescaled",
        "LoCart",
        "MADSplit",
        "NormalizedKNN",
        "Split",
    ],
    "lab.comparison": ["LEVELS", "Comparison", "Points", "compare"],
    "lab.datasets": ["OneDimensional", "one_dimensional"],
    "distribution": ["Distribution", "GroupedDistribution"],
    "lab.evaluation": [
        "FailedTrialsWarning",
        "Method",
        "Problem",
        "Records",
        "Summary",
        "TornStoreWarning",
        "evaluate",
        "last_digit",
        "one_sigma",
        "summarise",
    ],
    "exceptions": [
        "CalliperError",
        "CannotSaveError",
        "DamagedFileError",
        "EmbeddingWarning",
        "FailedTrialsWarning",
        "InEveryBootstrapWarning",
        "MissingFileError",
        "NewerFormatError",
        "OtherModelError",
        "QuantileCrossingWarning",
        "RowLabelsWarning",
        "RowOrderWarning",
        "SharedRowsWarning",
        "ShiftWarning",
        "SmallCalibrationWarning",
        "SparseBinsWarning",
        "SplitGroupsWarning",
        "TornStoreWarning",
        "UnbalancedBoxWarning",
        "UnscaledFeaturesWarning",
        "UnusedWarning",
        "ZeroScaleWarning",
    ],
    "guarantees": [
        "ASSUMPTIONS",
        "Guarantee",
        "conformal_coverage",
        "coverage_law",
        "jackknife_coverage",
    ],
    "information": ["MutualInformation", "mutual_information"],
    "files": ["Kept", "inspect", "load", "save"],
    "lab": ["bounds", "comparison", "datasets", "evaluation", "metrics", "report", "tuning"],
    "lab.bounds": [
        "Cell",
        "CellCoverage",
        "LocalCoverageEstimate",
        "Partition",
        "cantelli_local_coverage",
        "cantelli_threshold",
        "cell_coverage",
        "local_coverage_bound",
        "markov_local_coverage",
        "partition",
        "plug_in_local_coverage",
    ],
    "kernels": [
        "KNN",
        "RBF",
        "GradedKNN",
        "Kernel",
        "ForestProximity",
        "LearntMetric",
        "Mahalanobis",
        "TunedKNN",
        "TunedRBF",
        "learn_metric",
    ],
    "lab.metrics": [
        "MEASURES",
        "Context",
        "CoverageTable",
        "Estimate",
        "Measure",
        "ShareTable",
        "SparseBinsWarning",
        "bootstrap",
        "coverage_by_group",
        "coverage_by_value",
        "coverage_by_width",
        "coverage_width_correlation",
        "crps",
        "empirical_coverage",
        "excess_risk_of_target_coverage",
        "fraction_infinite",
        "hsic",
        "interval_score",
        "interval_scorer",
        "interval_scores",
        "mean_width",
        "median_width",
        "pinball_loss",
        "pit_histogram",
        "quantile_calibration",
        "r2_sqi",
        "tau_si",
        "tau_sqi",
        "worst_slab_coverage",
    ],
    "monitoring": ["CoverageMonitor", "ExchangeabilityMonitor"],
    "online": ["RATES", "Controller", "History", "coverage_needed"],
    "refitting": ["CVPlus", "JackknifeAfterBootstrap", "JackknifePlus", "RefitGuarantee"],
    "lab.report": [
        "BandDisplay",
        "CalibrationCurveDisplay",
        "CoverageDisplay",
        "CoverageLawDisplay",
        "EmbeddingDisplay",
        "FanDisplay",
        "MetricCurveDisplay",
        "MonitorDisplay",
        "PITDisplay",
        "Provenance",
        "RunningCoverageDisplay",
        "WidthErrorDisplay",
        "WidthImportanceDisplay",
        "draw_bands",
        "draw_calibration",
        "draw_tuning",
        "render_page",
    ],
    "scale": ["BatchIntervals", "Cells", "connect"],
    "scores": [
        "AbsoluteError",
        "DistributionError",
        "JointError",
        "QuantileError",
        "ScaledError",
        "Score",
        "SignedError",
    ],
    "shift": ["LikelihoodRatio", "Recency", "ShiftReport"],
    "lab.tuning": ["TuningCurve", "tuning_curve"],
}


def test_public_names():
    assert calliper.__all__ == NAMES
    assert all(getattr(calliper, name).__doc__ for name in NAMES)


def test_submodules_are_topics_with_documented_names():
    topics = {name for name in SUBMODULES if "." not in name}
    assert set(dir(calliper)) == {*NAMES, *topics, "metrics", "__version__"}
    assert calliper.metrics is calliper.lab.metrics
    for name, names in SUBMODULES.items():
        module = attrgetter(name)(calliper)
        assert module is import_module(f"calliper.{name}")
        assert module.__doc__
        assert sorted(module.__all__) == sorted(names)
        assert all(each.__doc__ for each in (getattr(module, each) for each in names))


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = calliper.nonsense


@cache
def nodes(path):
    return [*ast.walk(ast.parse(path.read_text()))]


def imported_modules(path):
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_package_imports_the_private_modules_of_another():
    strangers = []
    for path in SOURCE.rglob("*.py"):
        within = path.relative_to(SOURCE).parts
        for module in imported_modules(path):
            parts = module.split(".")
            private = any(part.startswith("_") for part in parts[2:])
            if parts[0] == "calliper" and private and parts[1] != within[0]:
                strangers.append((str(path.relative_to(SOURCE)), module))
    assert strangers == []


def test_a_class_name_means_one_class():
    where = {}
    for path in SOURCE.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


#: Run once, in a fresh interpreter: what ``import calliper`` loads and changes.
IMPORTING = """\
import json, logging, sys, threading, warnings
import numpy, scipy.stats, sklearn.neighbors, sklearn.model_selection, sklearn.preprocessing
def state():
    return repr((warnings.filters, logging.root.handlers, numpy.geterr(), threading.active_count()))
modules, before = set(sys.modules), state()
import calliper
found = {"loaded": sorted(set(sys.modules) - modules), "changed": before != state()}

import pickle
from calliper import *
from calliper import compare, evaluate, MultiTargetRegressor
assert pickle.loads(pickle.dumps(compare)) is compare is calliper.compare
assert pickle.loads(pickle.dumps(calliper.calibrators.LCP)) is calliper.calibrators.LCP
assert calliper.lab.comparison.compare is compare
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported():
    """What was loaded and whether anything changed; names loaded when asked for are checked."""
    result = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_import_is_light(imported):
    """Nothing heavy beyond what the parts of scikit-learn in use load on their own."""
    heavy = {"pandas", "polars", "pyarrow", "matplotlib", "click", "rich", "torch", "jinja2"}
    assert heavy.intersection(imported["loaded"]) == set()


def test_import_loads_what_intervals_need_and_no_more(imported):
    """What judges methods, keeps them or refits models is loaded when asked for."""
    loaded = [name for name in imported["loaded"] if name.startswith("calliper.")]
    later = (
        "cli",
        "files",
        "information",
        "lab",
        "monitoring",
        "online",
        "refitting",
        "scale",
    )
    assert len(loaded) < MOST_LOADED
    assert [name for name in loaded if name.split(".")[1] in later] == []


def test_a_call_passes_through_few_files():
    found = {
        name: (len(seen.files), seen.changes.total()) for name, seen in house.entered().items()
    }
    assert found.keys() == MOST_ENTERED.keys()
    too_many = [
        name for name, most in MOST_ENTERED.items() if np.any(np.greater(found[name], most))
    ]
    assert too_many == [], found


def test_few_attributes_are_asked_for_by_name():
    texts = (path.read_text() for path in SOURCE.rglob("*.py"))
    assert sum(len(re.findall(r"\b(?:getattr|hasattr)\(", each)) for each in texts) <= MOST_BY_NAME


def test_import_changes_nothing(imported):
    assert not imported["changed"]


def test_the_core_never_imports_what_stands_on_it():
    lazily = {"__init__.py", "__main__.py"}
    strangers = []
    for path in SOURCE.rglob("*.py"):
        within = path.relative_to(SOURCE).parts
        if within[0] not in ("lab", "cli", *lazily):
            above = [m for m in imported_modules(path) if m.split(".")[1:2] in (["lab"], ["cli"])]
            strangers += [(str(path.relative_to(SOURCE)), name) for name in above]
    assert strangers == []

"""Shared fixtures."""

from pathlib import Path

import numpy as np
import pytest

from cases.trees import with_few_trees


@pytest.fixture(scope="session")
def adversarial_bags():
    """Exchangeable bags built to break the Jackknife+: {(N, coverage, K): (Z, scores)}."""
    stored = np.load(Path(__file__).parent / "data" / "adversarial_bags.npz")
    bags = {}
    for name in stored.files:
        if name.endswith("_X"):
            n, percent, k = (part[1:] for part in name[:-2].split("_"))
            coverage = f"{1 - int(percent) / 100:.2f}"
            Z = stored[name].reshape(int(n) + 1, -1)
            bags[int(n), coverage, int(k)] = Z, stored[name[:-2] + "_s"]
    return bags


#: Whose subject is the model of errors itself.
WITH_ALL_TREES = (
    "test_error_model",
    "test_expected_error",
    "test_page",
    "test_readme",
    "test_composition",
    "test_online",
)


@pytest.fixture(autouse=True)
def few_trees(request):
    """Elsewhere left-out errors are learnt by few trees: all of them take a second each time."""
    module = getattr(request.node, "module", None)
    with pytest.MonkeyPatch.context() as patch:
        if module is not None and module.__name__.rpartition(".")[2] not in WITH_ALL_TREES:
            with_few_trees(patch)
        yield

"""Shared fixtures."""

from pathlib import Path

import numpy as np
import pytest

from cases.trees import ALL, FEW, with_trees


def pytest_runtest_setup():
    """Draws without a seed of their own are the same in every run, before any fixture is made."""
    np.random.seed(0)  # noqa: NPY002 - what random_state=None of scikit-learn draws from


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


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    """Left-out errors are learnt by few trees: all of them take a second each time."""
    with pytest.MonkeyPatch.context() as patch:
        with_trees(patch, *FEW)
        yield


@pytest.fixture
def all_trees(monkeypatch):
    """For tests whose subject is what errors teach: as many trees as users get."""
    with_trees(monkeypatch, *ALL)

"""The book of promises is complete and true, and those who try to break promises can."""

import ast
import inspect
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from calliper import ConformalRegressor, Split, calibrators, kernels, refitting, scores
from promises import adversaries, book, campaign, laws, methods

pytestmark = pytest.mark.filterwarnings("ignore")
TESTS = Path(__file__).parents[1]
KINDS = ("guarantee", "equality", "refusal")
FOUND, ATTACKS = campaign.read("laws"), campaign.read("bags")


def test_every_public_method_has_an_entry():
    named = {name for promise in book.entries("guarantee") for name in promise.of.split()}
    public = {*calibrators.__all__, *kernels.__all__, *refitting.__all__, *scores.__all__}
    public -= {"Kernel", "LearntMetric", "learn_metric", "RefitGuarantee"}
    options = inspect.signature(ConformalRegressor).parameters
    assert public | {f"ConformalRegressor.{option}" for option in options} <= named


def test_every_calibrator_and_kernel_is_tried():
    tried = " ".join(repr(m) for m in (methods.CALIBRATORS | methods.REFITTED).values())
    of_marginal = book.entries("guarantee")[0].of.split()
    assert [name for name in of_marginal if f"{name}(" not in tried + "AbsoluteError("] == []
    assert {*FOUND} == {*laws.LAWS} and {*ATTACKS} == {*adversaries.TRIALS}


@cache
def functions_of(file):
    """Names of tests as pytest has them, those in classes too."""
    body = ast.parse((TESTS / file).read_text(encoding="utf-8")).body
    inside = {f"{c.name}::{getattr(f, 'name', '')}" for c in body if isinstance(c, ast.ClassDef)
              for f in c.body}  # fmt: skip
    return inside | {node.name for node in body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("kind", KINDS)
def test_tests_that_are_named_exist(kind):
    for promise in book.entries(kind):
        assert promise.tests, promise.says
        for file, _, name in (test.partition("::") for test in promise.tests):
            assert name in functions_of(file), (file, name)


def test_the_page_is_what_registry_and_results_say():
    assert book.PAGE.read_text(encoding="utf-8") == book.page()


def test_no_promise_is_refuted():
    assert book.broken(FOUND, ATTACKS) == []


@pytest.mark.parametrize("name", [n for n in ATTACKS if n not in adversaries.DRAWING])
def test_worst_bags_are_covered(name):
    """What searches found: of up to seven rows the worst for each size."""
    for n, bag in ATTACKS[name]["worst"].items():
        if int(n) <= 7:
            margins = adversaries.again(name, bag)
            assert margins.min() >= -1e-9, bag
            told = adversaries.told_apart(name, margins).min()
            assert told == pytest.approx(bag["margin"], abs=1e-8)


def test_worst_bags_of_a_method_that_draws():
    (name,) = adversaries.DRAWING
    for bag in ATTACKS[name]["worst"].values():
        assert adversaries.again(name, bag, draws=5000).min() > -0.03


@pytest.mark.parametrize("name", ["JackknifeRescaled(KNN 1)", "JackknifeRescaled(KNN 2)"])
def test_the_bound_of_the_jackknife_is_reached(name):
    """Some bag is covered as little as is proved, and less than the level says."""
    worst = ATTACKS[f"marginal: {name}"]["worst"].values()
    assert min(bag["margin"] for bag in worst) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("name", laws.LAWS)
def test_every_law_can_be_tried(name):
    law, rng = laws.LAWS[name], np.random.default_rng(0)
    margins = law.bag(rng, law.worlds[len(name) % len(law.worlds)])
    assert np.all(np.abs([*margins.values()]) <= 1)


class Careless(Split):
    """One rank too low, as if the new row did not count."""

    def _radius(self, Z, levels, shares=None):
        fewer = [max(level - 1 / (self.n_calibration_ + 1), 1e-6) for level in levels]
        return super()._radius(Z, fewer, shares)


def test_a_method_that_breaks_its_promise_is_found(monkeypatch):
    monkeypatch.setitem(methods.CALIBRATORS, "Split", Careless())
    assert adversaries.attack("marginal: Split", 7)["least"] < -0.1
    state = None
    for number in range(12):
        state = laws.joined(state, laws.batch("marginal: Split", number))
    assert laws.verdict("marginal: Split", state, 2000).broken


@pytest.mark.parametrize(("mean", "accused"), [(0.0, False), (-0.01, True)])
def test_bets_refute_what_is_false_and_nothing_else(mean, accused):
    rng, n = np.random.default_rng(0), 20_000
    state = None
    for part in np.split(np.clip(mean + 0.05 * rng.normal(size=n), -1, 1), 20):
        cells = {"no ties, 0.9": laws.summed(part)}
        state = laws.joined(state, {"pairs": len(part), "seconds": 0.0, "cells": cells})
    assert bool(laws.verdict("scores: any", state, 2000).broken) is accused
    assert state["cells"]["no ties, 0.9"]["bags"] == n


def test_a_campaign_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "FILES", {"laws": tmp_path / "laws.json"})
    monkeypatch.setattr(campaign, "RESULTS", tmp_path)
    monkeypatch.setitem(
        campaign.WORK, "laws", ({"marginal: Split": None}, laws.batch, laws.joined, "pairs")
    )
    state = laws.joined(None, laws.batch("marginal: Split", 0))
    campaign.write("laws", {"marginal: Split": state, "one that is no more": state})
    campaign.run(0.002, 1, ("laws",))
    after = json.loads((tmp_path / "laws.json").read_text(encoding="utf-8"))
    assert [*after] == ["marginal: Split"]
    expected = laws.joined(state, laws.batch("marginal: Split", 1))
    batches = after["marginal: Split"]["batches"]
    assert batches >= 2
    if batches == 2:
        assert after["marginal: Split"]["cells"] == expected["cells"]

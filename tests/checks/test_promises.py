"""The book of promises is complete and true, and those who try to break promises can."""

import ast
import inspect
import json
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from calliper import ConformalRegressor, Split, calibrators, kernels, refitting, scores
from calliper.guarantees import conformal_coverage
from calliper.refitting import CVPlus, JackknifeAfterBootstrap
from checks.promises import adversaries, book, campaign, laws, methods

pytestmark = pytest.mark.filterwarnings("ignore")
TESTS = Path(__file__).parents[1]
KINDS = ("guarantee", "equality", "refusal")
FOUND, ATTACKS = campaign.read("laws"), campaign.read("bags")


def test_every_public_method_has_an_entry():
    named = {name for promise in book.entries("guarantee") for name in promise.of.split()}
    public = {*calibrators.__all__, *kernels.__all__, *refitting.__all__, *scores.__all__}
    public -= {"Kernel", "LearntMetric", "RefitGuarantee", "Score", "learn_metric"}
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
    """What searches found: of up to six rows, or two that are drawn, the worst for each size."""
    for n, bag in ATTACKS[name]["worst"].items():
        if int(n) <= (2 if name.startswith("confidence") else 6):
            margins = adversaries.again(name, bag)
            assert margins.min() >= -1e-9, bag
            told = adversaries.told_apart(name, margins).min()
            assert told == pytest.approx(bag["margin"], abs=1e-8)


def test_worst_bags_of_a_method_that_draws():
    (name,) = adversaries.DRAWING
    for bag in ATTACKS[name]["worst"].values():
        assert adversaries.again(name, bag, draws=5000).min() > -0.03


@pytest.mark.parametrize(
    "name",
    [
        "marginal: JackknifeRescaled(KNN 1)",
        "marginal: JackknifeRescaled(KNN 2)",
        "refitting: JackknifePlus",
        *(name for name in adversaries.TRIALS if name.startswith("confidence")),
    ],
)
def test_bounds_are_reached(name):
    """Some bag is covered as little as is proved, for the Jackknife+ less than the level says."""
    worst = ATTACKS[name]["worst"].values()
    assert min(bag["margin"] for bag in worst) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", laws.LAWS)
def test_every_law_can_be_tried(name):
    law, rng = laws.LAWS[name], np.random.default_rng(2)  # few rows
    world = law.worlds[len(name) % len(law.worlds)]
    margins, pairs = law.bag(rng, world, law.whole)
    assert pairs >= 1
    for key, margin in margins.items():
        assert margin <= laws.largest(name, f"no ties, {key}") + 1e-9
        assert not law.whole or margin > -1e-9


@pytest.mark.parametrize("whole", [True, False])
def test_every_row_is_new_as_often_as_any_other(whole):
    order, new_rows = np.random.default_rng(0).permutation(10), []

    def cover(known, new):
        assert not set(known) & set(new) and len(known) == (9 if whole else 5)
        new_rows.extend(new)
        return {"0.9": float(np.mean(new))}

    margins, pairs = laws.turned(cover, order, whole)
    assert sorted(new_rows) == list(range(10)) and pairs == 10
    assert margins == {"0.9": pytest.approx(4.5)}


def test_halves_take_luck_away():
    """The margin of halves varies much less than that of one calibration set does."""
    rng, each, halves = np.random.default_rng(0), [], []
    for _ in range(300):
        scores = rng.normal(size=(200, 1))

        def cover(known, new, scores=scores):
            covered = scores[new] <= np.sort(scores[known], axis=0)[90]
            each.append(covered.mean())
            return {"0.9": each[-1]}

        halves.append(laws.turned(cover, np.arange(200), whole=False)[0]["0.9"])
    assert np.var(halves) < np.var(each) / 5


def test_weights_are_on_average_no_lighter_than_is_said():
    for world in laws.INDEPENDENT:
        Z, _ = laws.WORLDS[world](np.random.default_rng(0), 20_000, 2)
        assert laws.weight(Z).mean() > laws.LIGHTEST and laws.weight(Z).max() <= laws.HEAVIEST


def test_what_would_have_been_seen():
    assert laws.seen_by_whole("box", 0) == 1 and laws.seen_by_whole("box", 1) == 0.5
    assert (1 - laws.seen_by_whole("box", 700)) ** 700 == pytest.approx(0.5)
    assert laws.seen_by_whole("box", 700) < 0.001 < laws.seen_by_whole("weights", 700)


class Careless(Split):
    """One rank too low, as if the new row did not count."""

    def _radius(self, Z, levels, shares=None):
        fewer = [max(level - 1 / (self.n_calibration_ + 1), 1e-6) for level in levels]
        return super()._radius(Z, fewer, shares)


def test_a_method_that_breaks_its_promise_is_found(monkeypatch):
    monkeypatch.setitem(methods.CALIBRATORS, "Split", Careless())
    monkeypatch.setattr(adversaries, "STEPS", 20)
    assert adversaries.attack("marginal: Split", 7)["least"] < -0.1
    state = None
    for number in range(6):
        state = laws.joined(state, laws.batch("marginal: Split", number))
    assert "no ties, 0.9" in laws.verdict("marginal: Split", state, 2000).broken
    one = laws.joined(None, laws.batch("marginal: Split", 0, whole=True))
    assert "a whole bag" in laws.verdict("marginal: Split", one, 2000).broken


class Sure(Split):
    """Says that it is confident, and is as sure as anybody."""

    def predict_radius(self, Z, coverage=0.9, *, confidence=None):
        return super().predict_radius(Z, coverage)


class Boastful(CVPlus):
    """Promises 1−α, which folds of two rows do not keep."""

    def _proved(self, coverage, n):
        return conformal_coverage(coverage, n)


def test_false_promises_over_draws_and_folds_are_found(monkeypatch):
    monkeypatch.setitem(methods.CALIBRATORS, "Split", Sure())
    monkeypatch.setattr(adversaries, "ATOMS", 4)
    assert adversaries.attack("confidence: Split", 0)["least"] < -0.1
    name = "CVPlus(2 folds)"
    monkeypatch.setitem(methods.FOLDED, name, Boastful(methods.Nearest(), 2, random_state=0))
    Z, y = np.array([[0.0], [0.0], [1.0], [1.0], [2.0], [2.0]]), [0.0, 9.0, 1.0, 5.0, 0.0, 3.0]
    bag = {"Z": Z, "errors": y}
    assert adversaries.again(f"refitting: {name}", bag).min() < -0.01


def test_all_bootstraps_have_the_chances_they_are_drawn_with():
    for n, expected in ((2, 1), (3, 1), (2, 2)):
        drawn = adversaries.all_bootstraps(n, expected)
        assert sum(chance for _, chance in drawn) == pytest.approx(1)
    rng, several = np.random.default_rng(0), ((0, 1),)
    method, X, y = JackknifeAfterBootstrap(methods.Mean(), 1), np.eye(2), np.arange(2.0)
    hits = []
    for _ in range(200):
        method.random_state = int(rng.integers(2**31))
        hits.append(method.fit(X, y).in_bag_.tolist() == [[True, True]])
    chance = sum(c for drawn, c in adversaries.all_bootstraps(2, 1) if drawn == several)
    assert np.mean(hits) == pytest.approx(chance, abs=0.1)


@pytest.mark.parametrize(("mean", "accused"), [(0.0, False), (-0.01, True)])
def test_bets_refute_what_is_false_and_nothing_else(mean, accused):
    rng, n = np.random.default_rng(0), 20_000
    state = None
    for part in np.split(np.clip(mean + 0.05 * rng.normal(size=n), -1, 1), 20):
        cells = {"no ties, 0.9": laws.summed(part)}
        found = {"pairs": len(part), "whole": 0, "least": 1.0, "seconds": 0.0, "cells": cells}
        state = laws.joined(state, found)
    assert bool(laws.verdict("marginal: RLCP", state, 2000).broken) is accused
    assert state["cells"]["no ties, 0.9"]["bags"] == n


def test_a_campaign_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "FILES", {"laws": tmp_path / "laws.json"})
    monkeypatch.setattr(campaign, "RESULTS", tmp_path)
    monkeypatch.setitem(campaign.WORK, "laws", ({"marginal: Split": None}, laws.batch, laws.joined))
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


def test_copies_of_a_row_stay_equal_in_a_learnt_space():
    """A whole bag of copies that was once covered too rarely: one row short at level 1/3."""
    seed = [zlib.crc32(b"marginal: FullRescaled(Mahalanobis)"), 14]
    rng, law = np.random.default_rng(seed), laws.LAWS["marginal: FullRescaled(Mahalanobis)"]
    for world in law.worlds[: law.worlds.index("duplicates") + 1]:
        bags = [law.bag(rng, world, True)[0] for _ in range(laws.WHOLES)]
        assert min(margin for bag in bags for margin in bag.values()) > -1e-9
    Z, scores = rng.normal(size=(60, 5)), rng.exponential(size=60)
    metric = kernels.learn_metric(Z, scores, max_iter=2)
    alone = np.vstack([metric.transform(row[None]) for row in Z])
    np.testing.assert_array_equal(metric.transform(Z), alone)

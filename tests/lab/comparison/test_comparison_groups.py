"""Groups belong to the verdict: one that is covered too little is named, chance is not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from calliper import KNN, FullRescaled
from calliper.lab._words import percent
from calliper.lab.comparison import Points, compare
from calliper.lab.comparison._comparison import Cut
from calliper.lab.comparison._contest import short_bins
from calliper.lab.metrics import CoverageTable

OTHERS = ("mean_width", "lower", "upper")
CITIES = np.array(["Aarau", "Basel", "Chur"])


def rows(n, seed, loud=1.0):
    """Three cities of which the last, a tenth of the rows, is ``loud`` times as noisy."""
    rng = np.random.default_rng(seed)
    city = rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
    x = rng.uniform(size=(n, 2))
    noise = np.where(city == 2, loud, 1.0) * rng.normal(size=n)
    return Points(x, x[:, 0] + noise, x[:, 0]), CITIES[city].tolist()


def compared(loud, **options):
    (calibration, _), (test, groups) = rows(1000, 1, loud), rows(2000, 2, loud)
    methods = options.pop("methods", {"full": FullRescaled(KNN(50), random_state=0)})
    return compare(
        calibration, test, methods=methods, groups=groups, group_name="city", levels=(), **options
    )


def test_a_group_that_is_covered_too_little_is_in_headline_caveat_and_warnings():
    found = compared(1.55)
    part = next(p for p in found.parts if p.by == "group" and p.method == found.verdict.method)
    share = percent(part.table.coverage[2])
    assert 0.70 < part.table.coverage[2] < 0.80, "about three quarters, as was seen"
    assert found.record("split", 0.9).coverage >= found.record("split", 0.9).chance_low
    assert f"but city 'Chur' is covered only {share}" in found.verdict.headline
    assert found.verdict.caveat.startswith(f"Rows of city 'Chur' are covered only {share}")
    (check,) = [check for check in found.checks if check.kind == "short-group"]
    assert check.severity == "warning" and check.title.startswith("1 of 3 groups is covered less")
    assert f" rows), {share} by {found.verdict.method} (recommended)" in check.title
    assert "Basel" not in check.title
    error = np.sqrt(np.prod([part.table.coverage[2], 1 - part.table.coverage[2]]) / part.table.n[2])
    assert f"standard error {percent(error)}, chance allows" in check.title
    assert "Calibrating by group repairs it" in check.meaning and "--group" in check.meaning


def test_alike_groups_are_not_named():
    found = compared(1.0)
    assert "short-group" not in {check.kind for check in found.checks}
    assert "city" not in found.verdict.headline and not found.verdict.caveat


def test_one_as_good_that_leaves_no_group_short_comes_first():
    found = compared(1.35)
    (check,) = [check for check in found.checks if check.kind == "short-group"]
    own, _, others = check.title.partition(" by full (recommended)")
    part = next(p for p in found.parts if p.by == "group" and p.method == "full")
    assert own.endswith(f" rows), {percent(part.table.coverage[2])}") and "by split" in others
    assert found.verdict.as_good == ("split",), "as good by score, or this tests nothing"
    assert found.verdict.headline == "Use full: a constant width does not cover every group."


@pytest.mark.long
def test_a_group_is_suspected_by_chance_in_one_case_of_a_hundred():
    """Whatever the number of groups and of methods, over draws of calibration and test rows."""
    rng, n_calibration, n_draws = np.random.default_rng(0), 150, 400
    sizes = np.array([400, 150, 60, 25, 10, 3, 1])
    known = {"labels": (*"abcdefg",), "n": sizes, **dict.fromkeys(OTHERS, np.zeros(7))}
    alarms = 0
    for _ in range(n_draws):
        parts = []
        for method in ("one", "other"):  # independent, which is the worst for Bonferroni's bound
            radius = np.sort(rng.uniform(size=n_calibration))[135]
            covered = rng.uniform(size=sizes.sum()) <= radius
            share = np.add.reduceat(covered, np.cumsum(sizes) - sizes) / sizes
            table = CoverageTable(coverage=share, **known)
            parts.append(Cut(method, 0.9, "group", "g", table))
        alarms += any(short_bins(part, n_calibration, len(parts)) for part in parts)
    assert alarms <= stats.binom(n_draws, 0.01).ppf(0.999)


@pytest.mark.parametrize("looks", [1, 6])
def test_bounds_hold_for_all_bins_and_looks_together(looks):
    n = np.array([30, 300, 3000])
    known = {"labels": (*"abc",), "n": n, "coverage": np.zeros(3)}
    table = CoverageTable(**known, **dict.fromkeys(OTHERS, np.zeros(3)))
    part = Cut("m", 0.9, "group", "g", table)
    bounds = np.array([*short_bins(part, 500, looks).values()])
    law = stats.betabinom(n, 451, 50)
    below = law.cdf(np.ceil(bounds * n) - 1)
    assert np.sum(below) * looks <= 0.01
    assert np.all(law.cdf(np.ceil(bounds * n)) * len(n) * looks >= 0.01 - 1e-12), "and no lower"

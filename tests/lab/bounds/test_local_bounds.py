"""Coverage in regions of inputs: the bounds, their plug-in estimate, and the bound of folds."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calliper import CalliperError, guarantees
from calliper.guarantees import fold_coverage
from calliper.information import MutualInformation
from calliper.lab.bounds import local_coverage_bound, plug_in_local_coverage
from oracles import tuning as oracles

LEVELS = [0.3, 0.5, 0.8, 0.9, 0.95, 0.99]
RHO = np.array([1e-6, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9, 0.999, 1.0])
INFORMATION = np.array([0, 1e-18, 1e-9, 1e-4, 0.005, 0.05, 0.3, 2.0, np.inf])


def joints_with_coverage(rng, count, coverage, nx=4, ns=5):
    """Random laws of (X, S) with P(S among its two smallest values) = coverage, all at once."""
    strength = rng.choice([0.05, 0.3, 1.0, 3.0], size=(count, 1, 1))
    joint = rng.exponential(size=(count, nx, 1)) * rng.exponential(size=(count, 1, ns))
    joint *= np.exp(strength * rng.normal(size=(count, nx, ns)))
    joint *= rng.uniform(size=joint.shape) > rng.choice([0.0, 0.3], size=(count, 1, 1))
    joint += 1e-9
    for part, share in ((slice(0, 2), coverage), (slice(2, ns), 1 - coverage)):
        joint[..., part] *= share / joint[..., part].sum(axis=(1, 2), keepdims=True)
    return joint


def information_of(joint):
    product = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    return np.maximum((joint * np.log(joint / product)).sum(axis=(1, 2)), 0)


@pytest.mark.parametrize("coverage", LEVELS)
@pytest.mark.long
def test_never_above_the_true_conditional_coverage(coverage):
    """Thousands of joint laws, and for each of them every region of inputs."""
    joint = joints_with_coverage(np.random.default_rng(0), 4000, coverage)
    information = information_of(joint)
    for region in range(1, 15):
        rows = [i for i in range(4) if region >> i & 1]
        rho = joint[:, rows].sum(axis=(1, 2))
        truth = joint[:, rows, :2].sum(axis=(1, 2)) / rho
        for form in ("binary", "paper"):
            bound = local_coverage_bound(information, coverage, rho, form=form)
            assert (bound <= truth + 1e-9).all()


def test_never_above_the_truth_in_exact_arithmetic():
    rng = np.random.default_rng(1)
    checked = 0
    for _ in range(200):
        joint = oracles.random_joint(rng, 3, 4)
        region = [[0], [1, 2], [0, 2]][rng.integers(3)]
        threshold = int(rng.integers(3))
        coverage = float(oracles.conditional_coverage(joint, range(3), threshold))
        if 0 < coverage < 1:
            rho = float(oracles.subset_probability(joint, region))
            bound = local_coverage_bound(oracles.discrete_mi(joint), coverage, rho)
            assert bound <= float(oracles.conditional_coverage(joint, region, threshold)) + 1e-9
            checked += 1
    assert checked > 150


def test_holds_for_coverage_averaged_over_calibration_draws():
    """A random threshold, independent of the new point: Jensen's inequality."""
    rng = np.random.default_rng(2)
    joint = joints_with_coverage(rng, 100, 0.7)
    for one, information in zip(joint, information_of(joint), strict=True):
        chance = rng.dirichlet([0.3] * 5)  # of each value of S to be the threshold
        rho = one[0].sum()
        given_x = np.cumsum(one[0]) / rho @ chance
        overall = np.cumsum(one.sum(axis=0)) @ chance
        if overall < 1 - 1e-9:
            assert local_coverage_bound(information, overall, rho) <= given_x + 1e-9


@given(st.floats(0.05, 0.99), st.floats(0.02, 0.95), st.floats(0.01, 0.99))
def test_two_bits_attain_it(coverage, rho, part):
    """So no better bound exists in terms of the information, the coverage and rho alone."""
    p = coverage - part * min(coverage, (1 - coverage) * (1 - rho) / rho)
    rest = (coverage - rho * p) / (1 - rho)
    joint = np.array([[rho * p, rho * (1 - p)], [(1 - rho) * rest, (1 - rho) * (1 - rest)]])
    information = information_of(joint[None])[0]
    assert local_coverage_bound(information, coverage, rho) == pytest.approx(p, abs=1e-7)


@pytest.mark.parametrize("coverage", [0.01, 0.3, 0.9, 0.95, 0.9999])
def test_equals_the_oracle(coverage):
    for form, oracle in (("binary", oracles.binary_bound), ("paper", oracles.paper_bound)):
        found = local_coverage_bound(INFORMATION[:, None], coverage, RHO[::2], form=form)
        expected = [
            [max(0.0, oracle(float(m), coverage, float(r))) for r in RHO[::2]] for m in INFORMATION
        ]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("coverage", "rho", "information", "paper", "trivial", "binary"),
    [
        (0.95, 0.10, 0.005, 0.244, 0.5, 0.875),
        (0.95, 0.10, 0.020, 0, 0.5, 0.785),
        (0.95, 0.25, 0.020, 0.387, 0.8, 0.868),
        (0.90, 0.10, 0.020, 0, 0, 0.688),
        (0.90, 0.25, 0.050, 0.017, 0.6, 0.722),
    ],
)
def test_table(coverage, rho, information, paper, trivial, binary):
    assert round(local_coverage_bound(information, coverage, rho, form="paper"), 3) == paper
    assert round(local_coverage_bound(np.inf, coverage, rho), 3) == trivial
    assert round(local_coverage_bound(information, coverage, rho), 3) == binary


@pytest.mark.parametrize("coverage", LEVELS)
def test_order_of_the_bounds(coverage):
    binary = local_coverage_bound(INFORMATION[:, None], coverage, RHO)
    paper = local_coverage_bound(INFORMATION[:, None], coverage, RHO, form="paper")
    trivial = np.array([oracles.trivial_bound(coverage, float(r)) for r in RHO])
    assert (binary <= coverage).all() and (paper >= 0).all()
    assert (binary >= paper).all()
    assert (binary >= trivial - 1e-12).all()
    assert (binary[0] == coverage).all() and (paper[0] == coverage).all()  # no information
    np.testing.assert_allclose(binary[-1], trivial, rtol=0, atol=1e-12)  # nothing known
    assert (paper[-1] == 0).all()
    assert (binary[:, -1] == coverage).all()  # the region is everything
    for bound in (binary, paper):
        assert (np.diff(bound, axis=0) <= 1e-12).all()  # less with more information
        assert (np.diff(bound, axis=1) >= -1e-12).all()  # more in larger regions


@pytest.mark.parametrize("form", ["binary", "paper"])
def test_many_at_once_is_one_by_one(form):
    many = local_coverage_bound(INFORMATION[:, None], 0.9, RHO, form=form)
    assert many.shape == (len(INFORMATION), len(RHO))
    for row, information in zip(many, INFORMATION, strict=True):
        for bound, rho in zip(row, RHO, strict=True):
            one = local_coverage_bound(float(information), 0.9, float(rho), form=form)
            assert isinstance(one, float) and one == bound
    assert local_coverage_bound(0.1, 0.9, [0.5]).shape == (1,)
    assert local_coverage_bound(0.1, 0.9, np.empty(0)).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.1, 0.9, 0.0), r"rho must lie in \(0, 1\].*got 0\."),
        ((0.1, 0.9, 1.5), r"rho must lie in \(0, 1\].*got 1\.5\."),
        ((0.1, 0.9, -0.2), r"rho must lie in \(0, 1\].*got -0\.2"),
        ((0.1, 0.9, np.nan), r"rho must lie in \(0, 1\].*got nan"),
        ((0.1, 0.9, [0.5, 2.0]), r"rho must.*got 2 at position 1\."),
        ((0.1, 0.9, [[0.5], [2.0]]), r"rho must.*got 2 at position \(1, 0\)\."),
        ((0.1, 0.9, "half"), "rho must be a number or an array; got 'half'"),
        ((-0.01, 0.9, 0.5), r"mutual_information must be.*>= 0.*max\(0, estimate\).*got -0\.01"),
        ((np.nan, 0.9, 0.5), "mutual_information must be.*got nan"),
        (([0.1, -np.inf], 0.9, 0.5), "mutual_information must be.*got -inf at position 1"),
        ((None, 0.9, 0.5), "mutual_information must be.*got nan"),
        ((0.1, 0.0, 0.5), "coverage must lie strictly between 0 and 1; got 0.0"),
        ((0.1, 95, 0.5), "coverage must lie strictly.*percentage"),
        ((0.1, [0.8, 0.9], 0.5), "coverage must be one level"),
        ((np.ones(3), 0.9, np.full(4, 0.5)), r"mutual_information \(3,\) and rho \(4,\).*column"),
    ],
)
def test_bad_input(arguments, message):
    for form in ("binary", "paper"):
        with pytest.raises(CalliperError, match=message):
            local_coverage_bound(*arguments, form=form)


def test_unknown_form():
    with pytest.raises(CalliperError, match="form must be 'binary' or 'paper'; got 'pinsker'"):
        local_coverage_bound(0.1, 0.9, 0.5, form="pinsker")


# ------------------------------------------------------------------ with estimated information


def stand_in(monkeypatch, estimate, standard_error=0.01, p_value=0.005, parts=1):
    """Replace the estimator by one that answers at once; returns what it was asked."""
    asked = {}

    def answer(Z, scores, **options):
        asked.update(options, Z=Z, scores=scores)
        return MutualInformation(
            estimate=estimate,
            raw=estimate,
            null_mean=0.0,
            null_deviation=0.0,
            p_value=p_value,
            standard_error=standard_error,
            per_component=(estimate / parts,) * parts,
            n=500,
            n_neighbors=7,
        )

    monkeypatch.setattr("calliper.lab.bounds.mutual_information", answer)
    return asked


def test_plug_in_is_the_bound_at_the_estimate(monkeypatch):
    asked = stand_in(monkeypatch, 0.02)
    result = plug_in_local_coverage(
        "Z", "s", 0.95, [0.1, 0.25], n_neighbors=7, n_components=2, Z_train="T", random_state=3
    )
    assert asked == {
        "Z": "Z", "scores": "s", "n_neighbors": 7, "n_components": 2, "Z_train": "T",
        "random_state": 3,
    }  # fmt: skip
    np.testing.assert_array_equal(result.bound, local_coverage_bound(0.02, 0.95, [0.1, 0.25]))
    np.testing.assert_array_equal(
        result.cautious_bound, local_coverage_bound(0.04, 0.95, [0.1, 0.25])
    )
    assert result.coverage == 0.95 and result.form == "binary"
    paper = plug_in_local_coverage("Z", "s", 0.95, 0.25, form="paper")
    assert paper.bound == local_coverage_bound(0.02, 0.95, 0.25, form="paper")
    assert paper.cautious_bound == local_coverage_bound(0.04, 0.95, 0.25, form="paper")
    with pytest.raises(AttributeError):
        paper.bound = 1.0


def test_words_of_the_plug_in(monkeypatch):
    stand_in(monkeypatch, 0.02)
    words = plug_in_local_coverage("Z", "s", 0.95, [0.1, 0.25]).describe()
    for part in (
        "plug-in estimate, not a guarantee",
        "0.0200 nats, standard error 0.0100, p-value 0.005",
        "500 points, 7 neighbours",
        "at least 0.785 in a region of 10 % of inputs",
        "at least 0.868 in a region of 25 % of inputs",
        "from coverage over all inputs alone: 0.500",
        "average over calibration draws",
        "fixed before calibration",
        "cell_coverage",
    ):
        assert part in words
    assert "guarantee" not in words.replace("not a guarantee", "")
    for part in ("No dependence", "sum over", "too few", "so 0 is used"):
        assert part not in words


def test_words_when_the_estimate_says_little(monkeypatch):
    stand_in(monkeypatch, -0.003, float("nan"), p_value=0.6, parts=3)
    result = plug_in_local_coverage("Z", "s", 0.9, 0.5)
    assert result.bound == 0.9
    assert result.cautious_bound == pytest.approx(0.8)  # nothing beyond marginal coverage
    words = result.describe()
    for part in ("-0.0030 nats", "so 0 is used", "does not prove that there is none",
                 "sum over 3", "below their joint information", "too few points"):  # fmt: skip
        assert part in words


def test_words_at_the_edges_of_what_is_worth_saying(monkeypatch):
    stand_in(monkeypatch, 0.0, p_value=0.05, parts=2)
    words = plug_in_local_coverage("Z", "s", 0.9, 0.5).describe()
    assert "sum over 2" in words
    assert "so 0 is used" not in words and "No dependence" not in words
    stand_in(monkeypatch, 0.01, p_value=0.06)
    assert "No dependence" in plug_in_local_coverage("Z", "s", 0.9, 0.5).describe()


def test_bad_questions_are_refused_before_the_work(monkeypatch):
    asked = stand_in(monkeypatch, 0.02)
    for coverage, rho, form, message in [
        (1.0, 0.5, "binary", "coverage must lie strictly"),
        (0.9, 0.0, "binary", "rho must lie in"),
        (0.9, 0.5, "other", "form must be"),
    ]:
        with pytest.raises(CalliperError, match=message):
            plug_in_local_coverage("Z", "s", coverage, rho, form=form)
    assert not asked


def test_plug_in_on_data():
    rng = np.random.default_rng(0)
    Z = rng.uniform(size=(400, 1))
    noise = rng.exponential(size=400)
    even = plug_in_local_coverage(Z, noise, 0.9, 0.25, random_state=0)
    uneven = plug_in_local_coverage(Z, noise * (1 + 9 * Z[:, 0]), 0.9, 0.25, random_state=0)
    assert even.bound > 0.8 and even.mutual_information.p_value > 0.05
    assert uneven.bound < even.bound and uneven.mutual_information.p_value < 0.01
    assert uneven.cautious_bound < uneven.bound


# ------------------------------------------------------------------------------ folds (CV+)


@given(thousandths=st.integers(1, 999), size=st.integers(1, 40), n_folds=st.integers(2, 40))
def test_equal_folds(thousandths, size, n_folds):
    level, n = Fraction(thousandths, 1000), size * n_folds
    found = fold_coverage(float(level), n, n_folds)
    if guarantees.conformal_coverage(float(level), n) == 1:
        assert found == 1
    else:
        assert found == pytest.approx(oracles.cv_plus_guarantee(level, n, n_folds), abs=1e-15)
    assert found >= float(1 - 2 * (1 - level)) - np.sqrt(2 / n) - 1e-12
    if size == 1:
        assert found >= max(0, float(1 - 2 * (1 - level))) - 1e-15
        assert found <= max(0, guarantees.jackknife_coverage(float(level), n)) + 1e-15


def test_unequal_folds_use_the_term_that_holds_for_any_sizes():
    assert fold_coverage(0.9, 101, 50) == pytest.approx(0.8 - 2 * 49 / 151)
    assert fold_coverage(0.9, 101, 50) < oracles.cv_plus_guarantee(Fraction(9, 10), 101, 50)
    assert fold_coverage(0.9, 1001, 5) == pytest.approx(
        oracles.cv_plus_guarantee(Fraction(9, 10), 1001, 5)
    )
    assert fold_coverage(0.4, 100, 10) == 0  # clipped


@pytest.mark.parametrize("n_folds", [0, 1, 11])
def test_number_of_folds(n_folds):
    message = f"n_folds must lie between 2 and n = 10; got {n_folds}."
    with pytest.raises(CalliperError, match=re.escape(message)):
        fold_coverage(0.5, 10, n_folds)


def test_public_names():
    names = guarantees.__all__
    assert names == sorted(names)
    assert all(getattr(guarantees, name).__doc__ for name in names)

import numpy as np
import pytest

from calliper import CalliperError
from studies.experiments.deutschmann2024.interval_size import (
    adaptive_radius,
    flat_radius,
    size_ratio,
)


@pytest.mark.parametrize("beta", [0.3, 0.9, 0.95, 0.98])
@pytest.mark.parametrize("factor", [0.5, 3.0, 20.0])
def test_closed_form_is_what_a_simulation_gives(beta, factor):
    rng = np.random.default_rng(0)
    n = 400_000
    spread = np.where(rng.uniform(size=n) < beta, 1.0, factor)
    errors = np.abs(spread * rng.normal(size=n))
    flat = np.quantile(errors, 0.95)
    perfect = np.mean(1.959964 * spread)
    # The quantile of n errors scatters by sqrt(0.95 · 0.05 / n) over their density at it.
    h = 0.05 * flat
    density = np.mean(np.abs(errors - flat) < h) / (2 * h)
    scatter = 5 * np.sqrt(0.95 * 0.05 / n) / density / flat + 5 * spread.std() / n**0.5
    assert abs(size_ratio(beta, factor) * perfect / flat - 1) < scatter


def test_limit_of_the_paper_rare_and_much_larger_errors():
    # IS_flat → 2 · 1.96 σ₀ and IS_perfect = 2 · 1.96 σ₀ (β + (1 − β) λ).
    assert flat_radius(0.9999, 1e4) == pytest.approx(1.959964, rel=1e-3)
    limit = 1 / (0.999 + 0.001 * 1e4)
    assert size_ratio(0.999, 1e4) == pytest.approx(limit, rel=0.01)


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_one_kind_of_error_leaves_nothing_to_adapt_to(beta):
    assert size_ratio(beta, 1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("factor", [0.2, 7.0])
def test_all_inputs_of_one_kind(factor):
    assert size_ratio(0.0, factor) == pytest.approx(1.0)
    assert size_ratio(1.0, factor) == pytest.approx(1.0)
    assert adaptive_radius(0.0, factor, 0.9) == pytest.approx(1.644854 * factor)


def test_swapping_the_two_kinds_changes_the_unit_only():
    assert size_ratio(0.3, 4.0) == pytest.approx(size_ratio(0.7, 0.25))


@pytest.mark.parametrize(("beta", "factor"), [(-0.1, 2.0), (1.1, 2.0), (0.5, 0.0), (0.5, -1.0)])
def test_impossible_mixtures_are_refused(beta, factor):
    with pytest.raises(CalliperError, match="beta must lie"):
        size_ratio(beta, factor)

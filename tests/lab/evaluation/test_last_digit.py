"""Numbers with the uncertainty of their last digit."""

import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from calliper import CalliperError
from calliper.lab.evaluation import last_digit, one_sigma

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        (0.952, 0.006, "0.952(6)"),
        (0.9996, 0.0007, "0.9996(7)"),
        (0.99961, 0.00072, "0.9996(7)"),
        (0.99996, 0.0007, "1.0000(7)"),
        (0.95, 0.0096, "0.95(1)"),
        (0.95, 0.0094, "0.950(9)"),
        (-0.004, 0.006, "-0.004(6)"),
        (-0.004, 0.06, "0.00(6)"),
        (0.2, 0.3, "0.2(3)"),
        (5.26, 0.31, "5.3(3)"),
        (4.2, 0.96, "4(1)"),
        (187.3, 3.2, "187(3)"),
        (187.3, 9.6, "190(10)"),
        (187.3, 32.0, "190(30)"),
        (12345.0, 3200.0, "12000(3000)"),
        (3.0, 40.0, "0(40)"),
        (2.34e7, 1e6, "2.3(1)e7"),
        (9.996e6, 1e4, "1.000(1)e7"),
        (1234567.0, 0.5, "1.2345670(5)e6"),
        (3.0, 4e7, "0(4)e7"),
        (1.234e-10, 2e-12, "1.23(2)e-10"),
        (0.952, 0.0, "0.952"),
        (0.0, 0.0, "0.000"),
        (0.952, NAN, "0.952"),
        (0.00012345, NAN, "1.23e-4"),
        (1.5e8, 0.0, "1.50e8"),
        (NAN, 0.1, "–"),
        (NAN, NAN, "–"),
        (INF, 0.1, "∞"),
        (INF, NAN, "∞"),
        (-INF, NAN, "−∞"),
        (0.5, INF, "0.500(∞)"),
        (1.7e308, 1e308, "2(1)e308"),
        (-1.7e308, 1.7e308, "-2(2)e308"),
        (5e-324, 5e-324, "5(5)e-324"),
        (0.0, 5e-324, "0(5)e-324"),
        (1.0, 1.7e308, "0(2)e308"),
    ],
)
def test_by_hand(value, error, expected):
    assert last_digit(value, error) == expected


@given(
    st.floats(-1e12, 1e12),
    st.floats(1e-12, 1e12),
)
def test_says_value_and_error_to_half_a_digit(value, error):
    assume(error > 1e-12 * abs(value))
    parts = re.fullmatch(r"(-?\d+)(?:\.(\d+))?\((\d+)\)(?:e(-?\d+))?", last_digit(value, error))
    whole, decimals, digits, power = parts.groups()
    unit = 10.0 ** (int(power or 0) - len(decimals or ""))
    shown = float(f"{whole}.{decimals or 0}e{power or 0}")
    said = int(digits) * unit
    assert len(digits.rstrip("0")) == 1
    place = 10.0 ** np.floor(np.log10(said * 1.0000001))
    assert abs(said - error) <= 0.5000001 * place
    assert abs(shown - value) <= 0.5000001 * place + 1e-15 * abs(value)


def test_a_negative_error_is_refused():
    with pytest.raises(CalliperError, match=r"error must be at least 0, or NaN .*; got -0\.1"):
        last_digit(1.0, -0.1)


def test_one_sigma_is_the_standard_deviation_of_normal_values():
    values = 3 + 2 * np.random.default_rng(0).normal(size=200_000)
    mean, error = one_sigma(values)
    assert mean == pytest.approx(3, abs=0.02) and error == pytest.approx(2, rel=0.01)


def test_one_sigma_of_few_equal_or_infinite_values():
    assert one_sigma([0.1, 0.1, 0.1]) == (0.1, 0.0)
    assert one_sigma([2.0])[0] == 2.0 and np.isnan(one_sigma([2.0])[1])
    assert np.isnan(one_sigma([])).all()
    assert one_sigma([1.0, INF])[0] == INF

"""Keys of functions: what computes another value has another one, in this process and others."""

import os
import subprocess
import sys
from functools import partial
from threading import Lock

import numpy as np
import pytest
from evaluation_cases import fan

from calliper import Split
from calliper.evaluation._hash import content_hash
from calliper.evaluation._keys import Keys
from calliper.evaluation._plan import plan

SETTINGS = {"coverage": 0.9, "n_splits": 1, "n_calibration": None, "n_test": None}


def key(function):
    cells = plan(fan(), {"m": Split()}, random_state=0, measures={"m": function}, **SETTINGS)
    return Keys().of(cells[0])


def closed(value):
    return lambda y, intervals, context: value


def by_default(value):
    return lambda y, intervals, context, value=value: value


def by_name(value):
    return lambda y, intervals, context, *, value=value: value


def closed_twice(value):
    return closed([closed(value)])


def in_part(value):
    return partial(by_default(0), value=value)


def of_object(value):
    class Holder:
        def __init__(self):
            self.value = value

    return closed(vars(Holder()))


class Called:
    def __init__(self, value):
        self.value = value

    def __call__(self, y, intervals, context):
        return self.value

    def measure(self, y, intervals, context):
        return self.value


def method(value):
    return Called(value).measure


MAKERS = [closed, by_default, by_name, closed_twice, in_part, of_object, Called, method]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("one", "other"),
    [(0.1, 0.9), (1, 1.0), (1, True), (np.zeros(3), np.ones(3)), ({"a": 1}, {"a": 2})],
    ids=str,
)
def test_another_value_is_another_measure(make, one, other):
    assert key(make(one)) == key(make(one)) != key(make(other))


def same_name(*functions):
    for function in functions:
        function.__qualname__ = "one_name"
    return {key(function) for function in functions}


def test_another_code_is_another_measure():
    assert len(same_name(lambda y, i, c: 1.0, lambda y, i, c: 2.0, lambda y, i, c: y.sum())) == 3
    inner = (
        lambda y, i, c: sorted(y, key=lambda value: value)[0],
        lambda y, i, c: sorted(y, key=lambda value: -value)[0],
    )
    assert len(same_name(*inner)) == 2
    assert len(same_name(lambda y, i, c: 1.0, lambda y, i, c: 1.0)) == 1


def test_what_a_class_does_when_called_counts():
    def called(value):
        return type("Measure", (), {"__call__": closed(value), "__module__": __name__})

    first, second = called(1.0), called(2.0)
    globals()["Measure"] = first
    one = key(first())
    globals()["Measure"] = second
    assert one != key(second())


def test_a_function_may_close_over_itself_and_over_a_module():
    def recursive(n):
        import math

        def count(k):
            return n + math.floor(count(k - 1)) if k else 0

        return count

    assert content_hash(recursive(1)) == content_hash(recursive(1)) != content_hash(recursive(2))


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(TypeError, match="cannot pickle"):
        content_hash(closed(Lock()))


SCRIPT = """
from calliper.evaluation._hash import content_hash
def measure(y, intervals, context):
    return float(context.method in {"Split", "LVD", "a", "b", "c"})
print(content_hash([measure, {"x", "y", (1, "z")}, frozenset("abcdef")]))
"""


def test_the_order_of_sets_is_no_part_of_it():
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(found) == 1

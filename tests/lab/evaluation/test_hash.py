"""Keys of functions: what computes another value has another one, in this process and others."""

import os
import subprocess
import sys
from functools import partial
from threading import Lock

import numpy as np
import pytest

from calliper import Split
from calliper.lab.evaluation import Method
from calliper.lab.evaluation._evaluate import Trial
from calliper.lab.evaluation._problems import check_measures
from calliper.lab.evaluation._records import Store, content_hash
from cases.evaluation import fan


def key(function):
    measures = check_measures({"m": function})
    trial = Trial(fan(), "m", Method(Split()), 60, 60, 0, 0, (0.9,), measures)
    return Store(None).key(trial)


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
from calliper.lab.evaluation._records import content_hash
def measure(y, intervals, context):
    return float(context.method in {"Split", "LVD", "a", "b", "c"})
print(content_hash([measure, {"x", "y", (1, "z")}, frozenset("abcdef")]))
"""


@pytest.mark.long
def test_the_order_of_sets_is_no_part_of_it(capsys):
    """Here, and in another process that orders them by a hash of its own."""
    exec(SCRIPT, {"__name__": "__main__"})
    other = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        check=True,
        text=True,
    )
    assert capsys.readouterr().out == other.stdout


TEXT = """
def measure(y, intervals, context, *, share=0.5):
    assert share < 1, "no share"
    return 2.0 * share
"""


def compiled(tmp_path, text, *, name="measures.py"):
    """The function of a file, as a module of that name would have it."""
    path = tmp_path / name
    path.write_text(text)
    held = {"__name__": "measures"}
    exec(compile(text, str(path), "exec"), held)
    return held["measure"]


def test_comments_layout_and_place_are_no_part_of_it(tmp_path):
    moved = "# a comment\n\n\n" + TEXT.replace(
        "2.0 * share", "(\n        2.0 * share  # half\n    )"
    )
    one = key(compiled(tmp_path, TEXT))
    assert key(compiled(tmp_path, moved, name="moved.py")) == one


@pytest.mark.parametrize(
    ("was", "becomes"),
    [("0.5", "0.25"), ("2.0", "3.0"), ("*, share", "share"), ("* share", "/ share")],
)
def test_other_instructions_or_another_default_is_another_measure(tmp_path, was, becomes):
    changed = compiled(tmp_path, TEXT.replace(was, becomes), name="changed.py")
    assert key(changed) != key(compiled(tmp_path, TEXT))


def test_lambdas_inside_one_another_are_told_apart():
    outer = lambda y: lambda y: y + 1  # noqa: E731
    assert len({content_hash(outer), content_hash(outer(0))}) == 2
    again = lambda y: lambda y: y + 2  # noqa: E731
    again.__qualname__ = outer.__qualname__
    assert content_hash(outer) != content_hash(again)

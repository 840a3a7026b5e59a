"""A fault at some of the steps that write; ``make faults`` tries all of them."""

import os

import pytest

from checks.faults.sweep import SCENARIOS, Server, check, steps_of

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs fork and /proc"),
]


@pytest.fixture(scope="module")
def server():
    made = Server()
    yield made
    made.close()


QUICK = [name for name in SCENARIOS if name != "compare"]


@pytest.mark.parametrize("name", QUICK)
def test_outputs_are_whole_or_absent(server, name):
    others = [kind for kind in SCENARIOS[name].kinds if kind != "kill"]
    for kind, most in (("kill", 2), (others[QUICK.index(name) % len(others)], 1)):
        for at in steps_of(server, name, kind, most):
            check(server, name, kind, at)

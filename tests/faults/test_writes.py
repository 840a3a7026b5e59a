"""A fault at some of the steps that write; ``make faults`` tries all of them."""

import os

import pytest

from faults.sweep import SCENARIOS, Server, check, steps_of

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs fork and /proc")


@pytest.fixture(scope="module")
def server():
    made = Server()
    yield made
    made.close()


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "compare"])
def test_outputs_are_whole_or_absent(server, name):
    for kind in SCENARIOS[name].kinds:
        for at in steps_of(server, name, kind, most=3 if kind == "kill" else 1):
            check(server, name, kind, at)

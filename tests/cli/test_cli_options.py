"""Options that commands share are declared once, and reach all of them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from calliper import cli
from calliper.cli._app import commands
from calliper.cli._compare import CompareRequest
from calliper.cli._interval import IntervalRequest
from calliper.cli._options import Request
from calliper.cli._tune import TuneRequest

SHARED = [field.name for field in fields(Request)]
SOURCES = sorted(Path(cli.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("command", ["compare", "interval", "tune"])
def test_every_command_takes_every_shared_option(command):
    names = [parameter.name for parameter in commands.commands[command].params]
    assert set(SHARED) <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_option_is_declared_in_one_file(name):
    declared = re.compile(rf"^    {name}: .* = (options\.)?option\(", re.MULTILINE)
    places = [path.name for path in SOURCES if declared.search(path.read_text(encoding="utf-8"))]
    assert places == ["_options.py"]


@pytest.mark.parametrize("request_class", [CompareRequest, IntervalRequest, TuneRequest])
def test_what_is_shared_travels_as_a_whole(request_class):
    """So that one more of these options changes no command."""
    assert issubclass(request_class, Request)
    assert not {*vars(request_class).get("__annotations__", {})} & set(SHARED)

"""Every public name says what it takes, what it returns, and shows it by an example that runs."""

import inspect
import re
from importlib import import_module

import pytest

import calliper

TOPICS = [*calliper._SUBMODULES, *(f"lab.{name}" for name in calliper.lab.__all__)]
MODULES = [calliper, *(import_module(f"calliper.{name}") for name in sorted(TOPICS))]
NAMES = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in module.__all__
    if callable(getattr(module, name))
}
#: Names that still lack something. This list may only become shorter.
LACKING: set[str] = set()


def sections(documented):
    """The sections of a docstring, by their headings."""
    return set(re.findall(r"^(\w+)\n-{3,}$", inspect.getdoc(documented) or "", flags=re.MULTILINE))


def parameters(documented):
    """What a caller may pass; an error and a bare class take nothing of interest."""
    if isinstance(documented, type) and issubclass(documented, Exception):
        return []
    return list(inspect.signature(documented).parameters)


def shown(documented):
    """Where its example stands: one in the module's docstring serves all errors and warnings."""
    is_error = isinstance(documented, type) and issubclass(documented, Exception)
    where = inspect.getmodule(documented) if is_error else documented
    return inspect.getdoc(where) or ""


def lacks(documented):
    """What the docstring of a public name should have and has not."""
    there, is_class = sections(documented), isinstance(documented, type)
    missing = [] if ">>> " in shown(documented) else ["an example"]
    described = {"Parameters", "Attributes"} if is_class else {"Parameters"}
    if parameters(documented) and not there & described:
        missing.append("its parameters")
    if not is_class and not there & {"Returns", "Yields"}:
        missing.append("what it returns")
    return missing


@pytest.mark.parametrize("name", sorted(NAMES))
def test_public_names_are_documented(name):
    missing = lacks(NAMES[name])
    if name in LACKING:
        assert missing, f"{name} lacks nothing any more: take it off the list"
    else:
        assert not missing, f"the docstring of {name} lacks {' and '.join(missing)}"


@pytest.mark.parametrize("name", sorted(n for n in NAMES if isinstance(NAMES[n], type)))
def test_public_methods_are_documented(name):
    bare = [
        method
        for method, function in inspect.getmembers(NAMES[name], inspect.isfunction)
        if not method.startswith("_")
        and function.__module__.startswith("calliper")
        and not inspect.getdoc(function)
    ]
    assert bare == []


def test_something_lacking_is_found():
    def bare(x):
        """Nothing said."""

    assert lacks(bare) == ["an example", "its parameters", "what it returns"]

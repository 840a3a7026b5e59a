"""Naming a version, and what the workflow, the recipe and the hooks repeat of other files."""

import re
import tomllib
from pathlib import Path

import pytest

from checks.release.check import stated
from checks.release.prepare import FILES, prepared

ROOT = Path(__file__).parents[2]
TEXTS = {path: (ROOT / path).read_text(encoding="utf-8") for path in FILES}
CHANGES = "# Changelog\n\n## [Unreleased]\n\nNew.\n\n## [0.9.0] - 2026-01-01\n"


def test_a_version_is_named_and_dated_everywhere():
    texts = {**TEXTS, "CHANGELOG.md": CHANGES}
    made = prepared(texts, "1.0.0", "2026-12-01")
    assert '__version__ = "1.0.0"' in made["src/calliper/_version.py"]
    assert "## [Unreleased]\n\n## [1.0.0] - 2026-12-01\n\nNew.\n" in made["CHANGELOG.md"]
    assert "version: 1.0.0\ndate-released: 2026-12-01\n" in made["CITATION.cff"]
    assert "5 - Production/Stable" in made["pyproject.toml"]
    assert "repository-code" not in made["CITATION.cff"]
    urls = '[project.urls]\nSource = "https://example.org/calliper"\n'
    placed = re.sub(r"\[project\.urls\].*\n", urls, TEXTS["pyproject.toml"])
    again = prepared({**texts, "pyproject.toml": placed}, "1.0.0", "2026-12-01")
    assert 'repository-code: "https://example.org/calliper"\n' in again["CITATION.cff"]
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md: expected one match"):
        prepared(made, "1.1.0", "2027-01-01")  # nothing is new since 1.0.0


def test_the_recipe_asks_for_what_the_package_asks_for():
    assert stated() == []


def test_classifiers_hooks_and_workflow_agree():
    project = tomllib.loads(TEXTS["pyproject.toml"])["project"]
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    systems = {"MacOS": "macos", "Microsoft :: Windows": "windows", "POSIX :: Linux": "ubuntu"}
    for name, machine in systems.items():
        assert f"Operating System :: {name}" in project["classifiers"]
        assert f"{machine}-latest" in workflow
    pythons = [c[-4:] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert all(f'"{version}"' in workflow for version in pythons)
    assert project["requires-python"] == f">={pythons[0]}"
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2]
    for command in re.findall(r"\$\(BIN\)/(.*)", lint.partition("\n\n")[0]):
        assert f"entry: .venv/bin/{command.removesuffix(' .')}," in hooks

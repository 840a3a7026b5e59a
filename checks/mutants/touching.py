"""Which tests touch which lines of the core, how long each takes, and what no test touches.

One run of the tests named below under coverage.py, with the name of the test as context. Tests of
laws over many draws, of processes and of clusters are left out: they would notice many mutants,
and take too long for each of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from time import process_time
from typing import Any

import coverage
import pytest

from checks.mutants.mutators import ROOT, SOURCE, core_files

#: Tests of the core, of what files keep of it, and of what it tells users.
_TESTS = """
tests/kernels tests/calibrators tests/lab/bounds tests/properties tests/quantile_regression
tests/distribution tests/test_guarantees.py tests/test_quantile.py
tests/test_weighted_quantile.py tests/test_scores_and_intervals.py tests/test_extend.py
tests/test_composition.py tests/test_shared_rows.py tests/test_shift.py tests/test_notebook.py
tests/lab/test_tuning_curve.py tests/checks/test_found.py tests/numerics
tests/test_honest_rows.py tests/test_not_in_silence.py
tests/files/test_files.py tests/files/test_brought.py tests/files/test_refusals.py
tests/files/test_fuzz.py
src/calliper/kernels src/calliper/calibrators
src/calliper/guarantees.py src/calliper/quantile.py src/calliper/scores.py
"""
TESTS = _TESTS.split()

#: Not these: laws over many draws, with the seconds that they take.
_LAWS = """
tests/calibrators/test_localized_coverage.py tests/calibrators/test_split_family_coverage.py
tests/distribution/test_laws.py
"""

FOUND = ROOT / "build" / "mutants" / "touching.json"
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0"]
OPTIONS += [f"--ignore={path}" for path in _LAWS.split()]

#: Lines that no test need touch: what only types need, and what every subclass writes.
EXCLUDED = [r"if TYPE_CHECKING:", r"@abstractmethod", r"^\s*\.\.\.$", r"raise NotImplementedError"]


class _Noting:
    """A plugin of pytest that tells coverage which test runs, and notes its processor time.

    Of several processes each takes its share of the tests.
    """

    def __init__(self, measured: coverage.Coverage, part: int, parts: int) -> None:
        self.measured, self.part, self.parts = measured, part, parts
        self.seconds: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        functions = sorted({item.nodeid.partition("[")[0] for item in items})
        turn = {name: place % self.parts for place, name in enumerate(functions)}
        items[:] = [item for item in items if turn[item.nodeid.partition("[")[0]] == self.part]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.measured.switch_context(item.nodeid)
        begun = process_time()
        answer = yield
        self.seconds[item.nodeid] = round(process_time() - begun, 4)
        self.measured.switch_context("")
        return answer


def measure_part(part: int, parts: int, paths: list[str]) -> int:
    """Run a share of the tests and keep what they touch, in a process that does nothing else."""
    measured, file = _coverage(f".{part}"), FOUND.with_suffix(f".{part}.json")
    noting = _Noting(measured, part, parts)
    measured.start()
    failed = pytest.main([*OPTIONS, *(str(ROOT / path) for path in paths)], plugins=[noting])
    measured.stop()
    measured.save()
    file.write_text(json.dumps(noting.seconds), encoding="utf-8")
    return int(failed)


def _coverage(part: str = "") -> coverage.Coverage:
    """What measures the core."""
    inside = [str(SOURCE / file) for file in core_files()]
    data = str(FOUND.with_name(f"coverage{part}"))
    measured = coverage.Coverage(branch=True, include=inside, data_file=data, config_file=False)
    for pattern in EXCLUDED:
        measured.exclude(pattern)
    return measured


def measure(jobs: int, only: list[str] | None = None) -> tuple[float, list[str]]:
    """Run the tests and keep what they touch; percent of lines and branches, and what is missed.

    ``only`` names tests that are new or changed: the others are known from the run before.
    """
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "checks.mutants", *(only or TESTS), "--part"]
    parts = [subprocess.Popen([*command, f"{part}/{jobs}"]) for part in range(jobs)]
    codes = [process.wait() for process in parts]
    if any(codes):
        sys.exit("tests fail where nothing is broken: mend these first")
    measured, seconds = _coverage(), dict[str, float]()
    measured.load() if only else measured.erase()
    if only:
        seconds = {name: took for name, took in read()[0] if not name.startswith(tuple(only))}
    for part in range(jobs):
        seconds |= json.loads(FOUND.with_suffix(f".{part}.json").read_text(encoding="utf-8"))
    measured.combine([str(FOUND.with_name(f"coverage.{part}")) for part in range(jobs)])
    measured.save()
    _keep(measured.get_data(), seconds)
    return _reported(measured)


def is_old() -> bool:
    """Whether the core or its tests have changed since they were run, or never were."""
    if not FOUND.exists():
        return True
    here = (ROOT / path for path in TESTS)
    files = [file for path in here for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return max(file.stat().st_mtime for file in files) > FOUND.stat().st_mtime


def _keep(data: coverage.CoverageData, seconds: dict[str, float]) -> None:
    """Write the tests with their seconds, and for each line their places in that list."""
    tests = sorted(seconds, key=seconds.__getitem__)
    place = {name: number for number, name in enumerate(tests)}
    lines = {}
    for path in data.measured_files():
        lines[str(Path(path).relative_to(SOURCE))] = {
            line: sorted(place[name] for name in names if name in place)
            for line, names in data.contexts_by_lineno(path).items()
        }
    known = {"tests": [[name, seconds[name]] for name in tests], "lines": lines}
    FOUND.write_text(json.dumps(known, separators=(",", ":")), encoding="utf-8")


def read() -> tuple[list[tuple[str, float]], dict[str, dict[int, list[int]]]]:
    """Tests with their seconds, quickest first, and for each file and line the tests at work."""
    known = json.loads(FOUND.read_text(encoding="utf-8"))
    lines: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for file, touched in known["lines"].items():
        lines[file] = {int(line): tests for line, tests in touched.items()}
    return [(name, seconds) for name, seconds in known["tests"]], lines


def _reported(measured: coverage.Coverage) -> tuple[float, list[str]]:
    """Percent of lines and branches that ran, and the lines and branches that did not."""
    report = FOUND.with_suffix(".report.json")
    measured.json_report(outfile=str(report))
    known = json.loads(report.read_text(encoding="utf-8"))
    without = {str(SOURCE / file) for file in core_files()} - measured.get_data().measured_files()
    missed = [f"{Path(path).name}: not imported; is torch installed?" for path in sorted(without)]
    for path, file in known["files"].items():
        name = Path(path).name
        missed += [f"{name}:{line}" for line in file["missing_lines"]]
        missed += [f"{name}:{a}->{b}" for a, b in file["missing_branches"]]
    return float(known["totals"]["percent_covered"]), missed

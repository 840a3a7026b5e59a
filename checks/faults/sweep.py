"""A fault at every step that writes: outputs whole or absent, and the next run completes.

python checks/faults/sweep.py            all steps of all scenarios, and says what it did
python checks/faults/sweep.py folder     those whose name begins so
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shlex import split

import numpy as np

ROOT = Path(__file__).parents[2]
KINDS = ("kill", "full", "read-only", "stop", "memory", "clock")
#: Codes of a run that ends well or as it should, by fault.
CODES = {"kill": {-9}, "stop": {130, 2}, "clock": {0}, "none": {0}}
KNOWN = split("--calibration cal.csv --target y --prediction y_pred --features a,b --quiet")


@dataclass(frozen=True)
class Scenario:
    """What is run, and what comes of it.

    Attributes
    ----------
    args : a function of ``injected.py`` with its arguments, or a command
    made : the outputs
    who : the process that the fault is in
    text : what the outputs end with, if they are not the same bytes each time
    earlier : whether there are outputs of an earlier run
    kinds : of faults that are tried
    """

    args: tuple[object, ...]
    made: tuple[str, ...]
    who: str = "first"
    text: str = ""
    earlier: bool = True
    kinds: tuple[str, ...] = KINDS


FOLDER = ("calliper", "interval", *KNOWN, "--new", "data", "--output", "out")
PARTS = tuple(f"out/{where}/part-{n}.csv" for where in ("a", "b") for n in range(2))
INTERVAL = ("calliper", "interval", *KNOWN, "--new")
SCENARIOS = {
    "save": Scenario(("save", 1), ("made.calliper",)),
    "records": Scenario(("records", 1), ("made.json",)),
    "store": Scenario(("evaluated", 1), ("made.txt",), earlier=False),
    "fetch": Scenario(("fetched", 1), ("cache/made.bin",)),
    "interval csv": Scenario((*INTERVAL, "new.csv", "--output", "made.csv"), ("made.csv",)),
    "interval gz": Scenario((*INTERVAL, "new.csv", "--output", "made.csv.gz"), ("made.csv.gz",)),
    "interval parquet": Scenario(
        (*INTERVAL, "new.csv", "--output", "made.parquet"), ("made.parquet",)
    ),
    "calibrate": Scenario(
        ("calliper", "calibrate", *KNOWN, "--output", "made.calliper"), ("made.calliper",)
    ),
    "compare": Scenario(
        ("calliper", "compare", *KNOWN, "--test", "new.csv", "--method", "split", "--output",
         "made.html"), ("made.html",), text="</html>", kinds=("kill", "full")),  # seconds each
    "folder": Scenario(FOLDER, PARTS, earlier=False),
    "folder anew": Scenario((*FOLDER, "--overwrite"), PARTS),
    "folder, two workers": Scenario((*FOLDER, "--workers", "2"), PARTS, earlier=False),
    "folder, a worker": Scenario((*FOLDER, "--workers", "2"), PARTS, "worker", earlier=False),
}  # fmt: skip


def write_inputs(folder: Path) -> None:
    """Files to calibrate on, new rows, and a folder of them."""
    rng = np.random.default_rng(0)
    names = {"cal.csv": 60, "new.csv": 300}
    names |= {f"data/{where}/part-{n}.csv": 20 for where in ("a", "b") for n in range(2)}
    for name, n in names.items():
        a, b, noise = rng.normal(size=(3, n)).round(3).tolist()
        rows = [f"{x},{z},{x + e},{x}" for x, z, e in zip(a, b, noise, strict=True)]
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(["a,b,y,y_pred", *rows]) + "\n")


class Server:
    """The process that forks runs, and a folder for them."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="faults-"))
        paths = [ROOT / "src", ROOT, ROOT / "tests", *filter(None, sys.path)]
        environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("injected.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
            env={**os.environ, **environment},
        )  # fmt: skip
        (self.place / "inputs").mkdir()
        write_inputs(self.place / "inputs")
        self.expected: dict[str, tuple[int, dict[str, bytes]]] = {}

    def close(self) -> None:
        self.process.communicate("")
        shutil.rmtree(self.place)

    def fresh(self) -> Path:
        """A new folder with inputs."""
        folder = self.place / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.place / "inputs", folder)
        (self.place / "once").unlink(missing_ok=True)
        return folder

    def run(
        self, scenario: Scenario, folder: Path, kind: str = "none", at: int = 0
    ) -> tuple[int, int, str]:
        """Code, number of steps and what was said."""
        fault = {"kind": kind, "at": at, "who": scenario.who, "once": str(self.place / "once")}
        request = {"args": scenario.args, "cwd": str(folder), "fault": fault}
        request |= {each: str(self.place / each) for each in ("said", "counted")}
        (self.place / "counted").unlink(missing_ok=True)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["code"], answer["count"], (self.place / "said").read_text()

    def whole(self, name: str) -> tuple[int, dict[str, bytes]]:
        """Number of steps of a run without a fault, and its outputs."""
        if name not in self.expected:
            folder, scenario = self.fresh(), SCENARIOS[name]
            code, steps, said = self.run(scenario, folder)
            assert code == 0, said
            if scenario.who == "worker":
                steps = max(map(int, (self.place / "counted").read_text().split()))
            outputs = {each: (folder / each).read_bytes() for each in scenario.made}
            self.expected[name] = steps, outputs
        return self.expected[name]


EARLIER = b"of an earlier run"


def check(server: Server, name: str, kind: str, at: int) -> None:
    """Let one run fail, look at what it leaves, and let the next one complete."""
    scenario, (_, expected) = SCENARIOS[name], server.whole(name)
    folder, where = server.fresh(), f"{name}, {kind} at {at}"
    inputs = contents(folder)
    for each in scenario.made if scenario.earlier else ():
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_bytes(EARLIER)
    code, _, said = server.run(scenario, folder, kind, at)
    lone = scenario.who == "worker" and kind == "kill"  # another takes up its file
    done = all(is_whole(scenario, contents(folder).get(p, b""), d) for p, d in expected.items())
    # A disk may be full without anyone's noticing: it still renames, and removes.
    late = {0} if done and kind != "kill" else set()
    assert code in late | ({0} if lone else CODES.get(kind, {2})), (where, code, said)
    assert "Traceback" not in said, (where, said)
    found = contents(folder)
    for path, data in found.items():
        hidden = any(part.startswith(".") for part in Path(path).parts)
        known = path in inputs or path.startswith("store/") or path == "out/_calliper.jsonl"
        if path in expected:
            old = scenario.earlier and data == EARLIER
            assert old or is_whole(scenario, data, expected[path]), (where, path)
        else:
            assert known or (hidden and kind in ("kill", "read-only") and not lone), (where, path)
    assert not scenario.earlier or {*expected} <= {*found}, where
    assert {path: found[path] for path in inputs} == inputs, where
    code, _, said = server.run(scenario, folder)
    assert code == 0, (where, said)
    after = contents(folder)
    for path, data in expected.items():
        assert is_whole(scenario, after[path], data), (where, path)
    left = [path for path in after if "/.calliper-" in f"/{path}"]
    assert left == [], (where, left)
    if name.startswith("folder") and "--overwrite" not in scenario.args:
        before = {path: (folder / path).stat().st_mtime_ns for path in expected}
        assert server.run(scenario, folder)[0] == 0
        assert before == {path: (folder / path).stat().st_mtime_ns for path in expected}, where


def is_whole(scenario: Scenario, data: bytes, expected: bytes) -> bool:
    text = scenario.text.encode()
    return data.rstrip().endswith(text) if text else data == expected


def contents(folder: Path) -> dict[str, bytes]:
    """All files by their names."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def steps_of(server: Server, name: str, kind: str, most: int | None = None) -> list[int]:
    """At which steps the fault is tried: all, or so many of them, the last among them."""
    n = 1 if kind == "clock" else server.whole(name)[0]
    if most is None or most >= n:
        return list(range(1, n + 1))
    return sorted({round(step) for step in np.linspace(n, 1, most, endpoint=False)})


def main(names: list[str]) -> None:
    server, total, failed = Server(), 0, []
    try:
        for name in SCENARIOS:
            if names and not any(name.startswith(each) for each in names):
                continue
            tried = {kind: steps_of(server, name, kind) for kind in SCENARIOS[name].kinds}
            for kind, steps in tried.items():
                for at in steps:
                    try:
                        check(server, name, kind, at)
                    except AssertionError as error:
                        failed.append(error)
                        print(f"FAILED {error}", flush=True)
                total += len(steps)
            said = ", ".join(f"{kind} at {len(steps)}" for kind, steps in tried.items())
            print(f"{name}: {said}", flush=True)
    finally:
        server.close()
    print(f"{total} faults tried, {len(failed)} outputs or next runs were not as they should be")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(sys.argv[1:])

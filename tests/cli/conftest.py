"""Files to work on, and the command as a shell would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def server() -> Iterator[subprocess.Popen[str]]:
    """See forking.py."""
    script = Path(__file__).with_name("forking.py")
    command = [sys.executable, str(script)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    # Threads of OpenMP wait by spinning: boosted trees would take minutes on a busy machine.
    with subprocess.Popen(command, **pipes, env=os.environ | {"OMP_NUM_THREADS": "1"}) as process:
        yield process
        process.stdin.close()


def without_earlier(args: list[str]) -> list[str]:
    """Options that tests share without those that one of them sets again."""
    kept, skipped = [], False
    for place, word in enumerate(args):
        if word.startswith("--"):
            skipped = word not in ("--coverage", "--method") and word in args[place + 1 :]
        if not skipped:
            kept.append(word)
    return kept


@pytest.fixture
def calliper(
    server: subprocess.Popen[str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Done]:
    """Run ``calliper ...`` in ``tmp_path`` and wait for its end."""
    streams = [tmp_path_factory.mktemp("streams") / name for name in ("in", "out", "err")]

    def run(
        *args: object,
        stdin: str = "",
        stdout: str | None = None,
        umask: int = 0o022,
        as_given: bool = False,
    ) -> Done:
        args = args if as_given else without_earlier([*map(str, args)])
        streams[0].write_text(stdin)
        paths = [streams[0], stdout or streams[1], streams[2]]
        request = {
            "args": [*map(str, args)],
            "cwd": str(tmp_path),
            "umask": umask,
            "streams": [*map(str, paths)],
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        said = "" if stdout else streams[1].read_bytes().decode()
        return Done(code, said, streams[2].read_bytes().decode())

    return run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with cal.csv, train.csv and new.csv: id, a, b, y, y_pred."""
    write_rows(tmp_path / "cal.csv", 300, seed=1)
    write_rows(tmp_path / "train.csv", 200, seed=2)
    write_rows(tmp_path / "new.csv", 50, seed=3)
    return tmp_path


def write_rows(path: Path, n: int, *, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(size=n), 1000 * rng.uniform(size=n)
    y_pred = a + b / 1000
    y = y_pred + a * rng.normal(size=n)
    with open(path, "w") as file:
        file.write("id,a,b,y,y_pred\n")
        for row in zip(range(n), *(v.tolist() for v in (a, b, y, y_pred)), strict=True):
            file.write("{:06d},{!r},{!r},{!r},{!r}\n".format(*row))


@pytest.fixture
def base() -> list[str]:
    """The options that most runs share; test_cli_learning.py has rows that teach."""
    text = "interval --calibration cal.csv --target y --prediction y_pred --learning-part none "
    return f"{text} --output out.csv".split()


@pytest.fixture
def leftovers(tmp_path: Path) -> Callable[[], list[str]]:
    """Names of files that nobody but calliper can have made, the output apart."""
    return lambda: [name for name in os.listdir(tmp_path) if name.startswith(".calliper")]

"""Nothing in the library talks to a network, but Dask where a scheduler is named."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import calliper

SOURCE = Path(calliper.__file__).parent
TALKERS = {
    "aiohttp", "asyncio", "ftplib", "http", "httpx", "pooch", "requests", "smtplib", "socket",
    "socketserver", "ssl", "telnetlib", "urllib", "urllib3", "webbrowser", "xmlrpc",
}  # fmt: skip

#: Run in a fresh interpreter, so that imports are watched too. A hook sees every use of a socket.
TOUR = """\
import sys
seen = []
def hook(event, arguments):
    outward = event in ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg")
    local = outward and isinstance(arguments[1], (str, bytes))  # a socket that is a file
    asking = ("socket.getaddrinfo", "socket.gethost", "urllib.", "http.", "ftplib.", "webbrowser.")
    if (outward and not local) or event.startswith(asking):
        seen.append((event, repr(arguments)))
        raise PermissionError(f"{event}: the library opened a connection")
sys.addaudithook(hook)

import contextlib, csv, io, warnings
import numpy as np
from sklearn.ensemble import RandomForestRegressor
import calliper
from calliper.cli import main

for name in dir(calliper):
    getattr(calliper, name)
rng = np.random.default_rng(0)
X = rng.uniform(size=(360, 2)); y = X[:, 0] * rng.normal(size=360)
model = RandomForestRegressor(5, min_samples_leaf=20, random_state=0).fit(X[:120], y[:120])
found = calliper.ConformalRegressor(model).calibrate(X[120:240], y[120:240])
found.predict_interval(X[240:]); found.predict_distribution(X[240:]).quantile(0.9)
calliper.save(found, "forest.calliper")
calliper.load("forest.calliper", model).predict_interval(X[240:])
for name, rows in (("cal.csv", range(120, 240)), ("new.csv", range(240, 360))):
    with open(name, "w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "y", "p"], *([*X[i], y[i], 0.0] for i in rows)])
shared = "--target y --prediction p --features a,b"
for command in (
    f"interval --calibration cal.csv --new new.csv --output out.csv {shared}",
    f"compare --calibration cal.csv --test new.csv --output page.html {shared}",
):
    sys.argv = ["calliper", *command.split()]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main()
    assert code == 0, said.getvalue()
assert not seen, seen
print("quiet")
"""


def run(code, folder):
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.long
def test_a_tour_of_the_library_opens_no_connection(tmp_path):
    done = run(TOUR, tmp_path)
    assert done.stdout.strip() == "quiet", done.stderr


def test_the_tour_would_see_one(tmp_path):
    hook, _, _ = TOUR.partition("import contextlib")
    done = run(hook + "import socket; socket.create_connection(('127.0.0.1', 9))", tmp_path)
    assert "PermissionError: socket." in done.stderr


def test_no_module_imports_what_talks():
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            talks = TALKERS.intersection(name.partition(".")[0] for name in names)
            found += [(str(path.relative_to(SOURCE)), name) for name in talks]
    assert found == []

"""``python -m studies.benchmarks.service``: the example service under load, answers compared.

Two workers, 64 clients at once, 60 seconds, on this machine alone. Each client asks for intervals
of some rows at some level, compares them with what the same file says here, to the last bit, and
then sends the labels; at the end the running coverage must be the one counted here.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from runpy import run_path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import skops.io
from sklearn.datasets import load_diabetes

import calliper
from calliper import Intervals
from studies.benchmarks.timing import table

EXAMPLE = Path(__file__).parents[2] / "examples" / "service"
LEVELS = (0.5, 0.8, 0.9, 0.95)
TREES = ["sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"]


@contextmanager
def serving(folder: Path, workers: int = 2) -> Iterator[str]:
    """The address of the service, in processes of its own, on a port that the system chooses."""
    run_path(str(EXAMPLE / "train.py"))["train"](folder)
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLE), "app:app"]
    command += ["--no-access-log", "--host", "127.0.0.1", "--port", "0", "--workers", str(workers)]
    environment = {**os.environ, "CALLIPER_FOLDER": str(folder), "OMP_NUM_THREADS": "1"}
    log = folder / "log.txt"
    with log.open("w") as said:
        server = subprocess.Popen(command, env=environment, stderr=said)
    try:
        yield _address(server, log, workers)
    finally:
        server.terminate()
        server.wait(timeout=30)


def _address(server: subprocess.Popen[bytes], log: Path, workers: int) -> str:
    """Where it listens, once all workers do."""
    while server.poll() is None:
        said = log.read_text()
        if said.count("startup complete") == workers:
            return str(re.findall(r"http://127\.0\.0\.1:\d+", said)[0])
        time.sleep(0.05)
    raise RuntimeError(f"the service did not start:\n{log.read_text()}")


@dataclass
class Client:
    """Asks, labels, and remembers what was said.

    Attributes
    ----------
    seconds : of each request for intervals
    answers : rows, level and intervals of each
    label : the last that was sent
    """

    seconds: list[float] = field(default_factory=list)
    answers: list[tuple[Any, float, Intervals]] = field(default_factory=list)
    label: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
        self.X, self.y = X.astype(float), y.to_numpy()

    async def ask(self, http: httpx.AsyncClient, rng: np.random.Generator) -> None:
        """One request for intervals, and one with their labels."""
        rows = rng.choice(len(self.X), size=rng.integers(1, 6), replace=False)
        level = float(rng.choice(LEVELS))
        sent = {"rows": self.X.iloc[rows].to_dict("records"), "coverage": level}
        start = time.perf_counter()
        answer = (await http.post("/intervals", json=sent)).raise_for_status().json()
        self.seconds.append(time.perf_counter() - start)
        self.answers.append((rows, level, Intervals.from_json(answer["intervals"])))
        known = zip(answer["ids"], self.y[rows].tolist(), strict=True)
        labels = [{"id": name, "y": y} for name, y in known]
        (await http.post("/labels", json={"labels": labels})).raise_for_status()
        self.label = labels[0]

    def n_wrong(self, local: Any) -> int:
        """Answers that are not, to the last bit, what the same file says here."""
        wrong = 0
        for rows, level, found in self.answers:
            expected = local.predict_interval(self.X.iloc[rows], level)
            same = [np.array_equal(*ends) for ends in zip(found, expected, strict=True)]
            wrong += not all(same)
        return wrong

    def counted(self) -> list[tuple[float, int, int]]:
        """Level, number of labels and number of those inside, as counted here."""
        found = {level: np.zeros(2, dtype=int) for level in LEVELS}
        for rows, level, intervals in self.answers:
            found[level] += len(rows), int(intervals.contains(self.y[rows]).sum())
        return [(level, *each.tolist()) for level, each in found.items() if each[0]]

    def told(self, address: str) -> list[tuple[float, int, int]]:
        """The same by the service, which is told the last label again."""
        said = httpx.post(f"{address}/labels", json={"labels": [self.label]}).json()["coverage"]
        return [(each["asked"], each["labelled"], each["inside"]) for each in said]


def loaded(folder: Path) -> Any:
    """What the service serves, in this process."""
    model = skops.io.load(folder / "model.skops", trusted=TREES)
    return calliper.load(folder / "intervals.calliper", model)


async def hammer(
    address: str, client: Client, n_clients: int, *, seconds: float = 1e9, requests: int = 10**9
) -> None:
    """Clients that ask one after another, all at once, for some time or so many times each."""
    stop = time.perf_counter() + seconds

    async def one(seed: int) -> None:
        rng, asked = np.random.default_rng(seed), 0
        async with httpx.AsyncClient(base_url=address, timeout=60) as http:
            while asked < requests and time.perf_counter() < stop:
                await client.ask(http, rng)
                asked += 1

    await asyncio.gather(*(one(seed) for seed in range(n_clients)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with TemporaryDirectory() as name, serving(Path(name), options.workers) as address:
        client, local = Client(), loaded(Path(name))
        asyncio.run(hammer(address, client, options.clients, seconds=options.seconds))
        right = client.told(address) == client.counted()
    wrong = client.n_wrong(local)
    times = np.percentile(1000 * np.array(client.seconds), [50, 90, 99, 100])
    requests = f"{len(client.seconds):,} ({len(client.seconds) / options.seconds:.0f} a second)"
    cells = [requests, "0", str(wrong), "as counted here" if right else "OTHERWISE"]
    header = ["requests", "errors", "wrong", "running coverage", "50 %", "90 %", "99 %", "most"]
    print(table(header, [[*cells, *(f"{each:.0f} ms" for each in times)]]))
    sys.exit(0 if right and not wrong else 1)


if __name__ == "__main__":
    main()

"""What was answered and what came of it: one SQLite file that all workers share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep

import numpy as np

from calliper import Intervals

SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    id TEXT PRIMARY KEY, coverage REAL, lower REAL, upper REAL, y REAL, place INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (
    coverage REAL PRIMARY KEY, labelled INTEGER, inside INTEGER
) WITHOUT ROWID;
"""


#: Seconds to wait for other workers.
WAIT = 30.0


class RefusedError(ValueError):
    """A label that belongs to no answer, or to one that has another label already."""


class Ledger:
    """Answers by id, and how many labelled ones lay inside; safe across threads and workers.

    A label that was taken is on the disk and survives a power failure, and so do the answers before
    it. Answers since then may be lost: a label of theirs is refused.

    It grows with every answer. Delete the file, or old rows of ``answers``, as your rules say.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path, timeout=WAIT)) as database:
            _read_beside_writers(database)
            database.executescript(SCHEMA)

    @contextmanager
    def _open(self, synchronous: str) -> Iterator[sqlite3.Connection]:
        """A connection of this call alone, in which nobody else writes; all is kept or nothing.

        ``synchronous`` is FULL to wait for the disk at the end, NORMAL to leave that to a later
        call.
        """
        with closing(sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)) as database:
            database.execute(f"PRAGMA synchronous = {synchronous}")
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")

    def add(self, answered: Intervals) -> list[str]:
        """Remember intervals of one level; their ids."""
        ids = [token_hex(8) for _ in answered.lower]
        ends = zip(ids, answered.lower.tolist(), answered.upper.tolist(), strict=True)
        rows = [(name, answered.coverage, low, high) for name, low, high in ends]
        with self._open("NORMAL") as database:
            database.executemany("INSERT INTO answers VALUES (?, ?, ?, ?, NULL, NULL)", rows)
        return ids

    def label(self, labels: dict[str, float]) -> None:
        """Count what came; all labels or, if one is refused, none."""
        with self._open("FULL") as database:
            for name, y in labels.items():
                self._label(database, name, y)

    def _label(self, database: sqlite3.Connection, name: str, y: float) -> None:
        ask = "SELECT coverage, lower, upper, y FROM answers WHERE id = ?"
        # SQLite takes no text that UTF-8 has not; no id of ours is beyond ASCII.
        found = database.execute(ask, (name,)).fetchone() if name.isascii() else None
        if found is None:
            raise RefusedError(f"id {name!r}: no interval was answered by that id")
        coverage, lower, upper, before = found
        if before == y:  # a client that did not hear the answer and asks again
            return
        if before is not None:
            raise RefusedError(f"id {name!r}: has label {before:g} already, and now {y:g}")
        inside = int(Intervals(np.array([lower]), np.array([upper])).contains([y])[0])
        place = "(SELECT COALESCE(SUM(labelled), 0) FROM totals)"  # in order of arrival
        database.execute(f"UPDATE answers SET y = ?, place = {place} WHERE id = ?", (y, name))
        database.execute(
            "INSERT INTO totals VALUES (?, 1, ?) ON CONFLICT (coverage) DO UPDATE SET "
            "labelled = labelled + 1, inside = inside + excluded.inside",
            (coverage, inside),
        )

    def totals(self) -> list[tuple[float, int, int]]:
        """Of each level: the level, how many have labels, and how many of these lay inside."""
        with closing(sqlite3.connect(self.path, timeout=WAIT)) as database:
            return database.execute("SELECT * FROM totals ORDER BY coverage").fetchall()

    def inside(self, coverage: float) -> list[bool]:
        """Whether each label of a level lay inside, in order of arrival."""
        ask = (
            "SELECT lower <= y AND y <= upper FROM answers WHERE coverage = ? AND y IS NOT NULL "
            "ORDER BY place"
        )
        with closing(sqlite3.connect(self.path, timeout=WAIT)) as database:
            return [bool(held) for (held,) in database.execute(ask, (coverage,))]


def _read_beside_writers(database: sqlite3.Connection) -> None:
    """Let who reads wait for nobody; SQLite does not wait here while another worker does this."""
    until = monotonic() + WAIT
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if monotonic() > until:
                raise
        sleep(0.05)

"""Cells to rows through joblib, also where a worker dies over one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor
from typing import Any

from joblib import Parallel, delayed

from calliper.evaluation._cell import Cell, Row, run


def run_all(cells: Mapping[int, Cell], n_jobs: int | None) -> Iterator[tuple[int, list[Row]]]:
    """Place and rows of each cell as soon as they are there, in any order.

    A worker process that is killed (out of memory, a crash in compiled code) takes along all that
    were at work, and nobody says which cell it had. Those handed out are then run once more, one
    at a time: what kills its worker alone is failed, the others have their rows, and the rest goes
    on side by side.
    """
    left = dict(cells)
    while left:
        handed_out: list[int] = []
        try:
            for place, rows in _side_by_side(left, handed_out, n_jobs):
                del left[place]
                yield place, rows
        except BrokenExecutor:
            for place in [place for place in handed_out if place in left]:
                yield place, _alone(place, left.pop(place), n_jobs)


def _side_by_side(
    cells: Mapping[int, Cell], handed_out: list[int], n_jobs: int | None
) -> Iterator[tuple[int, list[Row]]]:
    def tasks() -> Iterator[Any]:
        for place, cell in list(cells.items()):
            handed_out.append(place)
            yield delayed(_placed)(place, cell)

    # Cells one by one, so that a killed run loses only those that were being computed.
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(tasks())


def _alone(place: int, cell: Cell, n_jobs: int | None) -> list[Row]:
    try:
        ((_, rows),) = _side_by_side({place: cell}, [], n_jobs)
    except BrokenExecutor as error:
        text = " ".join(str(error).split())
        return cell.rows("failed", error=f"the worker process died: {text}")
    return rows


def _placed(place: int, cell: Cell) -> tuple[int, list[Row]]:
    return place, run(cell)

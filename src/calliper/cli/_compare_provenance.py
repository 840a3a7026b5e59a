"""What it takes to repeat a comparison and to use what it found; folders stay private."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calliper.cli._columns import Names
from calliper.cli._compare_read import Rows
from calliper.report.page import Provenance

if TYPE_CHECKING:
    from calliper.cli._compare_files import CompareFiles


def provenance_of(
    files: CompareFiles, names: Names, seed: int, sources: Mapping[str, Rows | None]
) -> Provenance:
    """Command, files and how to go on, all by the names of files alone."""
    known = {part: rows for part, rows in sources.items() if rows is not None}
    paths = [*files.inputs, *([] if files.report is None else [files.report])]
    notes = []
    if files.data is not None:
        notes.append(
            f"The file was split at random with this seed into {len(known['calibration']):,} "
            f"calibration and {len(known['test']):,} test rows."
        )
    if any(_name(path) != path for path in paths):
        notes.append("Folders are left out of the command: run it where the files are.")
    return Provenance(
        shlex.join(["calliper", *without_folders(sys.argv[1:], paths)]),
        tuple(rows.source(part) for part, rows in known.items()),
        tuple(notes),
        _use(files, names, seed),
    )


def without_folders(arguments: Sequence[str], paths: Sequence[str]) -> list[str]:
    """The arguments, with these paths by their names, also after an equals sign."""
    cut = {path: _name(path) for path in paths}
    told = []
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if equals and option.startswith("--"):
            told.append(f"{option}={cut.get(value, value)}")
        else:
            told.append(cut.get(argument, argument))
    return told


def _use(files: CompareFiles, names: Names, seed: int) -> str:
    """The command that puts such intervals around new rows; method and level are filled in."""
    calibration = files.calibration or files.data
    assert calibration is not None
    options: dict[str, str | None] = {
        "--calibration": _name(calibration),
        "--target": names.target,
        "--prediction": names.prediction,
        "--features": names.features,
        "--features-prefix": names.prefix,
        "--training": None if files.training is None else _name(files.training),
    }
    given = [word for pair in options.items() if pair[1] is not None for word in map(str, pair)]
    return (
        f"calliper interval {shlex.join(given)} --seed {seed} --method {{method}} "
        f"--coverage {{coverage}} --new new.csv --output intervals.csv"
    )


def _name(path: str) -> str:
    """The name of a file, its folder left out; written on whatever system."""
    return Path(path.replace("\\", "/")).name

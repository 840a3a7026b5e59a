"""Gather what the training needs in one folder, as plain arrays and encoder weights.

    python -m studies.experiments.deutschmann2024.training.gather molecules images antibodies

The folder is all that the training scripts read, so they also run where there is no network, no
calliper and no reader of tables, given numpy, torch and transformers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from studies.experiments.data import (
    load_alphaseq,
    load_clearance,
    load_mnist,
    load_solubility,
    tdc_split,
)
from studies.experiments.deutschmann2024.config import LOCAL, SEED, AlphaSeqTraining
from studies.experiments.deutschmann2024.training import encoders


def molecules(folder: Path) -> None:
    """Token numbers, targets and TDC's split, its validation and test rows merged."""
    encoder = encoders.smiles()
    for name, load in (("solubility", load_solubility), ("clearance", load_clearance)):
        data = load()
        split = tdc_split(len(data.y))
        numbers = encoder.tokenise(data.smiles.tolist())
        # The paper cuts at the longest sequence of the training data.
        longest = min(max(len(numbers[i]) for i in split.train), encoder.max_length)
        tokens, lengths = pad([row[:longest] for row in numbers], encoder.padding)
        np.savez_compressed(
            folder / f"{name}.npz",
            tokens=tokens,
            lengths=lengths,
            padding=encoder.padding,
            y=data.y,
            train=split.train,
            held_out=np.concatenate([split.valid, split.test]),
        )
    encoder.save(folder / "smiles_encoder")


def images(folder: Path) -> None:
    """Pixels and digits."""
    data = load_mnist()
    np.savez_compressed(
        folder / "mnist.npz",
        x_train=data.X_train,
        y_train=data.y_train.astype(np.uint8),
        x_test=data.X_test,
        y_test=data.y_test.astype(np.uint8),
    )


def antibodies(folder: Path) -> None:
    """Token numbers of the distinct chains, and which of them each antibody has."""
    data, settings = load_alphaseq(), AlphaSeqTraining()
    order = np.random.default_rng(SEED).permutation(len(data.y))
    held_out, rest = order[: settings.held_out], order[settings.held_out :]
    n_valid = round(settings.validation_share * len(rest))
    arrays: dict[str, Any] = {
        "y": data.y,
        "held_out": held_out,
        "valid": rest[:n_valid],
        "train": rest[n_valid:],
    }
    for chain, sequences in (("heavy", data.heavy), ("light", data.light)):
        encoder = encoders.antibody(chain)
        distinct, arrays[chain] = np.unique(sequences, return_inverse=True)
        arrays[f"{chain}_tokens"], _ = pad(encoder.tokenise(distinct.tolist()), encoder.padding)
        arrays[f"{chain}_special"] = np.array(encoder.special)
        encoder.save(folder / encoder.folder)
    np.savez_compressed(folder / "alphaseq.npz", **arrays)


def pad(rows: list[list[int]], padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths as one array, and the lengths."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), padding, dtype=np.int16)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded, lengths


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = {"molecules": molecules, "images": images, "antibodies": antibodies}
    parser.add_argument("steps", nargs="*", metavar="|".join(steps), default=list(steps))
    parser.add_argument("--folder", type=Path, default=LOCAL / "inputs")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for step in options.steps:
        steps[step](options.folder)


if __name__ == "__main__":
    main()

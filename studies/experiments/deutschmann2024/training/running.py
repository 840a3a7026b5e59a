"""What the training scripts share: options, device, seeds, progress, and the record of a run."""

from __future__ import annotations

import argparse
import platform
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from studies.experiments.deutschmann2024.config import LOCAL, SEED


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Where inputs lie, where results go, and whether this is only a rehearsal."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=Path, default=LOCAL / "inputs")
    parser.add_argument("--out", type=Path, default=LOCAL)
    parser.add_argument("--quick", action="store_true", help="one epoch over a few rows")
    return parser


def device() -> str:
    """The GPU where there is one. TensorFloat-32 is precise enough for a stochastic gradient."""
    torch.set_float32_matmul_precision("high")
    return "cuda" if torch.cuda.is_available() else "cpu"


def seed(value: int) -> None:
    """Fix every generator that initial weights, dropout and shuffling draw from."""
    random.seed(value)
    np.random.seed(value)  # noqa: NPY002 - libraries may still draw from the global state
    torch.manual_seed(value)


def say(task: str, epoch: int, epochs: int, loss: float, started: float) -> None:
    """Progress, about twenty lines a run."""
    if epoch % max(1, epochs // 20) == 0 or epoch == epochs - 1:
        elapsed = time.monotonic() - started
        line = f"{task}: epoch {epoch + 1} of {epochs}, loss {loss:.4f}, {elapsed:.0f} s"
        print(line, file=sys.stderr, flush=True)


def note(settings: Any, started: float, epochs: int) -> dict[str, Any]:
    """Settings, seed, versions and time of a run, for the artefact."""
    return {
        "settings": asdict(settings),
        "epochs": epochs,
        "seed": SEED,
        "seconds": round(time.monotonic() - started, 1),
        "device": device(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }

"""Rows that live on a torch device: who asks for one, and what is refused.

An engine is named outright (``"torch:cuda:0"``) or by tensors that are on a GPU already; nothing
else moves rows to a device. Torch is imported here and where it computes, and nowhere before
somebody asks for it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from calliper._types import FloatArray
from calliper.exceptions import CalliperError

#: A torch tensor; torch has no types where it is not installed.
Tensor = Any

#: What ``engine`` may be.
GRAMMAR = "None, 'torch' (the current CUDA device) or 'torch:DEVICE', such as 'torch:cuda:0'"


class DeviceRows:
    """Rows of features in double precision on a device, kept as columns, (d, n).

    NumPy sees a copy of them in main memory, which is also what is pickled.
    """

    ndim = 2

    def __init__(self, columns: Tensor) -> None:
        self._columns, self.device = columns, str(columns.device)
        self.shape = (int(columns.shape[1]), int(columns.shape[0]))

    @property
    def columns(self) -> Tensor:
        """(d, n) on the device; brought back to it after a pickle."""
        if isinstance(self._columns, np.ndarray):
            check_device(self.device, "rows were kept from")
            self._columns = to_columns(self._columns, self.device)
        return self._columns

    def ends(self) -> tuple[float, float]:
        """The least and the largest number."""
        least, largest = import_torch().aminmax(self.columns)
        return float(least), float(largest)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> DeviceRows:
        columns = self.columns
        if not isinstance(rows, slice):
            rows = import_torch().as_tensor(np.asarray(rows), device=columns.device)
        return DeviceRows(columns[:, rows])

    def vstack(self, more: Any) -> DeviceRows:
        """These rows and then others, on the device of these."""
        columns = [self.columns, to_columns(more, self.device)]
        return DeviceRows(import_torch().cat(columns, dim=1))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        if isinstance(self._columns, np.ndarray):
            return self._columns
        return np.ascontiguousarray(self._columns.T.cpu().numpy(), dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {"_columns": np.asarray(self), "device": self.device, "shape": self.shape}


def import_torch() -> Any:
    """Torch, or how to get it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("this engine needs PyTorch: pip install 'calliper[torch]'.") from error
    return torch


def is_tensor(values: Any) -> bool:
    """Whether it is a torch tensor; does not import torch to know."""
    return "torch" in sys.modules and isinstance(values, sys.modules["torch"].Tensor)


def engine_device(engine: Any) -> str | None:
    """The device that an engine names, checked; None for the plain engine."""
    if engine is None:
        return None
    if not isinstance(engine, str) or engine.split(":")[0] != "torch":
        raise ValueError(f"engine must be {GRAMMAR}; got {engine!r}.")
    return check_device(engine[6:] or "cuda", f"engine={engine!r} asks for")


def check_device(name: str, who: str) -> str:
    """The name of a device that exists, with its number."""
    torch = import_torch()
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"{who} the device {name!r}; engine must be {GRAMMAR}.") from None
    if device.type not in ("cpu", "cuda"):
        raise CalliperError(f"{who} the device {name!r}; it must compute in float64: CUDA, or cpu.")
    count = torch.cuda.device_count() if device.type == "cuda" else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise CalliperError(
            f"{who} the device {name!r}, and torch {torch.__version__} sees {count} CUDA devices "
            f"here. Take one of those, 'torch:cpu', or engine=None."
        )
    if device.type == "cuda" and device.index is None:
        return f"cuda:{torch.cuda.current_device()}"
    return str(device)


def refuse_other_metrics(metric: Any, device: str) -> None:
    """Say that a device knows Euclidean distances alone."""
    if metric != "euclidean":
        raise CalliperError(f"on {device} distances are Euclidean; got metric={metric!r}.")


def device_rows(Z: Tensor, name: str, device: str | None = None) -> DeviceRows:
    """A tensor of features, (n, d), checked and copied; ``device`` is where it has to be."""
    torch = import_torch()
    _refuse(Z, name)
    if Z.dtype not in (torch.float32, torch.float64):
        raise CalliperError(f"{name} must be of float32 or float64; got {Z.dtype}.")
    if Z.ndim != 2 or 0 in Z.shape:
        raise CalliperError(f"{name} must be rows of features, (n, d); got {tuple(Z.shape)}.")
    refuse_elsewhere(Z, name, device)
    rows = DeviceRows(Z.T.to(torch.float64, memory_format=torch.contiguous_format, copy=True))
    if not np.isfinite(rows.ends()).all():
        raise CalliperError(f"{name} contains NaN or infinity: remove or repair those rows.")
    return rows


def refuse_elsewhere(Z: Tensor, name: str, device: str | None) -> None:
    """Say that what belongs together is on two devices."""
    if device is not None and str(Z.device) != device:
        raise CalliperError(
            f"{name} is on {Z.device}, and what it is compared with on {device}: move one of them, "
            f"as in {name}.to({device!r})."
        )


def _refuse(values: Tensor, name: str) -> None:
    if values.requires_grad:
        raise CalliperError(
            f"{name} carries gradients, which end here: pass {name}.detach(), so that it is seen."
        )
    if values.dtype.is_floating_point and values.dtype.itemsize < 4:
        raise CalliperError(
            f"{name} is in half precision ({values.dtype}), in which different rows become equal: "
            f"pass what it was rounded from, or {name}.float() if nothing else is known."
        )
    if values.layout != import_torch().strided:
        raise TypeError(f"{name} is sparse ({values.layout}): pass {name}.to_dense().")


def to_host(values: Any, name: str, device: str | None) -> Any:
    """A tensor of numbers for each row as an array; anything else as it is."""
    if not is_tensor(values):
        return values
    _refuse(values, name)
    if values.device.type != "cpu":
        refuse_elsewhere(values, name, device or "cpu")
    return values.cpu().numpy()


def device_of(rows: Any, engine: str | None) -> str | None:
    """Where to compute: where rows are, or else where the engine says; None for the processor."""
    return rows.device if isinstance(rows, DeviceRows) else engine_device(engine)


def on_device(rows: Any, device: str) -> DeviceRows:
    """Checked rows there."""
    return rows if isinstance(rows, DeviceRows) else DeviceRows(to_columns(rows, device))


def to_columns(rows: Any, device: str) -> Tensor:
    """(d, n) on the device, of checked rows that are there or in main memory."""
    if isinstance(rows, DeviceRows):
        return rows.columns
    torch = import_torch()
    return torch.as_tensor(np.asarray(rows, dtype=np.float64)).to(device).T.contiguous()

"""Rows on a torch device: when they are used, and what is refused.

An engine is named outright (``"torch:cuda:0"``) or by tensors that are on a GPU already; nothing
else moves rows to a device. Torch is imported only when used.
"""

from typing import Any

import numpy as np

from calliper._handlers import ENGINE_NAMES, EngineRows
from calliper._types import FloatArray
from calliper.exceptions import CalliperError
from calliper.kernels import Kernel

#: A torch tensor; torch has no types where it is not installed.
Tensor = Any


class TorchEngine:
    """Computes on one device."""

    def __init__(self, device: str) -> None:
        self.device = device

    def search(self, rows: Any, metric: Any) -> Any:
        """The rows, ready to be searched for neighbours there."""
        from calliper.scale._torch import TorchSearch

        return TorchSearch(self._rows(rows, metric))

    def radial(self, rows: Any, metric: Any, *how: float) -> Any:
        """The rows with radial weights there."""
        from calliper.scale._torch import TorchRadial

        return TorchRadial(self._rows(rows, metric), *how)

    def _rows(self, rows: Any, metric: Any) -> "DeviceRows":
        if metric != "euclidean":
            what = f"only Euclidean distances can be computed on {self.device}"
            raise CalliperError(f"{what}; got metric={metric!r}: leave out engine=.")
        return rows if isinstance(rows, DeviceRows) else DeviceRows(to_columns(rows, self.device))


def engine(device: str) -> TorchEngine:
    """The engine on a device by its name, by default the current CUDA device."""
    named = f"torch:{device}" if device else "torch"
    return TorchEngine(check_device(device or "cuda", f"engine={named!r} names"))


class DeviceRows(EngineRows):
    """Rows of features in double precision on a device, kept as columns, (d, n).

    The copy of them in main memory that NumPy sees is also what is pickled.
    """

    def __init__(self, columns: Tensor) -> None:
        self._columns, self.device = columns, str(columns.device)
        self.shape = (int(columns.shape[1]), int(columns.shape[0]))

    @property
    def columns(self) -> Tensor:
        """(d, n) on the device; brought back to it after a pickle."""
        if isinstance(self._columns, np.ndarray):
            check_device(self.device, "the rows were on")
            self._columns = to_columns(self._columns, self.device)
        return self._columns

    def ends(self) -> tuple[float, float]:
        least, largest = import_torch().aminmax(self.columns)
        return float(least), float(largest)

    @property
    def engine(self) -> TorchEngine:
        """Who computes with them: where they are."""
        return TorchEngine(self.device)

    def vstack(self, more: Any) -> "DeviceRows":
        return DeviceRows(import_torch().cat([self.columns, to_columns(more, self.device)], dim=1))

    def check_beside(self, rows: Any, kernel: Any) -> None:
        """Refuse new rows in main memory, unless the kernel names an engine that fetches them."""
        if not isinstance(rows, DeviceRows) and (kernel is None or kernel.engine is None):
            what = f"calibration rows are on {self.device}, and Z is in main memory"
            how = f"name the engine, as in KNN(10, engine='torch:{self.device}'), which moves rows"
            raise CalliperError(f"{what}: pass a tensor on {self.device}, or {how}.")

    def __getitem__(self, rows: Any) -> "DeviceRows":
        columns = self.columns
        if not isinstance(rows, slice):
            rows = import_torch().as_tensor(np.asarray(rows), device=columns.device)
        return DeviceRows(columns[:, rows])

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


def check_device(name: str, who: str) -> str:
    """The name of a device that exists, with its number."""
    torch = import_torch()
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"{who} the device {name!r}; engine must be {ENGINE_NAMES}.") from None
    if device.type not in ("cpu", "cuda"):
        raise CalliperError(f"{who} the device {name!r}; float64 needs CUDA or cpu.")
    if device.type == "cpu":
        return "cpu"
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise CalliperError(
            f"{who} the device {name!r}, but torch {torch.__version__} sees {count} CUDA devices "
            f"here. Use one of those, 'torch:cpu', or engine=None."
        )
    return f"cuda:{torch.cuda.current_device()}" if device.index is None else str(device)


def rows_of(Z: Tensor, calibrator: Any, held: Any) -> Any:
    """Features as rows on their device if they are compared there; else as they are.

    ``held`` are the calibration rows that new rows are compared with, None in ``fit``.
    """
    kernel = Kernel() if calibrator.kernel is None else calibrator.kernel
    known = isinstance(kernel, Kernel) and (calibrator.kernel is None or "torch" in kernel.engines)
    named = kernel.engine if known else None
    if Z.device.type == "cpu" and named != "torch:cpu":
        return Z
    if not (calibrator.through_kernel and known):
        raise CalliperError(
            f"Z is on {Z.device}, where {calibrator!r} cannot run: pass Z.cpu(), or use "
            f"FullRescaled or JackknifeRescaled with KNN(...) or RBF(...)."
        )
    if isinstance(held, DeviceRows):
        return device_rows(Z, "Z", held.device)
    if named is None or (named == "torch" and held is None):
        return device_rows(Z, "Z", None if held is None else "cpu")
    return device_rows(Z, "Z", engine(named.partition(":")[2]).device)


def device_rows(Z: Tensor, name: str, device: str | None = None) -> DeviceRows:
    """A tensor of features, (n, d), checked and copied; it must be on ``device`` if given."""
    torch = import_torch()
    _refuse(Z, name, device)
    if Z.dtype not in (torch.float32, torch.float64):
        raise CalliperError(f"{name} must be float32 or float64; got {Z.dtype}.")
    if Z.ndim != 2 or 0 in Z.shape:
        raise CalliperError(f"{name} must be rows of features, (n, d); got {tuple(Z.shape)}.")
    rows = DeviceRows(Z.T.to(torch.float64, memory_format=torch.contiguous_format, copy=True))
    if not np.isfinite(rows.ends()).all():
        raise CalliperError(f"{name} contains NaN or infinity: remove or fix those rows.")
    return rows


def _refuse(values: Tensor, name: str, device: str | None) -> None:
    """Refuse what would lose digits, gradients or zeros, or is not on the device of the rows."""
    if values.requires_grad:
        what = f"{name} carries gradients, which are not propagated"
        raise CalliperError(f"{what}: pass {name}.detach().")
    if values.dtype.is_floating_point and values.dtype.itemsize < 4:
        what = f"{name} is in half precision ({values.dtype}), which makes different rows equal"
        how = f"pass the unrounded values, or {name}.float() if you have none"
        raise CalliperError(f"{what}: {how}.")
    if values.layout != import_torch().strided:
        raise TypeError(f"{name} is sparse ({values.layout}): pass {name}.to_dense().")
    if device is not None and str(values.device) != device:
        what = f"{name} is on {values.device}, but is compared with rows on {device}"
        raise CalliperError(f"{what}: move one of them, as in {name}.to({device!r}).")


def to_array(values: Tensor, name: str, beside: Any) -> Any:
    """A tensor of numbers for each row as an array; on the device of the rows, or in memory."""
    there = beside.device if isinstance(beside, DeviceRows) else "cpu"
    _refuse(values, name, None if values.device.type == "cpu" else there)
    return values.detach().cpu().numpy()


def in_memory(values: Tensor) -> Any:
    """A tensor as an array in main memory, of its own type if NumPy has it."""
    values = values.detach().cpu()
    return (values.float() if values.dtype is import_torch().bfloat16 else values).numpy()


def as_tensor(array: Any) -> Tensor:
    """An array as a tensor in main memory."""
    return import_torch().as_tensor(array)


def to_columns(rows: Any, device: str) -> Tensor:
    """(d, n) on the device, of checked rows that are there or in main memory."""
    if isinstance(rows, DeviceRows):
        return rows.columns
    return import_torch().as_tensor(np.asarray(rows, dtype=np.float64)).to(device).T.contiguous()

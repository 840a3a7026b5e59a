"""MNIST, from the four files as published or from one file that holds the same arrays.

Reference: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), "Gradient-based learning applied to
document recognition", Proceedings of the IEEE 86, 2278. doi:10.1109/5.726791
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calliper import CalliperError
from studies.experiments import FloatArray
from studies.experiments.data.fetching import DataSource, RemoteFile, cached, fetch

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
#: The arrays of the four files in one; taken from the cache where it is there, never fetched.
_REPACKED = RemoteFile(
    "mnist.npz", "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64"
)
_PUBLISHED = {
    part: RemoteFile(f"mnist/{name}", sha256, tuple(mirror + name for mirror in _MIRRORS))
    for part, name, sha256 in (
        (
            "x_train",
            "train-images-idx3-ubyte.gz",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        (
            "y_train",
            "train-labels-idx1-ubyte.gz",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        (
            "x_test",
            "t10k-images-idx3-ubyte.gz",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        (
            "y_test",
            "t10k-labels-idx1-ubyte.gz",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    )
}
_SOURCE = DataSource(
    "MNIST: images of 28 × 28 grey values (0 … 255); y is the digit as a floating-point number.",
    "CC BY-SA 3.0",
    'Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), "Gradient-based learning applied to '
    'document recognition", Proceedings of the IEEE 86, 2278. doi:10.1109/5.726791',
)


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of handwritten digits, in the two parts that were published.

    Attributes
    ----------
    X_train, X_test : arrays of uint8, shapes (60000, 28, 28) and (10000, 28, 28)
    y_train, y_test : arrays of shapes (60000,) and (10000,)
        The digit as a floating-point number.
    source : DataSource
    """

    X_train: NDArray[np.uint8]
    y_train: FloatArray
    X_test: NDArray[np.uint8]
    y_test: FloatArray
    source: DataSource = field(repr=False)


def load_mnist() -> Digits:
    """Images of 70,000 handwritten digits (MNIST), with the digit as a number to predict.

    Taken from the cache folder, named by the environment variable ``CALLIPER_DATA``: the file
    ``mnist.npz`` if it is there, else the four published files in ``mnist/``, which are fetched if
    they are absent (12 MB). The SHA-256 of each file that is used is checked each time.

    Returns
    -------
    Digits
        With ``X_train``, ``y_train``, ``X_test``, ``y_test`` and ``source``.
    """
    repacked = cached(_REPACKED)
    if repacked is not None:
        with np.load(repacked, allow_pickle=False) as stored:
            arrays = {part: stored[part] for part in _PUBLISHED}
    else:
        arrays = {
            part: read_idx(gzip.decompress(fetch(file).read_bytes()))
            for part, file in _PUBLISHED.items()
        }
    return Digits(
        arrays["x_train"],
        arrays["y_train"].astype(float),
        arrays["x_test"],
        arrays["y_test"].astype(float),
        _SOURCE,
    )


def read_idx(content: bytes) -> NDArray[np.uint8]:
    """The array in an idx file: two zero bytes, type 8, the number of axes, lengths, values."""
    if content[:3] != b"\x00\x00\x08":
        raise CalliperError(f"An idx file of bytes starts with 00 00 08; got {content[:3].hex()}.")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], dtype=">u4").astype(int)
    return np.frombuffer(content[start:], dtype=np.uint8).reshape(shape).copy()

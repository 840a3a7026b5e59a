"""What a loader returns: rows, where they came from, and on what terms."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calliper._types import FloatArray


@dataclass(frozen=True)
class Source:
    """Where a data set comes from and on what terms it may be used.

    Attributes
    ----------
    description : str
        What a row is and what y measures, with its unit.
    licence : str
    citation : str
        What to cite when results on these data are published.
    """

    description: str
    licence: str
    citation: str


@dataclass(frozen=True, eq=False)
class Tabular:
    """Numbers in columns.

    Attributes
    ----------
    X : array of shape (n, d)
    y : array of shape (n,)
    feature_names : tuple of str
        Names of the columns of X.
    source : Source
    """

    X: FloatArray
    y: FloatArray
    feature_names: tuple[str, ...]
    source: Source = field(repr=False)


@dataclass(frozen=True, eq=False)
class Molecules:
    """Molecules and one property of each.

    Attributes
    ----------
    smiles : array of str, shape (n,)
        As published; not every one of them parses in current chemistry toolkits.
    y : array of shape (n,)
    identifiers : array of str, shape (n,)
        Names or numbers as published; some occur twice.
    source : Source
    """

    smiles: NDArray[np.str_]
    y: FloatArray
    identifiers: NDArray[np.str_]
    source: Source = field(repr=False)


@dataclass(frozen=True, eq=False)
class Antibodies:
    """Antibodies as the sequences of their two chains, and how well each binds.

    Attributes
    ----------
    heavy, light : arrays of str, shape (n,)
        Amino acids of the chains, one letter each.
    y : array of shape (n,)
    groups : array of str, shape (n,)
        The library that a sequence belongs to; the sequences of one library differ from a common
        parent by at most three mutations.
    source : Source
    """

    heavy: NDArray[np.str_]
    light: NDArray[np.str_]
    y: FloatArray
    groups: NDArray[np.str_]
    source: Source = field(repr=False)


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of handwritten digits, in the two parts that were published.

    Attributes
    ----------
    X_train, X_test : arrays of uint8, shapes (60000, 28, 28) and (10000, 28, 28)
    y_train, y_test : arrays of shapes (60000,) and (10000,)
        The digit as a floating-point number.
    source : Source
    """

    X_train: NDArray[np.uint8]
    y_train: FloatArray
    X_test: NDArray[np.uint8]
    y_test: FloatArray
    source: Source = field(repr=False)

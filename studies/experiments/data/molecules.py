"""Two molecular properties from the Therapeutics Data Commons, and its random split.

Reference: K. Huang, T. Fu, W. Gao et al. (2021), "Therapeutics Data Commons: Machine Learning
Datasets and Tasks for Drug Discovery and Development", NeurIPS Datasets and Benchmarks.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calliper import CalliperError
from studies.experiments import FloatArray
from studies.experiments.data.fetching import DataSource, RemoteFile, fetch

_ADDRESS = "https://dataverse.harvard.edu/api/access/datafile/"

_SOLUBILITY = RemoteFile(
    "solubility_aqsoldb.tab",
    "0b593f7b55abbe477ba4284aefd7b5450551f4ed21ac4aed80a097931141c9a4",
    (_ADDRESS + "4259610",),
)
_CLEARANCE = RemoteFile(
    "clearance_microsome_az.tab",
    "4c9047dc1860cc05d5bdc09aa9cfef86a40740605c2ff06990b1fceb6085db9d",
    (_ADDRESS + "4266186",),
)


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
    source : DataSource
    """

    smiles: NDArray[np.str_]
    y: FloatArray
    identifiers: NDArray[np.str_]
    source: DataSource = field(repr=False)


class Parts(NamedTuple):
    """Row numbers of the three parts of a data set."""

    train: NDArray[np.intp]
    valid: NDArray[np.intp]
    test: NDArray[np.intp]


def load_solubility() -> Molecules:
    """Aqueous solubility of 9,982 molecules (AqSolDB): y is log₁₀ of mol/L.

    The file is taken from the cache folder, named by the environment variable ``CALLIPER_DATA``,
    or fetched from Harvard Dataverse and kept there; its SHA-256 is checked each time.

    Returns
    -------
    Molecules
        With ``smiles``, ``y``, ``identifiers`` and ``source``.
    """
    return _read(
        _SOLUBILITY,
        DataSource(
            "Therapeutics Data Commons, Solubility_AqSolDB: y is the logarithm (base 10) of the "
            "aqueous solubility in mol/L.",
            "AqSolDB: CC0 1.0; as distributed by TDC: CC BY 4.0",
            'M. C. Sorkun, A. Khetan, S. Er (2019), "AqSolDB, a curated reference set of aqueous '
            'solubility", Scientific Data 6, 143. doi:10.1038/s41597-019-0151-1',
        ),
    )


def load_clearance() -> Molecules:
    """Microsomal clearance of 1,102 molecules (AstraZeneca): y in mL/min/g, censored.

    Labels lie between 3 and 150, the limits of the assay: 26 % are exactly 3 and 7.6 % exactly
    150. Expect tied scores and neighbourhoods without error.

    The file is taken from the cache folder, named by the environment variable ``CALLIPER_DATA``,
    or fetched from Harvard Dataverse and kept there; its SHA-256 is checked each time.

    Returns
    -------
    Molecules
        With ``smiles``, ``y``, ``identifiers`` and ``source``.
    """
    return _read(
        _CLEARANCE,
        DataSource(
            "Therapeutics Data Commons, Clearance_Microsome_AZ: y is the clearance by human liver "
            "microsomes in mL/min/g, limited to 3 … 150.",
            "CC BY 4.0 (TDC); ChEMBL deposit: CC BY-SA 3.0",
            'A. Hersey (2015), "ChEMBL Deposited Data Set - AZ dataset". doi:10.6019/CHEMBL3301361',
        ),
    )


def tdc_split(n: int, *, seed: int = 42) -> Parts:
    """The random split of the Therapeutics Data Commons: 70 % train, 10 % valid, 20 % test.

    It gives the row numbers that TDC's own ``get_split(method="random")`` gives for a table of n
    rows, whose splits published results refer to.

    Parameters
    ----------
    n : int
        Number of rows, at least 10.
    seed : int
        Of the draw of the test rows; TDC's default is 42. The validation rows are always drawn
        with seed 1.

    Returns
    -------
    Parts
        ``train``, ``valid`` and ``test``. Test and validation rows come in the order drawn,
        training rows in that of the table.

    Examples
    --------
    >>> parts = tdc_split(1102)
    >>> [len(rows) for rows in parts]
    [772, 110, 220]
    """
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 10:
        raise CalliperError(f"n must be an integer of at least 10, the number of rows; got {n!r}.")
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise CalliperError(f"seed must be an integer from 0 to 2³² - 1; got {seed!r}.")
    # Published splits come from numpy's legacy generator, through pandas' DataFrame.sample.
    test = np.random.RandomState(int(seed)).permutation(n)[: round(0.2 * n)]
    rest = np.setdiff1d(np.arange(n), test)
    chosen = np.random.RandomState(1).permutation(len(rest))[: round(0.1 / 0.8 * len(rest))]
    return Parts(np.delete(rest, chosen), rest[chosen], test)


def _read(file: RemoteFile, source: DataSource) -> Molecules:
    with fetch(file).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))[1:]
    identifiers, smiles, y = zip(*rows, strict=True)
    return Molecules(np.array(smiles), np.array(y, dtype=float), np.array(identifiers), source)

"""Binding of antibodies to a peptide of SARS-CoV-2, measured by AlphaSeq.

Reference: E. Engelhart, R. Emerson, L. Shing et al. (2022), "A dataset comprised of binding
interactions for 104,972 antibodies against a SARS-CoV-2 peptide", Scientific Data 9, 653.
doi:10.1038/s41597-022-01779-4
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from studies.experiments import FloatArray
from studies.experiments.data.fetching import DataSource, RemoteFile, fetch, read_parquet

_FILE = RemoteFile(
    "alphaseq.parquet",
    "9651cab3eb545b3ed460f0439a2aeadb79a2965e1b11e124c6770ae8c6e12ef8",
    advice=(
        "It holds a part (42,576 rows) of the published set, gathered from public derivatives, "
        "whose licence, CC BY-NC-SA 4.0, lets it be used for research but not be handed on here. "
        "If you hold that file, put it there. Otherwise take the whole set from "
        "https://zenodo.org/records/5095284 and use it directly: sequences of both chains, and "
        "the mean log10 Kd over replicates with target MIT_Target"
    ),
)
_SOURCE = DataSource(
    "AlphaSeq, partial: y is the logarithm (base 10) of the dissociation constant in nM, mean or "
    "median over replicates; lower binds more strongly.",
    "CC BY-NC-SA 4.0: research use, do not redistribute",
    'E. Engelhart, R. Emerson, L. Shing et al. (2022), "A dataset comprised of binding '
    'interactions for 104,972 antibodies against a SARS-CoV-2 peptide", Scientific Data 9, 653. '
    "doi:10.1038/s41597-022-01779-4",
)


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
    source : DataSource
    """

    heavy: NDArray[np.str_]
    light: NDArray[np.str_]
    y: FloatArray
    groups: NDArray[np.str_]
    source: DataSource = field(repr=False)


def load_alphaseq(*, random_sample: bool = True) -> Antibodies:
    """Antibodies and how strongly they bind (AlphaSeq): a part of the published measurements.

    The file cannot be fetched; it is read from the cache folder, named by the environment variable
    ``CALLIPER_DATA``, after its SHA-256 was checked.

    Parameters
    ----------
    random_sample : bool
        Only the 38,962 rows that are a random sample of the published ones. The others, all of
        library 91H, were selected for having all their replicates and bind more strongly than the
        rest of that library (by 0.9 on average), so that rows of both kinds together are not
        exchangeable with anything.

    Returns
    -------
    Antibodies
        With ``heavy``, ``light``, ``y``, ``groups`` and ``source``.
    """
    columns = ("hc", "lc", "affinity", "library", "random_sample")
    table = read_parquet(fetch(_FILE), columns)
    kept = table["random_sample"].astype(bool) if random_sample else slice(None)
    heavy, light, y, groups = (table[name][kept] for name in columns[:4])
    return Antibodies(
        heavy.astype(str), light.astype(str), y.astype(np.float64), groups.astype(str), _SOURCE
    )

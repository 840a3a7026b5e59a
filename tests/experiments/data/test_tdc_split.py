"""The split of the Therapeutics Data Commons, beside its definition by pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calliper import CalliperError
from studies.experiments.data import tdc_split


def by_pandas(n: int, seed: int) -> list[np.ndarray]:
    """Draw the test rows, then the validation rows from the rest; what remains trains."""
    table = pd.DataFrame({"row": np.arange(n)})
    test = table.sample(frac=0.2, replace=False, random_state=seed)
    rest = table[~table.index.isin(test.index)]
    valid = rest.sample(frac=0.1 / 0.8, replace=False, random_state=1)
    train = rest[~rest.index.isin(valid.index)]
    return [part["row"].to_numpy() for part in (train, valid, test)]


@pytest.mark.parametrize("n", [*range(10, 60), 1102, 9982, 10_003])
@pytest.mark.parametrize("seed", [42, 0, 7])
def test_the_rows_are_those_that_pandas_draws_in_its_order(n, seed):
    for ours, theirs in zip(tdc_split(n, seed=seed), by_pandas(n, seed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_every_row_is_in_one_part():
    parts = tdc_split(1102)
    assert parts == (parts.train, parts.valid, parts.test)
    assert sorted(np.concatenate(parts).tolist()) == list(range(1102))
    assert not np.array_equal(np.sort(parts.test), np.sort(tdc_split(1102, seed=1).test))


@pytest.mark.parametrize("n", [9, 0, -5, 10.0, True, None, "100"])
def test_bad_sizes(n):
    with pytest.raises(CalliperError, match="n must be an integer of at least 10"):
        tdc_split(n)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, None, True])
def test_bad_seeds(seed):
    with pytest.raises(CalliperError, match="seed must be an integer from 0"):
        tdc_split(100, seed=seed)

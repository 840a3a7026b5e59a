"""What all tests of quantile regression share."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def one_thread():
    """Boosted trees on so few rows lose more to their threads than they gain."""
    with threadpool_limits(1):
        yield

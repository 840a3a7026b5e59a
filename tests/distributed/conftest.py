"""One cluster of two worker processes for all tests that ask for it."""

import pytest


@pytest.fixture(scope="session")
def started_client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(started_client):
    """The cluster, with both workers up, as that which collections are computed on."""
    started_client.wait_for_workers(2, timeout=60)
    with started_client.as_current():
        yield started_client

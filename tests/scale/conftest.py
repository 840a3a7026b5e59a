"""Clusters of worker processes for all tests that ask for them."""

from contextlib import contextmanager

import pytest


@contextmanager
def cluster_of(n_workers):
    dask, distributed = (pytest.importorskip(name) for name in ("dask", "distributed"))
    how = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "5s"}),  # of those that are dead
        distributed.LocalCluster(n_workers=n_workers, **how) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(n_workers, timeout=120)
        yield client


@pytest.fixture(scope="session")
def started_client():
    with cluster_of(2) as client:
        yield client


@pytest.fixture
def client(started_client):
    """Two workers, as that which collections are computed on."""
    with started_client.as_current():
        yield started_client


@pytest.fixture(scope="module")
def three_workers():
    with cluster_of(3) as client:
        yield client


@pytest.fixture
def mortal_client(three_workers):
    """Workers two of which may be killed: whether others take their place, nobody waits for."""
    with three_workers.as_current():
        yield three_workers

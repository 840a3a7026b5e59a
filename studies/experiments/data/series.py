"""Hourly electricity demand and temperature: eight weeks of a summer in Victoria, Australia."""

from __future__ import annotations

from typing import Any

from studies.experiments.data.fetching import DataSource, RemoteFile, fetch

_FILE = RemoteFile(
    "series/demand_temperature.csv",
    "7081156eb4ab4bfb34b77449a57919fc006b64f01996e670fd98c7860ca0d1a2",
    (
        "https://raw.githubusercontent.com/scikit-learn-contrib/MAPIE/"
        "83177863ce50ef3fc54b37235025f5e4ee05e634/examples/data/demand_temperature.csv",
    ),
)
DEMAND = DataSource(
    "Demand of Victoria in GW and temperature of Melbourne in °C, each hour from 1 January to 25 "
    "February 2014; as in the examples of MAPIE, which took it from vic_elec.",
    "GPL-3 (tsibbledata)",
    "M. O'Hara-Wild, R. Hyndman, E. Wang (2022), tsibbledata: Diverse Datasets for 'tsibble'.",
)


def load_demand() -> Any:
    """A pandas frame with columns ``demand`` and ``temperature``, a row for each of 1,344 hours.

    Taken from the cache folder, named by the environment variable ``CALLIPER_DATA``, or fetched.
    """
    import pandas as pd

    table = pd.read_csv(fetch(_FILE), index_col=0, parse_dates=True).asfreq("h")
    return table.rename(columns=str.lower)

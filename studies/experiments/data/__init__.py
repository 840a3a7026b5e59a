"""Measured data on which the paper and the studies here compare methods."""

from studies.experiments.data.antibodies import Antibodies, load_alphaseq
from studies.experiments.data.digits import Digits, load_mnist
from studies.experiments.data.fetching import DataSource
from studies.experiments.data.molecules import (
    Molecules,
    Parts,
    load_clearance,
    load_solubility,
    tdc_split,
)
from studies.experiments.data.series import load_demand
from studies.experiments.data.tabular import Tabular, load_tabular

__all__ = [
    "Antibodies",
    "DataSource",
    "Digits",
    "Molecules",
    "Parts",
    "Tabular",
    "load_alphaseq",
    "load_clearance",
    "load_demand",
    "load_mnist",
    "load_solubility",
    "load_tabular",
    "tdc_split",
]

"""Problems to try intervals on: one with the best intervals known, others of measured data."""

from calliper.datasets._antibodies import load_alphaseq
from calliper.datasets._dataset import Antibodies, Digits, Molecules, Source, Tabular
from calliper.datasets._digits import load_mnist
from calliper.datasets._molecules import Parts, load_clearance, load_solubility, tdc_split
from calliper.datasets._one_dimensional import OneDimensional, one_dimensional
from calliper.datasets._tabular import load_tabular

__all__ = [
    "Antibodies",
    "Digits",
    "Molecules",
    "OneDimensional",
    "Parts",
    "Source",
    "Tabular",
    "load_alphaseq",
    "load_clearance",
    "load_mnist",
    "load_solubility",
    "load_tabular",
    "one_dimensional",
    "tdc_split",
]

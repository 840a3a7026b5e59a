"""Nearness: who speaks for a point, and how loudly."""

from calliper.kernels._knn import KNN
from calliper.kernels._rbf import RBF

__all__ = ["KNN", "RBF"]

"""Deutschmann et al. (2024), reproduced: five tasks, every method, every table and figure."""

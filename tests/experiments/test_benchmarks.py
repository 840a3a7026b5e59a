"""Benchmarks that nothing else runs: they still call the library as it is."""

from studies.benchmarks import cells


def test_cells_stand_beside_the_exact_search():
    assert cells.against_exact(300, 20).count("300 × 20 × 64") == 3

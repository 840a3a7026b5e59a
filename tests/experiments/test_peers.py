"""The page beside MAPIE and crepes says what was measured."""

import json

import pytest


def test_the_page_is_made_of_the_records():
    peers = pytest.importorskip("studies.experiments.peers")
    stored = json.loads(peers.RESULTS.read_text())
    assert peers.PAGE.read_text(encoding="utf-8") == peers.page(stored)
    name, (mean, worst, *_, n_tables) = peers.summary(stored, "forest")[0]
    of_table = []
    for table in peers.TABLES:
        draws = [stored["draws"][f"{table}, forest, {draw}"] for draw in (0, 1)]
        of_table.append(sum(found[name][0] / found[peers.PLAIN][0] for found in draws) / 2)
    assert n_tables == 10
    assert mean == pytest.approx(sum(of_table) / 10) and worst == pytest.approx(max(of_table))

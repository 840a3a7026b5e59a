"""A file comes whole from the cache or its publisher, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calliper import CalliperError
from studies.experiments.data import (
    digits,
    load_alphaseq,
    load_mnist,
    load_solubility,
    load_tabular,
    molecules,
)
from studies.experiments.data.fetching import RemoteFile, cache_folder, cached, fetch

CONTENT = b"Drug_ID\tDrug\tY\n" + b"a molecule\tCCO\t-0.77\n" * 20_000


def the_file(*addresses: str, content: bytes = CONTENT, name: str = "set/table.tab") -> RemoteFile:
    return RemoteFile(name, hashlib.sha256(content).hexdigest(), addresses)


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_good_file_is_fetched_once_and_then_served_from_the_cache(cache, publisher):
    file = the_file(publisher.publish("table.tab", CONTENT))
    assert cached(file) is None
    path = fetch(file)
    assert path == cache / "set" / "table.tab" and path.read_bytes() == CONTENT
    assert files_under(cache) == ["set/table.tab"] and list(cache.rglob(".unfinished*")) == []
    assert fetch(file) == path == cached(file)
    assert publisher.requests == ["/table.tab"]


def test_a_filled_cache_needs_neither_network_nor_pooch(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "table.tab").write_bytes(CONTENT)
    assert fetch(the_file("http://127.0.0.1:1/nobody")).read_bytes() == CONTENT


def test_nothing_is_written_to_the_output(cache, publisher, capfd):
    fetch(the_file(publisher.publish("table.tab", CONTENT)))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "arrives",
    [
        CONTENT[:-1],
        CONTENT + b"\n",
        CONTENT.replace(b"CCO", b"CCN", 1),
        b"",
        b"<html>log in</html>",
    ],
)
def test_other_content_is_refused_and_leaves_nothing(cache, publisher, arrives):
    address = publisher.publish("table.tab", arrives)
    with pytest.raises(CalliperError) as raised:
        fetch(the_file(address))
    expected, found = (hashlib.sha256(content).hexdigest() for content in (CONTENT, arrives))
    for part in (expected, found, address, str(cache / "set" / "table.tab"), "CALLIPER_DATA"):
        assert part in str(raised.value)
    assert "is not there" in str(raised.value)
    assert files_under(cache) == [] and list(cache.rglob(".unfinished*")) == []


@pytest.mark.parametrize("length", [len(CONTENT), None], ids=["announced", "not announced"])
def test_a_connection_that_breaks_half_way_leaves_nothing(cache, publisher, length):
    address = publisher.publish("table.tab", CONTENT[: len(CONTENT) // 2], length=length)
    with pytest.raises(CalliperError, match="could not be fetched"):
        fetch(the_file(address))
    assert files_under(cache) == [] and list(cache.rglob(".unfinished*")) == []
    publisher.publish("table.tab", CONTENT)
    assert fetch(the_file(address)).read_bytes() == CONTENT


def test_a_file_that_is_gone_names_its_address_and_what_to_do(cache, publisher):
    address = publisher.address("table.tab")
    with pytest.raises(CalliperError, match="404") as raised:
        fetch(the_file(address))
    assert f"Save {address} yourself under that name" in str(raised.value)
    with pytest.raises(CalliperError, match="Write to the authors"):
        fetch(replace(the_file(address), advice="Write to the authors"))


def test_nobody_listens(cache):
    with pytest.raises(CalliperError, match="could not be fetched"):
        fetch(the_file("http://127.0.0.1:1/table.tab"))


def test_mirrors_are_tried_in_turn_and_all_failures_named(cache, publisher):
    gone, wrong = publisher.address("gone"), publisher.publish("wrong", b"other")
    with pytest.raises(CalliperError) as raised:
        fetch(the_file(gone, wrong))
    assert gone in str(raised.value) and wrong in str(raised.value)
    good, spare = publisher.publish("good", CONTENT), publisher.publish("spare", CONTENT)
    fetch(the_file(gone, wrong, good, spare))
    assert publisher.requests[-3:] == ["/gone", "/wrong", "/good"]


def test_a_bad_file_in_the_cache_is_replaced_by_a_good_one_only(cache, publisher):
    path = cache / "set" / "table.tab"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:100])
    file = the_file(publisher.publish("table.tab", b"other"))
    assert cached(file) is None
    with pytest.raises(CalliperError, match="does not match"):
        fetch(file)
    assert path.read_bytes() == CONTENT[:100]
    publisher.publish("table.tab", CONTENT)
    assert fetch(file).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_to(cache, publisher):
    # A file in the folder's place stops everyone, also an administrator.
    cache.write_text("not a folder")
    with pytest.raises(CalliperError, match="could not be fetched") as raised:
        fetch(the_file(publisher.publish("table.tab", CONTENT)))
    assert str(cache) in str(raised.value)


def test_the_variable_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLIPER_DATA", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("CALLIPER_DATA", "~/somewhere")
    assert cache_folder() == Path.home() / "somewhere"
    monkeypatch.setenv("CALLIPER_DATA", "")
    assert cache_folder().name == "calliper"
    monkeypatch.delenv("CALLIPER_DATA")
    assert cache_folder().name == "calliper"


def test_without_pooch_the_message_says_what_to_install(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(CalliperError, match=r"pip install 'calliper\[experiments\]'"):
        fetch(the_file("http://127.0.0.1:1/table.tab"))
    monkeypatch.delenv("CALLIPER_DATA")
    with pytest.raises(CalliperError, match="CALLIPER_DATA"):
        fetch(the_file("http://127.0.0.1:1/table.tab"))


@pytest.mark.parametrize("load", [load_alphaseq, lambda: load_tabular("concrete")])
def test_without_pandas_the_message_says_what_to_install(load, real_files, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(CalliperError, match=r"^Reading .* pip install 'calliper\[experiments\]'"):
        load()


def test_a_set_that_cannot_be_fetched_says_where_it_is_from(cache):
    with pytest.raises(CalliperError, match="zenodo") as raised:
        load_alphaseq()
    assert "CC BY-NC-SA" in str(raised.value) and str(cache) in str(raised.value)


def test_a_loader_fetches_checks_and_reads(cache, publisher, monkeypatch):
    content = "Drug_ID\tDrug\tY\nan ä\tCCO\t-0.77\n2\tC\t1e-1\n".encode()
    file = the_file(publisher.publish("4259610", content), content=content, name="s.tab")
    monkeypatch.setattr(molecules, "_SOLUBILITY", file)
    for _ in range(2):
        loaded = load_solubility()
        assert loaded.smiles.tolist() == ["CCO", "C"]
        assert loaded.identifiers.tolist() == ["an ä", "2"]
        assert loaded.y.tolist() == [-0.77, 0.1]
    assert publisher.requests == ["/4259610"]


def test_mnist_from_the_four_published_files(cache, publisher, monkeypatch):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (6, 3, 2), dtype=np.uint8),
        "y_train": rng.integers(0, 10, 6, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (4, 3, 2), dtype=np.uint8),
        "y_test": rng.integers(0, 10, 4, dtype=np.uint8),
    }
    files = {}
    for part, array in arrays.items():
        lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
        content = gzip.compress(bytes([0, 0, 8, array.ndim]) + lengths + array.tobytes())
        address = publisher.publish(part, content)
        files[part] = the_file(address, content=content, name=f"mnist/{part}.gz")
    monkeypatch.setattr(digits, "_PUBLISHED", files)
    loaded = load_mnist()
    np.testing.assert_array_equal(loaded.X_train, arrays["x_train"])
    np.testing.assert_array_equal(loaded.X_test, arrays["x_test"])
    assert loaded.y_train.dtype == float and loaded.y_train.tolist() == arrays["y_train"].tolist()
    assert loaded.y_test.tolist() == arrays["y_test"].tolist()
    load_mnist()
    assert len(publisher.requests) == 4
    with pytest.raises(CalliperError, match="00 00 08; got 00000d"):
        digits.read_idx(b"\x00\x00\x0d\x01" + bytes(8))

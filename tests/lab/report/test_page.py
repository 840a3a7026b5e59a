"""The page as text: complete, self-contained, safe, and equal to the records."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from calliper.calibrators import MADSplit
from calliper.lab._words import number, percent, percent_down, with_error
from calliper.lab.comparison import (
    Points,
    compare,
)
from calliper.lab.report.page import (
    PAGE_POINTS,
    Provenance,
    payload,
    render_page,
    rounded,
    table_rows,
)
from cases.comparisons import methods, points

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'&"


class Reader(HTMLParser):
    """Elements with their attributes, and the text of scripts by id."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.words, self._open = [], {}, [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = dict(attrs).get("id", tag) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._open = None

    def handle_data(self, data):
        if self._open is None:
            self.words.append(data)
        else:
            self.scripts[self._open] = self.scripts.get(self._open, "") + data


@pytest.fixture(scope="module")
def found():
    return compare(
        points(300, seed=1, ids=True),
        points(2500, seed=2, ids=True),
        methods={**methods(), "mad": MADSplit()},
        groups=["left", "right"] * 1250,
    )


@pytest.fixture(scope="module")
def text(found):
    files = ({"name": "cal.csv", "part": "calibration", "n_rows": 300, "sha256": "0" * 64},)
    return render_page(found, title="A title", provenance=Provenance("calliper compare --x", files))


@pytest.fixture(scope="module")
def read(text):
    return Reader(text)


def test_it_is_one_file_that_asks_for_nothing(read):
    for tag, attributes in read.elements:
        assert tag not in ("link", "iframe", "img"), tag
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    policy = [a["content"] for t, a in read.elements if a.get("http-equiv")]
    assert policy and policy[0].startswith("default-src 'none'")
    assert "@import" not in read.scripts["style"] and "url(" not in read.scripts["style"]


def test_it_says_the_verdict_and_how_to_repeat_it(found, read):
    words = " ".join(read.words)
    verdict = found.verdict
    for sentence in (verdict.headline, verdict.covers, verdict.adapts, verdict.why):
        assert sentence in words
    assert verdict.promise in words
    for sentence in ("calliper compare --x", "cal.csv", "0" * 64, "Seed 0", "numpy", "A title"):
        assert sentence in words


def test_a_failed_method_is_shown(read):
    assert any("failed and is not compared" in words for words in read.words)
    assert any("training=" in words for words in read.words)


def test_the_table_has_the_records(found, read):
    values = json.loads(read.scripts["values"])
    for place, level in enumerate(found.levels):
        for stored, row in zip(values["tables"][place], table_rows(found, level), strict=True):
            record = found.record(row["method"], level)
            texts = [cell["text"] for cell in stored["cells"]]
            assert texts[1].startswith(percent(record.coverage))
            assert texts[2] == number(record.mean_width)
            assert stored["note"] == row["note"]


def test_records_on_the_page_are_those_of_the_json(found, read):
    values, machine = json.loads(read.scripts["values"]), json.loads(found.to_json())
    assert values["records"] == rounded(machine["records"])
    assert values["parts"] == rounded(machine["parts"])


def test_points_are_stored_once_and_right(found, read):
    stored = json.loads(read.scripts["values"])["points"]
    assert stored["n"] == PAGE_POINTS < len(found.test)
    places = [found.test.ids.index(name) for name in stored["ids"]]
    error = np.frombuffer(base64.b64decode(stored["error"]), "<f4")
    expected = found.test.y[places] - found.test.y_pred[places]
    np.testing.assert_array_equal(error, expected.astype("f4"))
    for answer in found.answers[:3]:
        half = np.frombuffer(base64.b64decode(stored["half_width"][answer.method]), "<f4")
        inside = np.frombuffer(base64.b64decode(stored["inside"][answer.method]), "u1")
        expected = answer.intervals.contains(found.test.y)[places]
        np.testing.assert_array_equal(inside.reshape(len(found.levels), -1).T, expected)
        width = answer.intervals.width[places]
        np.testing.assert_allclose(half.reshape(len(found.levels), -1).T, width / 2, rtol=1e-6)


@pytest.mark.parametrize("offset", [4.5e5, 1.7e9])
def test_large_offsets_leave_errors_alone(offset):
    def far(rows):
        return Points(rows.Z + offset, rows.y + offset, rows.y_pred + offset)

    test = far(points(300, seed=2))
    stored = payload(compare(far(points(100, seed=1)), test, methods=methods()))["points"]
    rows = [int(name.split()[1]) - 1 for name in stored["ids"]]
    error = np.frombuffer(base64.b64decode(stored["error"]), "<f4")
    np.testing.assert_allclose(error, (test.y - test.y_pred)[rows], rtol=1e-6)
    for packed, values in ((stored["y_pred"], test.y_pred), (stored["Z"][0], test.Z[:, 0])):
        near = np.frombuffer(base64.b64decode(packed["from_centre"]), "<f4").astype(float)
        np.testing.assert_allclose(packed["centre"] + near, values[rows], rtol=0, atol=1e-6)


def test_it_is_small(text):
    assert len(text.encode()) < 2_500_000


def test_names_are_broken_between_their_words():
    """Not in mid-word: a long name may go on after an underscore, and only where it must."""
    sets = points(60, seed=1), points(60, seed=2)
    text = render_page(compare(*sets, methods={"constant_width<i>": methods()["split"]}))
    assert text.count("constant_<wbr>width&lt;i&gt;") == 2  # table and glossary
    rules = [rule for rule in text.split("}") if ".methods" in rule or ".glossary" in rule]
    assert not any("overflow-wrap: anywhere" in rule for rule in rules)


def test_names_of_others_cannot_do_harm():
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(60, 2)), rng.normal(size=60), rng.normal(size=60)]
    evil = Points(*data, [EVIL] * 60, (EVIL, "b"))
    found = compare(
        Points(rng.normal(size=(60, 2)), *data[1:], None, (EVIL, "b")),
        evil,
        methods={EVIL: methods()["full"]},
        groups=[EVIL] * 60,
    )
    files = ({"name": EVIL, "part": EVIL, "n_rows": 60, "sha256": EVIL},)
    read = Reader(render_page(found, title=EVIL, provenance=Provenance(EVIL, files, (EVIL,))))
    tags = [tag for tag, _ in read.elements]
    assert tags.count("script") == 4 and "img" not in tags
    assert EVIL in " ".join(read.words)
    values = json.loads(read.scripts["values"])
    assert values["methods"][0] == EVIL and values["points"]["features"][0] == EVIL


def test_headings_and_tables_are_named_for_those_who_listen(read):
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    identities = [a["id"] for _, a in read.elements if "id" in a]
    assert len(set(identities)) == len(identities)
    for tag, attributes in read.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name, identities[0]) in identities, (tag, attributes)
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
    assert dict(e for e in read.elements if e[0] == "html")["html"]["lang"] == "en"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"), (float("nan"), "–"), (float("inf"), "∞"), (1234567.0, "1,234,567"),
        (0.012345, "0.01235"), (3.14159, "3.142"), (1e-9, "1.000e−09"), (1e12, "1.000e+12"),
        (-0.4567, "−0.4567"), (-1e-9, "−1.000e−09"),
    ],
)  # fmt: skip
def test_numbers_read_well(value, expected):
    assert number(value) == expected


def test_promises_are_rounded_down():
    assert percent_down(0.80099) == "80\u00a0%" and percent_down(0.9) == "90\u00a0%"
    assert with_error(227.764, 3.4757) == "227.8 ± 3.5"

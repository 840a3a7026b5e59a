"""Every link and image of the built site leads to a file that is there, and to a place in it."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import pytest


class Page(HTMLParser):
    """What a page points to, and the places in it that can be pointed to."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.places = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places |= {given[key] for key in ("id", "name") if given.get(key)}
        self.targets += [given[key] for key in ("href", "src") if given.get(key)]


@pytest.fixture(scope="module")
def pages(site):
    return {
        path: Page(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
        if "_static" not in path.parts
    }


def test_links_lead_somewhere(site, pages):
    broken, followed = [], 0
    for path, page in pages.items():
        for target in page.targets:
            address, place = urldefrag(target)
            if re.match(r"[a-z]+:|//", target):
                continue
            there = (path.parent / unquote(address.split("?")[0])).resolve() if address else path
            followed += 1
            known = pages[there].places if there in pages else None
            if not there.exists() or (place and known is not None and unquote(place) not in known):
                broken.append((str(path.relative_to(site)), target))
    assert broken == []
    assert followed > 1000


def test_nothing_is_loaded_from_elsewhere(site, pages):
    loaded = re.compile(r"<(?:script|img|link)[^>]+(?:src|href)=\"(https?:)?//")
    assert [str(path) for path in pages if loaded.search(path.read_text(encoding="utf-8"))] == []


def test_every_page_says_where_to_go_next(site, pages):
    ends = [
        str(path.relative_to(site))
        for path in pages
        if "Where to go next" not in path.read_text(encoding="utf-8")
    ]
    made = {"genindex.html", "py-modindex.html", "search.html", "index.html"}
    assert set(ends) <= made


def test_every_example_ran_and_drew(site, pages):
    gallery = list((site / "gallery").glob("plot_*.html"))
    assert len(gallery) >= 15
    for path in gallery:
        text = path.read_text(encoding="utf-8")
        assert "sphx-glr-timing" in text
        assert "images/sphx_glr_" in text, path.name

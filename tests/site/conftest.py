"""The built site, and a browser without a screen; both are skipped where they are not there."""

import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from browser.conftest import browser as browser


@pytest.fixture(scope="session")
def site():
    folder = os.environ.get("CALLIPER_SITE")
    if folder is None:
        pytest.skip("make docs-check builds the site and names it in CALLIPER_SITE")
    folder = Path(folder).resolve()
    assert (folder / "index.html").exists(), f"no site in {folder}: make docs"
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *said):
        pass


@pytest.fixture(scope="session")
def address(site):
    """Where the site is served; search asks for pages, which it may not do from files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()

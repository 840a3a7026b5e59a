"""The real files where they can be had, and a publisher on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
NEEDED = (
    "alphaseq.parquet",
    "clearance_microsome_az.tab",
    "mnist.npz",
    "series",
    "solubility_aqsoldb.tab",
    "tabular",
)


@pytest.fixture
def real_files(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A filled cache, and no way to fetch."""
    folder = Path(os.environ.get("CALLIPER_DATA") or SHARED)
    missing = [name for name in NEEDED if not (folder / name).exists()]
    if missing:
        pytest.skip(f"{folder} lacks {', '.join(missing)}; set CALLIPER_DATA to a filled folder")
    monkeypatch.setenv("CALLIPER_DATA", str(folder))
    monkeypatch.setattr("studies.experiments.data.fetching._download", _no_network)
    return folder


def _no_network(*arguments: object) -> None:
    raise AssertionError("a file that is in the cache was fetched")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, not made yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CALLIPER_DATA", str(folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return folder


class Publisher:
    """A web server whose files a test chooses; it counts how often each was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.lengths: dict[str, int | None] = {}
        self.requests: list[str] = []
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                publisher.requests.append(self.path)
                content = publisher.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                length = publisher.lengths.get(self.path, len(content))
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: object) -> None:
                """Keep the output of the tests clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def publish(self, name: str, content: bytes, *, length: int | None = -1) -> str:
        """Serve content; announce ``length`` bytes, or none for no announcement at all."""
        self.files[f"/{name}"] = content
        self.lengths[f"/{name}"] = len(content) if length == -1 else length
        return self.address(name)

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{name}"


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    running = Publisher()
    yield running
    running.server.shutdown()
    running.server.server_close()

"""Shards, a server that has them, and what can be wrong with it."""

import http.server
import os
import re
import socketserver
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tenon.data.streaming import ShardWriter

sys.path.insert(0, str(Path(__file__).parent))


class Handler(http.server.BaseHTTPRequestHandler):
    """Files of ``server.folder``, with ranges and ETags."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, body):
        server = self.server
        path = server.folder / self.path.lstrip("/")
        if body:
            server.requests.append((path.name, self.headers.get("Range")))
        if not path.is_file():
            self.send_error(404)
            return
        if body and path.name.endswith(server.failing) and server.failures > 0:
            server.failures -= 1
            self.send_error(503)
            return
        content = path.read_bytes()
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        low, high = (int(found[1]), int(found[2]) + 1) if found else (0, len(content))
        part = content[low:high]
        self.send_response(206 if found else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}-{len(content)}"')
        if found:
            self.send_header("Content-Range", f"bytes {low}-{high - 1}/{len(content)}")
        self.end_headers()
        if not body:
            return
        half = len(part) // 2
        self.wfile.write(part[:half])
        if path.name.endswith(server.stalled):
            server.stalling.set()
            server.go_on.wait(30)
        self.wfile.write(part[half:])

    def log_message(self, *arguments):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.requests = Path(folder), []
        #: What the names of files end in that fail, ``failures`` times, and of those that stall until ``go_on``.
        self.failing, self.failures = ("none",), 0
        self.stalled, self.stalling, self.go_on = ("none",), threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        pass  # clients that are killed


@pytest.fixture
def server(tmp_path):
    pytest.importorskip("aiohttp", reason="aiohttp, which fsspec needs for HTTP, is not installed")
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    (tmp_path / "served").mkdir()
    server = Server(tmp_path / "served")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.go_on.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("tenon.data.streaming.locations._PAUSE", 0.001)


def numbered(folder, count=20, per_shard=6, name="s-%03d.tar", width=8):
    """Write samples 0 to ``count``; return the paths of the shards. The index beside each is deleted."""
    Path(folder).mkdir(exist_ok=True)
    with ShardWriter(os.path.join(folder, name), maxcount=per_shard) as shards:
        for i in range(count):
            if name.endswith(".tar"):
                shards.write({"__key__": f"{i:04}", "npy": np.full(width, i, np.int32), "cls": i})
            else:
                shards.write({"npy": np.full(width, i, np.int32), "cls": i})
    for path in shards.paths:
        os.unlink(path + ".index")
    return shards.paths


@pytest.fixture(name="numbered")
def numbered_fixture():
    return numbered


def until(condition, seconds=20):
    """Wait until ``condition()`` is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@pytest.fixture(name="until")
def until_fixture():
    return until

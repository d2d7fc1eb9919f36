"""Cache the digests that worker processes compute from trace files; a file is read again only if it changed.

Memory is bounded: the files that were requested last are kept, up to ``MOST_FILES`` and ``MOST_BYTES``; if
one run alone has more, its last ranks have no timeline.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence

from tenon_dashboard.collect import JsonObject
from tenon_dashboard.fork_server import ForkServer
from tenon_dashboard.timeline import Timeline

MOST_FILES = 256
MOST_BYTES = 1 << 30
_LONGEST_LINE = 64 << 20


class Reading:
    """The last digest and timeline of one file, or its error."""

    def __init__(self, path: str, fork_server: ForkServer) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self.digest: JsonObject | None = None
        self.timeline: Timeline | None = None
        self.error: str | None = None
        self.finished = False
        self.busy = False
        self.progress = 0
        self.size = 0
        self.bytes = 0
        #: Whether its timeline is dropped, as there is no memory left for it.
        self.cropped = False
        self._stamp: tuple[int, int] | None = None
        self._fork_server = fork_server
        self._worker: socket.socket | None = None

    def changed(self) -> bool:
        """Record the file's size and time; return whether they differ from the last reading's."""
        try:
            status = os.stat(self.path)
            stamp = (status.st_mtime_ns, status.st_size)
        except OSError:  # renamed from .part to its final name; the next walk finds it
            return False
        if stamp == self._stamp:
            return False
        if self._stamp is not None and (self.finished or self.error or stamp[1] < self._stamp[1]):
            self.close()  # it is another file under the same name
        self._stamp, self.size = stamp, stamp[1]
        return True

    def close(self) -> None:
        """End the worker, if one waits for the file to grow."""
        worker, self._worker = self._worker, None
        if worker is not None:
            with contextlib.suppress(OSError):
                worker.shutdown(socket.SHUT_RDWR)  # threads that are reading from it return, too
            worker.close()

    def look(self) -> bool:
        """Let a worker, new if necessary, read the first part of the file; return whether there is more."""
        if self._worker is not None and select.select([self._worker], [], [], 0)[0]:
            self.close()  # it has ended, being idle for long
        if self._worker is not None:
            return True
        self.progress = 0
        try:
            self._worker = self._fork_server.start(self.path)
        except OSError as error:
            self._fail(f"no process could be started to read it: {error.strerror}")
            return False
        return self._request(b"look\n")

    def read(self) -> None:
        """Let the worker read the rest of the file."""
        self._request(b"read\n")

    def _request(self, request: bytes) -> bool:
        """Send a request to the worker and handle its messages; return whether there is more to read."""
        worker = self._worker
        if worker is not None:
            # The worker may end amid its answer.
            with contextlib.suppress(OSError, ValueError), worker.makefile("rb") as out:
                worker.sendall(request)
                while line := out.readline(_LONGEST_LINE):
                    message = json.loads(line)
                    if "progress" in message:
                        self.progress = message["progress"]
                    elif "error" in message:
                        self._fail(message["error"])
                        return False
                    else:
                        self._store(message, out.read(message["timeline"]))
                        if "finished" in message:
                            return not message["ended"]
        self._fail("reading it took more memory or time than a trace may take")
        return False

    def _fail(self, error: str) -> None:
        self.close()
        self.digest, self.timeline, self.bytes, self.error = None, None, 0, error

    def _store(self, message: JsonObject, timeline: bytes) -> None:
        self.digest, self.error = message["digest"], None
        self.finished = message.get("finished", False)
        if timeline and not self.cropped:
            self.timeline, self.bytes = Timeline(timeline), len(timeline)
        if self.finished:
            self.close()


class Readers:
    """The readings of all files that were requested lately."""

    def __init__(self) -> None:
        self._readings: OrderedDict[str, Reading] = OrderedDict()
        self._lock = threading.Lock()
        self._done = threading.Condition(self._lock)
        self._slots = threading.BoundedSemaphore(max(2, os.cpu_count() or 2))
        self._looking = 0
        self._fork_server = ForkServer()
        atexit.register(self.close)

    def get(self, paths: Sequence[str], seconds: float) -> list[Reading]:
        """Return the up-to-date readings of some files.

        Waits ``seconds`` for files that are being read, and twice as long until each has something to show.
        """
        with self._lock:
            readings = [self._get(path) for path in paths]
            self._forget(set(paths))
            began = time.monotonic()
            while any(r.busy for r in readings):
                all_readable = all(r.digest is not None or not r.busy for r in readings)
                left = began + seconds * (1 if all_readable else 2) - time.monotonic()
                if left <= 0:
                    break
                self._done.wait(left)
        return readings

    def warm(self) -> None:
        """Start the process that forks workers, as files will be requested soon."""
        self._fork_server.warm()

    def _get(self, path: str) -> Reading:
        reading = self._readings.setdefault(path, Reading(path, self._fork_server))
        self._readings.move_to_end(path)
        if not reading.busy and reading.changed():
            reading.busy = True
            self._looking += 1
            threading.Thread(target=self._read, args=(reading,), daemon=True).start()
        return reading

    def _read(self, reading: Reading) -> None:
        """Read the first part of a file; once all are that far, read as many at a time as there are cores."""
        more = False
        try:
            more = reading.look()
        finally:
            with self._lock:
                self._looking -= 1
                reading.busy = more
                self._done.notify_all()
                while more and self._looking:
                    self._done.wait()
        if more:
            try:
                with self._slots:
                    reading.read()
            finally:
                with self._lock:
                    reading.busy = False
                    self._done.notify_all()

    def _forget(self, requested: set[str]) -> None:
        size = sum(reading.bytes for reading in self._readings.values())
        for path in list(self._readings):
            if len(self._readings) <= MOST_FILES and size <= MOST_BYTES:
                return
            reading = self._readings[path]
            if path not in requested and not reading.busy:
                size -= reading.bytes
                reading.close()
                del self._readings[path]
        for reading in reversed(self._readings.values()):
            if size <= MOST_BYTES:
                return
            size -= reading.bytes
            reading.timeline, reading.bytes, reading.cropped = None, 0, True

    def close(self) -> None:
        """End every worker."""
        with self._lock:
            for reading in self._readings.values():
                reading.close()
        self._fork_server.close()

"""Keep what worker processes read of trace files: once per file, again only where a file has changed.

Memory is bounded: the files that were asked for last are kept, up to ``MOST_FILES`` and ``MOST_BYTES``; where
one run alone has more, its last ranks do without a timeline.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from tenon_dashboard.timeline import Timeline

MOST_FILES = 256
MOST_BYTES = 1 << 30
_LONGEST_LINE = 64 << 20


class Reading:
    """One file: its last digest and timeline, or why there is none."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self.digest: dict[str, Any] | None = None
        self.timeline: Timeline | None = None
        self.error: str | None = None
        self.finished = False
        self.busy = False
        self.progress = 0
        self.size = 0
        self.bytes = 0
        #: Its timeline is not kept: there is no room for it beside the others.
        self.cropped = False
        self._stamp: tuple[int, int] | None = None
        self._worker: subprocess.Popen[bytes] | None = None

    def changed(self) -> bool:
        """Note the file's size and time; whether they differ from those of the last reading."""
        try:
            status = os.stat(self.path)
            stamp = (status.st_mtime_ns, status.st_size)
        except OSError:  # renamed from .part to its final name; the next walk finds it
            return False
        if stamp == self._stamp:
            return False
        if self._stamp is not None and (self.finished or self.error or stamp[1] < self._stamp[1]):
            self.close()  # another file under the same name
        self._stamp, self.size = stamp, stamp[1]
        return True

    def close(self) -> None:
        """End the worker, if one waits for the file to grow."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()

    def read(self) -> None:
        """Let a worker read what there is, and take what it says."""
        if self._worker is not None and self._worker.poll() is None:
            try:
                self._worker.stdin.write(b"\n")  # type: ignore[union-attr]
            except BrokenPipeError:
                self.close()
        else:
            self.close()
        if self._worker is None:
            self.progress = 0
            command = [sys.executable, "-P", "-m", "tenon_dashboard.worker", self.path]
            pipe = subprocess.PIPE
            self._worker = subprocess.Popen(
                command, bufsize=0, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
            )
        self._listen(self._worker)

    def _listen(self, worker: subprocess.Popen[bytes]) -> None:
        with os.fdopen(os.dup(worker.stdout.fileno()), "rb") as out:  # type: ignore[union-attr]
            while line := out.readline(_LONGEST_LINE):
                message = json.loads(line)
                if "progress" in message:
                    self.progress = message["progress"]
                elif "error" in message:
                    self._fail(message["error"])
                    return
                else:
                    self._take(message, out.read(message["timeline"]))
                    if "finished" in message:
                        self.finished = message["finished"]
                        if self.finished:
                            self.close()
                        return
        self._fail("reading it took more memory or time than a trace may take")

    def _fail(self, error: str) -> None:
        self.close()
        self.digest, self.timeline, self.bytes, self.error = None, None, 0, error

    def _take(self, message: dict[str, Any], timeline: bytes) -> None:
        self.digest, self.error = message["digest"], None
        if timeline and not self.cropped:
            self.timeline, self.bytes = Timeline(timeline), len(timeline)


class Readers:
    """All files that were asked for lately."""

    def __init__(self) -> None:
        self._readings: OrderedDict[str, Reading] = OrderedDict()
        self._lock = threading.Lock()
        self._done = threading.Condition(self._lock)
        self._slots = threading.BoundedSemaphore(max(2, os.cpu_count() or 2))
        atexit.register(self.close)

    def get(self, paths: Sequence[str], seconds: float) -> list[Reading]:
        """The readings of some files, brought up to date; waits so long for those that are being read."""
        with self._lock:
            readings = [self._get(path) for path in paths]
            self._forget(set(paths))
            deadline = time.monotonic() + seconds
            while any(r.busy for r in readings) and (left := deadline - time.monotonic()) > 0:
                self._done.wait(left)
        return readings

    def _get(self, path: str) -> Reading:
        reading = self._readings.setdefault(path, Reading(path))
        self._readings.move_to_end(path)
        if not reading.busy and reading.changed():
            reading.busy = True
            threading.Thread(target=self._read, args=(reading,), daemon=True).start()
        return reading

    def _read(self, reading: Reading) -> None:
        try:
            with self._slots:
                reading.read()
        finally:
            with self._lock:
                reading.busy = False
                self._done.notify_all()

    def _forget(self, wanted: set[str]) -> None:
        size = sum(reading.bytes for reading in self._readings.values())
        for path in list(self._readings):
            if len(self._readings) <= MOST_FILES and size <= MOST_BYTES:
                return
            reading = self._readings[path]
            if path not in wanted and not reading.busy:
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

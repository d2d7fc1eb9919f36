"""A fork server for workers: a process that has imported the modules that they need (``worker.py``)."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading


class ForkServer:
    """Starts workers; the process that forks them is started by the first, or by ``warm``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def warm(self) -> None:
        """Start the process that forks workers, if it is not running."""
        with self._lock:
            self._server()

    def _server(self) -> socket.socket:
        """Return the socket to the process that forks, which is started if necessary."""
        if self._socket is None or self._process is None or self._process.poll() is not None:
            self._end()
            self._socket, remote = socket.socketpair()
            # One thread: a process with several cannot fork safely.
            command = ["env", "OPENBLAS_NUM_THREADS=1", sys.executable, "-P", "-m", "tenon_dashboard.worker"]
            with remote:
                self._process = subprocess.Popen(
                    command, stdin=remote.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
        return self._socket

    def start(self, path: str) -> socket.socket:
        """Start a worker for a file and return the socket to it; OSError if none can be started."""
        local, remote = socket.socketpair()
        with self._lock, remote:
            ask = self._server()
            socket.send_fds(ask, [os.fsencode(path)], [remote.fileno()])
            if not ask.recv(1):
                raise ConnectionResetError(errno.ECONNRESET, "the process that forks has ended")
        return local

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None

    def close(self) -> None:
        """End the process; workers end when their sockets are closed."""
        with self._lock:
            self._end()

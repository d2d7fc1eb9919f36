"""``tensorboard_trace_handler``: write each cycle of a profile to a folder while it is recorded."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tenon.extend import errors
from tenon_profiler.trace import Header, TraceWriter

if TYPE_CHECKING:
    from tenon_profiler.profile import profile


class tensorboard_trace_handler:
    """Write traces to ``dir_name``, where TensorBoard looks: pass it as ``on_trace_ready``.

    Files are named ``<worker_name>.<nanoseconds>.pt.trace.json``; ``worker_name`` is ``<host>_<rank>``. They
    are written by Python, with and without ``use_python_export``. Events are written as they arrive, to a
    name that ends with ``.part`` until the file is complete.
    """

    def __init__(
        self,
        dir_name: str | os.PathLike[str],
        worker_name: str | None = None,
        use_gzip: bool = False,
        use_python_export: bool = False,
    ) -> None:
        self.folder = Path(dir_name)
        self.worker_name = worker_name
        self.suffix = ".pt.trace.json" + (".gz" if use_gzip else "")

    def path(self, header: Header) -> Path:
        """Return the path of a new file, and create its folder if it does not exist."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.TraceError(
                f"cannot make the folder {str(self.folder)!r} for traces: {error.strerror}. Choose another."
            ) from error
        own = header["tenon"]
        worker = self.worker_name or f"{own['host']}_{own['rank']}"
        return self.folder / f"{worker}.{time.time_ns()}{self.suffix}"

    def open(self, header: Header) -> TraceWriter:
        """Open a file to which events can be written as they arrive."""
        return TraceWriter(self.path(header), header)

    def __call__(self, prof: profile) -> None:
        """Complete the file of the cycle that has ended."""
        prof.save(self)

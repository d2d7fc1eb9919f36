"""``tensorboard_trace_handler``: writes each cycle of a profile to a folder, while it runs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tenon.extend import errors
from tenon_profiler.trace import TraceWriter


class tensorboard_trace_handler:
    """Write traces to ``dir_name``, where TensorBoard looks: pass it as ``on_trace_ready``.

    Files are named ``<worker_name>.<nanoseconds>.pt.trace.json``; ``worker_name`` is ``<host>_<rank>``.
    Python writes them, with and without ``use_python_export``. Events go to the file as they come, under a
    name that ends with ``.part`` until it is complete.
    """

    def __init__(
        self,
        dir_name: str | os.PathLike[str],
        worker_name: str | None = None,
        use_gzip: bool = False,
        use_python_export: bool = False,
    ):
        self.folder = Path(dir_name)
        self.worker_name = worker_name
        self.suffix = ".pt.trace.json" + (".gz" if use_gzip else "")

    def path(self, header: dict[str, Any]) -> Path:
        """A new file's, in the folder, which is made if need be."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.TraceError(
                f"cannot make the folder {str(self.folder)!r} for traces: {error.strerror}. Choose another."
            ) from error
        own = header["tenon"]
        worker = self.worker_name or f"{own['host']}_{own['rank']}"
        return self.folder / f"{worker}.{time.time_ns()}{self.suffix}"

    def open(self, header: dict[str, Any]) -> TraceWriter:
        """A file that events can be written to as they come."""
        return TraceWriter(self.path(header), header)

    def __call__(self, prof: Any) -> None:
        """Complete the file of the cycle that is over."""
        prof.save(self)

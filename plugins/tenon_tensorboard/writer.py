"""A tensorboardX writer that loses nothing: its queue is drained before each flush."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any


def _summary_writer() -> Any:
    """tensorboardX's ``SummaryWriter``, imported without the torch that may be installed beside.

    It imports torch for tensors, which it never gets here: two seconds and 200 MB of each run.
    """
    modules: dict[str, Any] = sys.modules
    hidden = "torch" not in modules
    if hidden:
        modules["torch"] = None  # an import of it raises ImportError, which tensorboardX expects
    try:
        from tensorboardX import SummaryWriter
    finally:
        if hidden:
            del modules["torch"]
    return SummaryWriter


class RunWriter:
    """Scalars and text of one run, in ``folder``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._writer = _summary_writer()(logdir=str(Path(folder)), max_queue=1000, flush_secs=5)

    def scalar(self, tag: str, value: float, step: int) -> None:
        """One number."""
        self._writer.add_scalar(tag, value, step)

    def text(self, tag: str, text: str) -> None:
        """A text, shown in fixed width."""
        self._writer.add_text(tag, f"```\n{text}\n```", 0)

    def flush(self, timeout: float = 5.0) -> None:
        """Everything written so far is in the file. tensorboardX's own flush leaves its queue as it is."""
        writer: Any = getattr(self._writer.file_writer, "event_writer", None)
        queue = getattr(writer, "_event_queue", None)
        deadline = time.monotonic() + timeout
        while queue is not None and not queue.empty() and time.monotonic() < deadline:
            time.sleep(0.005)
        self._writer.flush()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._writer.close()

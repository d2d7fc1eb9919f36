"""Asynchronous checkpoints: training waits for a copy in memory, not for the disk.

``save`` copies all bytes into a reused buffer and returns; a background thread adds checksums, writes the
file atomically (``atomic.py``), verifies it and then deletes the oldest. Its errors are raised by the next
call. One file is written at a time, so ``save`` blocks while the previous one is being written.

>>> import tempfile, tenon
>>> folder = tempfile.mkdtemp()
>>> with CheckpointWriter(folder, keep=2) as writer:
...     path = writer.save(7, {"model": {"w": tenon.ones(2)}})
>>> path.name
'step-00000007.safetensors'
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from tenon.serialize.atomic import remove_abandoned, replacing
from tenon.serialize.checkpoint import document_of, keep_last
from tenon.serialize.tensors import Packed

PREFIX = "step-"


class CheckpointWriter:
    """Writes checkpoints into ``folder`` and keeps the newest ``keep``; must be closed at the end.

    A ``with`` block left by an exception waits at most ``patience`` seconds for the file being written. The
    thread calls ``then`` with the path of each complete file, and ``keep``.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep: int = 2,
        patience: float = 1.0,
        then: Callable[[Path, int], None] | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"CheckpointWriter: keep must be 1 or more, not {keep}.")
        self.folder = Path(folder)
        self.keep = keep
        self.patience = patience
        self._then = then
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.folder, f".{PREFIX}", 0.0)
        self._memory: np.ndarray | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        #: Whether a run that was killed before may have left more than ``keep`` files.
        self._surplus = True

    def save(self, step: int, sections: Mapping[str, object]) -> Path:
        """Start to write a snapshot of ``sections`` to ``step-<step>.safetensors``; return its path."""
        path = self.folder / f"{PREFIX}{step:08d}.safetensors"
        packed = Packed(document_of(sections))
        self.wait()
        self.check()
        self._memory = packed.detach(self._memory)
        self._thread = threading.Thread(target=self._write, args=(path, packed), name="checkpoint writer")
        self._thread.start()
        return path

    def check(self) -> None:
        """Raise the error of the last write, if there is one that has not been raised."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the current write has succeeded or failed; False after the timeout."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Wait for the last file; raise if it could not be written."""
        self.wait()
        self._memory = None
        self.check()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.wait(self.patience)

    def _write(self, path: Path, packed: Packed) -> None:
        try:
            if self._surplus:
                keep_last(self.folder, self.keep)
                self._surplus = False
            with replacing(path) as file:
                packed.write(file, path.stem)
            keep_last(self.folder, self.keep)
            if self._then is not None:
                self._then(path, self.keep)
        except BaseException as error:  # SystemExit too, at which a thread ends without a word
            self._error = error  # raised in the training thread, by `check`


__all__ = ["CheckpointWriter"]

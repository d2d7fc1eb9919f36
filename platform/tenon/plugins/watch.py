"""``Watch``: a thread that looks again and again at what the main thread does, to name what takes long."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Watch(ABC):
    """Calls ``look`` every ``pause`` seconds in a thread called ``name``, while this is entered."""

    def __init__(self, name: str, pause: float) -> None:
        self._pause = pause
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._pause):
            self.look()

    @abstractmethod
    def look(self) -> None:
        """Look once."""

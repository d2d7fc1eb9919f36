"""A writer of event files that loses nothing: tensorboardX's events and records, without its queue.

Behind that queue a flush may come before what was put into it, and a full disk ends a thread that nobody
hears of.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: What a killed process may lose.
_FLUSH_SECONDS = 5
#: Edges of histograms, as tensorboardX's own writer has them: each a tenth further out.
_EDGES = 1e-12 * 1.1 ** np.arange(774)
BINS = np.concatenate([-_EDGES[::-1], [0.0], _EDGES])


@contextlib.contextmanager
def without_torch() -> Iterator[None]:
    """Imports inside do without the torch that may be installed beside.

    tensorboardX imports it for tensors, which it never gets here: two seconds and 200 MB of each run.
    """
    modules: dict[str, Any] = sys.modules
    hidden = "torch" not in modules
    if hidden:
        modules["torch"] = None  # an import of it raises ImportError, which tensorboardX expects
    try:
        yield
    finally:
        if hidden:
            del modules["torch"]


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Sections as dotted names, for values that HParams can show."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (bool, int, float, str)):
            found[prefix + name] = value
    return found


class RunWriter:
    """Scalars, histograms, text and the graph of one run, in ``folder``.

    What a full disk or the like refuses raises its OSError at once, from the call that writes it.
    """

    def __init__(self, folder: str | os.PathLike[str], suffix: str = "") -> None:
        with without_torch():
            from tensorboardX import summary  # type: ignore[import-untyped]
            from tensorboardX.event_file_writer import EventsWriter  # type: ignore[import-untyped]
            from tensorboardX.proto import event_pb2  # type: ignore[import-untyped]
        self._summary, self._messages = summary, event_pb2
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._events: Any = EventsWriter(os.path.join(folder, "events"), suffix)
        self._flushed = time.monotonic()

    def scalar(self, tag: str, value: float, step: int) -> None:
        """One number."""
        self.write(step, summary=self._summary.scalar(tag, value))

    def text(self, tag: str, text: str) -> None:
        """A text, shown in fixed width."""
        self.write(0, summary=self._summary.text(tag, f"```\n{text}\n```"))

    def histogram(self, tag: str, values: Any, step: int) -> None:
        """How the numbers of an array are spread; the finite ones."""
        finite = values[np.isfinite(values)]
        if finite.size:
            self.write(step, summary=self._summary.histogram(tag, finite, BINS))

    def layout(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Charts of the tab Custom Scalars: category, title, kind and tags."""
        self.write(0, summary=self._summary.custom_scalars({k: dict(v) for k, v in layout.items()}))

    def hyperparameters(self, config: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """What the run was made with, by path, and how it ended: the tab HParams."""
        for summary in self._summary.hparams(_flat(config), dict(metrics)):
            self.write(0, summary=summary)

    def graph(self, shown: Any, times: Mapping[str, Any] | None = None) -> None:
        """A ``ModelGraph`` in the tab Graphs, with what ``times_of`` a trace gave.

        The times of each phase are an entry of the tab's list Tag.
        """
        self.write(0, graph_def=shown.definition().SerializeToString())
        for phase, found in (times or {}).items():
            run = shown.timed(found).SerializeToString()
            timed = self._messages.TaggedRunMetadata(tag=phase, run_metadata=run)
            self.write(0, tagged_run_metadata=timed)

    def write(self, step: int, wall_time: float | None = None, /, **content: Any) -> None:
        """An event with ``content``, of now or another time."""
        at = time.time() if wall_time is None else wall_time
        self._events.write_event(self._messages.Event(wall_time=at, step=int(step), **content))
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Everything written so far is on the disk."""
        self._events.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush and close."""
        self._events.close()

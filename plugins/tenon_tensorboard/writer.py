"""A synchronous writer of event files: tensorboardX's events and records, without its queue and thread.

With that queue a flush may overtake data still in it, and a full disk kills the thread without an error.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tenon_tensorboard.graph import ModelGraph
    from tenon_tensorboard.times import Times

#: Seconds between flushes: a killed process loses at most what was written since.
_FLUSH_SECONDS = 5
#: Bin edges of histograms, as in tensorboardX: geometric, with ratio 1.1.
_EDGES = 1e-12 * 1.1 ** np.arange(774)
BINS = np.concatenate([-_EDGES[::-1], [0.0], _EDGES])


@contextlib.contextmanager
def without_torch() -> Iterator[None]:
    """Hide an installed torch from imports inside.

    tensorboardX imports it to convert torch tensors, which it never gets here: that would cost each run two
    seconds and 200 MB.
    """
    modules: dict[str, Any] = sys.modules  # Any: of which None is no module
    hidden = "torch" not in modules
    if hidden:
        modules["torch"] = None  # an import of it raises ImportError, which tensorboardX expects
    try:
        yield
    finally:
        if hidden:
            del modules["torch"]


def _flat(config: Mapping[str, object], prefix: str = "") -> dict[str, bool | float | str]:
    """Flatten sections to dotted names, keeping values of types that HParams supports."""
    flat: dict[str, bool | float | str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (bool, int, float, str)):
            flat[prefix + name] = value
    return flat


class RunWriter:
    """Scalars, histograms, text and the graph of one run, in ``folder``.

    An OSError, as of a full disk, is raised by the call that writes.
    """

    def __init__(self, folder: str | os.PathLike[str], suffix: str = "") -> None:
        with without_torch():
            from tensorboardX import summary  # type: ignore[import-untyped]
            from tensorboardX.event_file_writer import EventsWriter  # type: ignore[import-untyped]
            from tensorboardX.proto import event_pb2  # type: ignore[import-untyped]
        self._summary, self._messages = summary, event_pb2
        Path(folder).mkdir(parents=True, exist_ok=True)
        # tensorboardX has no annotations.
        self._events: Any = EventsWriter(os.path.join(folder, "events"), suffix)
        self._flushed = time.monotonic()

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Write a scalar."""
        self.write(step, summary=self._summary.scalar(tag, value))

    def text(self, tag: str, text: str) -> None:
        """Write a text, displayed in a fixed-width font."""
        self.write(0, summary=self._summary.text(tag, f"```\n{text}\n```"))

    def histogram(self, tag: str, values: np.ndarray, step: int) -> None:
        """Write a histogram of the finite values of an array."""
        finite = values[np.isfinite(values)]
        if finite.size:
            self.write(step, summary=self._summary.histogram(tag, finite, BINS))

    def layout(self, layout: Mapping[str, Mapping[str, Sequence[object]]]) -> None:
        """Define charts of the tab Custom Scalars: category, title, kind and tags."""
        self.write(0, summary=self._summary.custom_scalars({k: dict(v) for k, v in layout.items()}))

    def hyperparameters(self, config: Mapping[str, object], metrics: Mapping[str, float]) -> None:
        """Write the configuration, by dotted path, and final metrics for the tab HParams."""
        for summary in self._summary.hparams(_flat(config), dict(metrics)):
            self.write(0, summary=summary)

    def graph(self, graph: ModelGraph, times: Mapping[str, Times] | None = None) -> None:
        """Write a ``ModelGraph`` for the tab Graphs, with the results of ``times_of`` a trace.

        The times of each phase are an entry of the tab's list Tag.
        """
        self.write(0, graph_def=graph.definition().SerializeToString())
        for phase, phase_times in (times or {}).items():
            run = graph.timed(phase_times).SerializeToString()
            timed = self._messages.TaggedRunMetadata(tag=phase, run_metadata=run)
            self.write(0, tagged_run_metadata=timed)

    def write(self, step: int, wall_time: float | None = None, /, **content: object) -> None:
        """Write an event with ``content``, at the current time by default."""
        at = time.time() if wall_time is None else wall_time
        self._events.write_event(self._messages.Event(wall_time=at, step=int(step), **content))
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Flush everything written so far to disk."""
        self._events.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush and close the file."""
        self._events.close()

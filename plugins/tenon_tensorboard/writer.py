"""A tensorboardX writer that loses nothing: its queue is drained before each flush."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
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


def _summary_writer() -> Any:
    with _without_torch():
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped]
    return SummaryWriter


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
    """Scalars, text and the graph of one run, in ``folder``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._writer = _summary_writer()(logdir=str(Path(folder)), max_queue=1000, flush_secs=5)

    def scalar(self, tag: str, value: float, step: int) -> None:
        """One number."""
        self._writer.add_scalar(tag, value, step)

    def text(self, tag: str, text: str) -> None:
        """A text, shown in fixed width."""
        self._writer.add_text(tag, f"```\n{text}\n```", 0)

    def histogram(self, tag: str, values: Any, step: int) -> None:
        """How the numbers of an array are spread; the finite ones."""
        finite = values[np.isfinite(values)]
        if finite.size:
            self._writer.add_histogram(tag, finite, step)

    def layout(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Charts of the tab Custom Scalars: category, title, kind and tags."""
        self._writer.add_custom_scalars({k: dict(v) for k, v in layout.items()})

    def hyperparameters(self, config: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """What the run was made with, by path, and how it ended: the tab HParams."""
        with _without_torch():
            from tensorboardX.summary import hparams  # type: ignore[import-untyped]
        for summary in hparams(_flat(config), dict(metrics)):
            self._writer.file_writer.add_summary(summary)

    def graph(self, shown: Any, times: Mapping[str, Any] | None = None) -> None:
        """A ``ModelGraph`` in the tab Graphs, with what ``times_of`` a trace gave.

        The times of each phase are an entry of the tab's list Tag.
        """
        with _without_torch():
            from tensorboardX.proto import event_pb2  # type: ignore[import-untyped]
        events = [event_pb2.Event(graph_def=shown.definition().SerializeToString())]
        for phase, found in (times or {}).items():
            timed = event_pb2.TaggedRunMetadata(
                tag=phase, run_metadata=shown.timed(found).SerializeToString()
            )
            events.append(event_pb2.Event(tagged_run_metadata=timed))
        for event in events:
            self._writer.file_writer.add_event(event)

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

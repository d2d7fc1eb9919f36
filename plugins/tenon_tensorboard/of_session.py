"""The graph of a training run's model, with the times of its profile if there is one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from tenon.data import fetch
from tenon.extend import Session, errors
from tenon_tensorboard.graph import ModelGraph
from tenon_tensorboard.times import times_of
from tenon_tensorboard.writer import RunWriter


def write_graph(session: Session, writer: RunWriter) -> None:
    """Write the graph on rank 0; collective, as the model may communicate.

    If the model cannot be recorded, prints the reason.
    """
    config = session.config
    count = max(1, config.batch_size // session.size // config.accumulate)
    inputs = fetch(session.data.train, range(min(count, len(session.data.train))))[0]
    traces: list[Path] = []
    # RunMetadata is defined in TensorBoard's own package, which is an optional dependency.
    if config.profile is not None and importlib.util.find_spec("tensorboard") is not None:
        traces = sorted(session.folder.glob(f"*_{session.rank}.*.pt.trace.json.gz"))
    try:
        graph = ModelGraph(session.model, inputs)
    except errors.CaptureError as error:
        if session.is_main:
            click.echo(f"graph: not written, the model cannot be recorded: {error}")
        return
    if session.is_main:
        writer.graph(graph, times_of(traces[-1]) if traces else {})

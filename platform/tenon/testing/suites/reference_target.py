"""``ReferenceTarget``: the shortest example of an export target, and one for tests.

It writes the graph unchanged, supports the ops that files can contain, and runs it op by op.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tenon.ops  # noqa: F401 - defines the ops
from tenon import serialize
from tenon.engine.op import table
from tenon.export import schema
from tenon.export.captured import CapturedGraph
from tenon.export.runner import Runner
from tenon.export.target import Target
from tenon.export.vectors import Vectors
from tenon.tensors.creation.create import wrap

GRAPH, WEIGHTS = "model.json", "model.safetensors"


class ReferenceTarget(Target):
    """Writes two files: the graph and its weights."""

    name = "reference"
    #: A few are left out, as every target lacks some.
    ops = frozenset(table.by_name) - {"cummax", "digamma", "erfinv", "host_draw", "lgamma", "sort"}

    def write(self, graph: CapturedGraph, vectors: Vectors | None, folder: Path) -> None:
        """Write graph and weights."""
        document, arrays = schema.to_document(graph)
        (folder / GRAPH).write_text(json.dumps(document), "utf-8")
        tensors = {name: wrap(np.array(array, order="C"), device="cpu") for name, array in arrays.items()}
        serialize.save(tensors, folder / WEIGHTS)

    def run(self, folder: Path, runs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Read both, and run the graph op by op."""
        document = schema.parse((folder / GRAPH).read_bytes(), GRAPH)
        graph = schema.from_document(document, serialize.load(folder / WEIGHTS), GRAPH)
        runner = Runner(graph)
        return [runner.run(arrays) for arrays in runs]

"""``Subgraph``: the nodes of a future submodule, on an accelerator or the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from tenon.fx.node import Node


@dataclass
class Subgraph:
    """Nodes in order, and whether they run on the accelerator."""

    is_acc: bool
    nodes: list[Node]
    device_ordinal: int | None = None

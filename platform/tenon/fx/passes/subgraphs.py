"""``Subgraph``: nodes that will be one submodule, for an accelerator or not."""

from __future__ import annotations

from dataclasses import dataclass

from tenon.fx.node import Node


@dataclass
class Subgraph:
    """Nodes in order, and where they run."""

    is_acc: bool
    nodes: list[Node]
    device_ordinal: int | None = None

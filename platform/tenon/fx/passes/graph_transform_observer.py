"""``GraphTransformObserver``: record the nodes that a pass creates and erases, and draw the graph before and
after."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.graph_drawer import FxGraphDrawer

__all__ = ["GraphTransformObserver"]

T = TypeVar("T")


class GraphTransformObserver:
    """Observes changes of ``gm`` within a ``with`` block.

    ``created_nodes`` and ``erased_nodes`` have the names of these nodes. With
    ``log_url``, a folder, drawings of the graph before and after are written into it if the block has
    changed the graph.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(lambda x: -x)
    >>> with GraphTransformObserver(traced, "append") as observer:
    ...     node = traced.graph.call_function(tenon.relu, (next(iter(traced.graph.nodes)),))
    >>> observer.created_nodes
    {'relu'}
    """

    #: The number of blocks entered.
    __pass_count: ClassVar[int] = 0

    def __init__(
        self, gm: GraphModule, passname: str, subsystem: str | None = None, log_url: str | None = None
    ) -> None:
        self.gm, self.passname, self.subsystem, self.log_url = gm, passname, subsystem, log_url
        self.created_nodes: set[str] = set()
        self.erased_nodes: set[str] = set()
        #: The replacements of the node ``name``, in order.
        self.replaced_nodes: list[tuple[str, str]] = []
        self._copies: list[GraphModule] = []
        self._creation_hook = self.get_node_creation_hook()
        self._erase_hook = self.get_node_erase_hook()
        self._replace_hook = self.get_node_replace_hook()
        self._deepcopy_hook = self.get_deepcopy_hook()
        GraphTransformObserver.__pass_count += 1
        self.input_dot_graph = None
        if log_url is not None:
            self.input_dot_graph = self._draw()

    def _draw(self) -> FxGraphDrawer:
        return FxGraphDrawer(self.gm, self.passname, ignore_getattr=True, ignore_parameters_and_buffers=True)

    @classmethod
    def get_current_pass_count(cls) -> int:
        """Return the number of observers created."""
        return cls.__pass_count

    def apply_gm_pass(self, pass_fn: Callable[[GraphModule], T]) -> T | None:
        """Run a pass on the observed module."""
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn: Callable[[Graph], T]) -> T | None:
        """Run a pass on the observed graph."""
        with self:
            return pass_fn(self.gm.graph)

    def __enter__(self) -> Self:
        self.gm._register_create_node_hook(self._creation_hook)
        self.gm._register_erase_node_hook(self._erase_hook)
        self.gm._register_replace_node_hook(self._replace_hook)
        self.gm._register_deepcopy_hook(self._deepcopy_hook)
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        for gm in (self.gm, *self._copies):
            gm._unregister_create_node_hook(self._creation_hook)
            gm._unregister_erase_node_hook(self._erase_hook)
            gm._unregister_replace_node_hook(self._replace_hook)
            gm._unregister_deepcopy_hook(self._deepcopy_hook)
        if (
            self.input_dot_graph is None
            or self.log_url is None
            or not (self.created_nodes or self.erased_nodes)
        ):
            return
        stem = os.path.join(self.log_url, f"pass_{self.get_current_pass_count()}_{self.passname}")
        self.input_dot_graph.get_dot_graph().write(f"{stem}_input_graph.dot")
        self._draw().get_dot_graph().write(f"{stem}_output_graph.dot")

    def get_node_creation_hook(self) -> Callable[[Node], None]:
        """Return the hook for created nodes."""
        return lambda node: self.created_nodes.add(node.name)

    def get_node_erase_hook(self) -> Callable[[Node], None]:
        """Return the hook for erased nodes."""
        return lambda node: self.erased_nodes.add(node.name)

    def get_node_replace_hook(self) -> Callable[[Node, str, Node], None]:
        """Return the hook for replaced nodes."""

        def replaced(old: Node, new: str, user: Node) -> None:
            self.replaced_nodes.append((old.name, new))

        return replaced

    def get_deepcopy_hook(self) -> Callable[[GraphModule], None]:
        """Return the hook for deep copies, from which the hooks are removed at the end of the block too."""
        return self._copies.append

"""``CapabilityBasedPartitioner``: group the nodes that a backend supports into as few, as large modules
as possible.

Two groups can be merged if no path leaves them and returns; each other group counts as one node of a path.
"""

from __future__ import annotations

import collections
import itertools
import logging
import operator
from collections.abc import Iterable, Sequence

from tenon.fx.graph_module import GraphModule
from tenon.fx.names import qualified_name
from tenon.fx.node import Node
from tenon.fx.passes.operator_support import OperatorSupportBase
from tenon.fx.passes.tools_common import own_name
from tenon.fx.passes.utils.fuser_utils import fuse_by_partitions

logger = logging.getLogger(__name__)


class Partition:
    """The nodes of one future module."""

    def __init__(
        self,
        id: int | None = None,
        nodes: Iterable[Node] | None = None,
        node_orders: Iterable[int] | None = None,
    ) -> None:
        self.id = id
        orders = itertools.repeat(None) if node_orders is None else node_orders
        self.nodes: dict[Node, int | None] = dict(zip(nodes or (), orders, strict=False))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Add a node."""
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        """Remove a node."""
        del self.nodes[node]

    def size(self) -> int:
        """Return the number of nodes."""
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Proposes partitions of the nodes that ``operator_support`` supports, and replaces them by modules.

    A partition with one node that computes something is dropped, unless ``allows_single_node_partition`` or
    it calls one of ``allowed_single_node_partition_ops``; functions in ``non_compute_ops`` do not count.
    Names are as in ``get_node_target``. ``skip_horizontal_fusion``: only nodes connected by their results are
    merged.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = [own_name(name) for name in non_compute_ops or ()]
        self.allowed_single_node_partition_ops = [
            own_name(name) for name in allowed_single_node_partition_ops or ()
        ]
        self.skip_horizontal_fusion = skip_horizontal_fusion
        self._submodules = dict(graph_module.named_modules())

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(self._submodules, node)

    def propose_partitions(self) -> list[Partition]:
        """Return the partitions; nodes are visited from the last to the first."""
        merging = _Merging()
        numbers = itertools.count()
        for order, node in enumerate(reversed(self.graph_module.graph.nodes)):
            if not self._is_node_supported(node):
                continue
            new = merging.add(Partition(next(numbers), [node], [order]))
            for other in self._candidates(merging, node):
                if other is not new and other in merging.partitions and merging.can_merge(new, other):
                    new = merging.merge(new, other)
        self._follow_producers(merging)
        partitions = [p for p in merging.partitions if p.size()]
        if not self.allows_single_node_partition:
            partitions = [p for p in partitions if self._is_large_enough(p)]
        logger.debug("proposed %d partitions", len(partitions))
        return partitions

    def _candidates(self, merging: _Merging, node: Node) -> list[Partition]:
        if not self.skip_horizontal_fusion:
            return list(merging.partitions)
        return list({id(p): p for user in node.users if (p := merging.home.get(user)) is not None}.values())

    def _follow_producers(self, merging: _Merging) -> None:
        """Move ``getitem`` nodes to the partition of the node that returns their tuple, if it has one."""
        for node in self.graph_module.graph.nodes:
            if node.op != "call_function" or node.target is not operator.getitem:
                continue
            producer = node.args[0]
            if not isinstance(producer, Node) or producer.op in ("placeholder", "get_attr"):
                continue
            merging.move(node, merging.home.get(producer))

    def _is_large_enough(self, partition: Partition) -> bool:
        computing = 0
        for node in partition.nodes:
            if node.op != "call_function":
                computing += node.op in ("call_module", "call_method")
                continue
            name = qualified_name(node.target)
            if name in self.allowed_single_node_partition_ops:
                return True
            computing += name not in self.non_compute_ops and node.target is not operator.getitem
        return computing > 1

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Replace each partition by a module; return the module of the graph that calls them."""
        return fuse_by_partitions(self.graph_module, [dict(p.nodes) for p in partitions], prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Remove nodes that compute nothing from the beginnings and ends of partitions."""
        free = set(self.non_compute_ops)

        def idle(node: Node) -> bool:
            return node.op == "call_function" and qualified_name(node.target) in free

        for partition in partitions:
            nodes = partition.nodes
            first = _closed(nodes, idle, lambda node: node.all_input_nodes)
            last = _closed(nodes, idle, lambda node: list(node.users))
            for node in first | last:
                partition.remove_node(node)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Propose partitions and replace them by modules."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)


def _closed(nodes: Iterable[Node], idle: object, neighbours: object) -> set[Node]:
    """Return the ``nodes`` for which ``idle(node)`` holds and whose neighbours among ``nodes`` are in the
    result, too."""
    inside, result = set(nodes), set[Node]()
    waiting = collections.deque(inside)
    while waiting:
        node = waiting.popleft()
        if node in result or not idle(node):  # type: ignore[operator]
            continue
        if all(n in result for n in neighbours(node) if n in inside):  # type: ignore[operator]
            result.add(node)
            waiting.extend(inside - result)
    return result


class _Merging:
    """The partitions during the merging."""

    def __init__(self) -> None:
        #: A dictionary keeps the order.
        self.partitions: dict[Partition, None] = {}
        self.home: dict[Node, Partition] = {}

    def add(self, partition: Partition) -> Partition:
        self.partitions[partition] = None
        self.home.update(dict.fromkeys(partition.nodes, partition))
        return partition

    def move(self, node: Node, to: Partition | None) -> None:
        """Move a node to another partition, or out of all of them."""
        here = self.home.get(node)
        if here is to:
            return
        if here is not None:
            here.remove_node(node)
            del self.home[node]
        if to is not None:
            to.add_node(node)
            self.home[node] = to

    def can_merge(self, a: Partition, b: Partition) -> bool:
        """Whether no path leaves the two partitions and returns."""
        inside = {id(a), id(b)}
        waiting = [user for p in (a, b) for node in p.nodes for user in node.users]
        waiting = [user for user in waiting if id(self.home.get(user)) not in inside]
        seen: set[object] = set()
        while waiting:
            node = waiting.pop()
            partition = self.home.get(node)
            if id(partition) in inside and partition is not None:
                return False
            key: object = node if partition is None else id(partition)
            if key in seen:
                continue
            seen.add(key)
            waiting += [u for n in ((node,) if partition is None else partition.nodes) for u in n.users]
        return True

    def merge(self, a: Partition, b: Partition) -> Partition:
        """Merge the smaller partition into the larger one, which is returned."""
        small, large = (a, b) if a.size() < b.size() else (b, a)
        large.nodes.update(small.nodes)
        self.home.update(dict.fromkeys(small.nodes, large))
        del self.partitions[small]
        return large

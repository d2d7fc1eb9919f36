"""Parts of a program on devices: how much memory they need, and how long they take."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from tenon.fx.node import Node

_HELD = ("placeholder", "get_attr")


class Partition:
    """A set of nodes for one device, or for several that each have a copy."""

    def __init__(self, partition_id: int) -> None:
        self.nodes: set[Node] = set()
        self.partition_id = partition_id
        #: Partitions whose results this one uses, and those that use its results.
        self.parents: set[Partition] = set()
        self.children: set[Partition] = set()
        #: The level in a breadth-first search from the partitions without parents; -1 if unknown.
        self.bfs_level = -1
        self.used_mem_bytes = 0
        self.logical_device_ids: list[int] = []

    def __str__(self) -> str:
        return str(self.partition_id)

    def recalculate_mem_size(self) -> None:
        """Set ``used_mem_bytes`` from the nodes."""
        self.used_mem_bytes = sum(get_extra_size_of(node, self.nodes) for node in self.nodes)

    def add_node(self, node: Node) -> None:
        """Add a node, with the arguments and attributes that it reads."""
        self.nodes.update(n for n in node.all_input_nodes if n.op in _HELD)
        self.nodes.add(node)
        self.recalculate_mem_size()

    def remove_node(self, node: Node) -> None:
        """Remove a node, with the arguments and attributes that only it reads here."""
        if node not in self.nodes:
            return
        self.nodes.remove(node)
        for used in node.all_input_nodes:
            if used.op in _HELD and not any(user in self.nodes for user in used.users):
                self.nodes.discard(used)
        self.recalculate_mem_size()


class Device(NamedTuple):
    """A device: its name, its memory, and a number for it."""

    name: str
    available_mem_bytes: int
    logical_id: int


class NodeLatency(NamedTuple):
    """The time in which one node moves data, and the time in which it computes."""

    mem_latency_sec: float
    computer_latency_sec: float


class PartitionLatency(NamedTuple):
    """Sums over a partition's slowest path; ``overall``: of the longer of both at each node."""

    mem_latency_sec: float
    computer_latency_sec: float
    overall_latency_sec: float


class PartitionMode(Enum):
    """How to divide a program."""

    size_based = 0
    sparse_nn = 1
    cost_aware = 2
    kl_based = 3
    aot_based = 4


class PartitionerConfig(NamedTuple):
    """The options of a ``Partitioner``."""

    devices: list[Device]
    mode: PartitionMode = PartitionMode.size_based
    #: For ``cost_aware`` and ``kl_based``.
    transfer_rate_bytes_per_sec: float = 0.0
    node_to_latency_mapping: Mapping[Node, NodeLatency] = MappingProxyType({})
    #: For ``aot_based``: where each node goes, and on which devices each partition is.
    node_to_partition_mapping: Mapping[Node, int] = MappingProxyType({})
    partition_to_logical_device_mapping: Mapping[int, list[int]] = MappingProxyType({})
    #: Whether to replicate partitions on unused devices.
    saturate_host: bool = False


def get_extra_size_of(node: Node, nodes: set[Node]) -> int:
    """Return the bytes that ``node`` adds to ``nodes``: its own, and inputs that are not among them."""
    sizes: Any = node  # the attribute is set by graph_manipulation
    if getattr(node, "size_bytes", None) is None:
        raise RuntimeError(
            f"node {node.op}, {node.name} has no size_bytes: call"
            " graph_manipulation.get_size_of_all_nodes first."
        )
    total: int = sizes.size_bytes.total_size
    for used in node.all_input_nodes:
        if used not in nodes:
            source: Any = used  # of any type
            total += source.size_bytes.output_size
    return total


def get_latency_of_one_partition(
    partition: Partition, node_to_latency_mapping: Mapping[Node, NodeLatency]
) -> PartitionLatency:
    """Return the latency of the slowest path through a partition."""
    below: dict[Node, PartitionLatency] = {}

    def slowest(node: Node) -> PartitionLatency:
        if node not in below:
            own = node_to_latency_mapping[node]
            after = [slowest(user) for user in node.users if user in partition.nodes and user.op != "output"]
            rest = max(
                after, key=lambda each: each.overall_latency_sec, default=PartitionLatency(0.0, 0.0, 0.0)
            )
            below[node] = PartitionLatency(
                own.mem_latency_sec + rest.mem_latency_sec,
                own.computer_latency_sec + rest.computer_latency_sec,
                max(own) + rest.overall_latency_sec,
            )
        return below[node]

    first = [
        node
        for node in partition.nodes
        if node.op not in _HELD
        and not any(n in partition.nodes and n.op not in _HELD for n in node.all_input_nodes)
    ]
    paths = [slowest(node) for node in first]
    return max(paths, key=lambda each: each.overall_latency_sec, default=PartitionLatency(0.0, 0.0, 0.0))


def get_partition_to_latency_mapping(
    partitions: list[Partition], node_to_latency_mapping: Mapping[Node, NodeLatency]
) -> dict[Partition, PartitionLatency]:
    """Return the latency of each partition."""
    return {p: get_latency_of_one_partition(p, node_to_latency_mapping) for p in partitions}


def get_comm_latency_between(
    parent_partition: Partition, child_partition: Partition, transfer_rate_bytes_per_sec: float
) -> float:
    """Return the time to transfer the parent's results to the child; 0 if both are on the same devices."""
    devices = parent_partition.logical_device_ids
    if devices and devices == child_partition.logical_device_ids:
        return 0.0
    moved: dict[Node, Any] = {  # the attribute is set by graph_manipulation
        used: used
        for node in child_partition.nodes
        for used in node.all_input_nodes
        if used in parent_partition.nodes
    }
    size: int = sum(node.size_bytes.output_size for node in moved.values())
    return size / transfer_rate_bytes_per_sec


def get_latency_of_partitioned_graph(
    partitions: list[Partition],
    partition_to_latency_mapping: dict[Partition, PartitionLatency],
    transfer_rate_bytes_per_sec: float,
) -> float:
    """Return the latency of the slowest path through all partitions."""
    below: dict[Partition, float] = {}

    def slowest(partition: Partition) -> float:
        if partition not in below:
            rest = [
                get_comm_latency_between(partition, child, transfer_rate_bytes_per_sec) + slowest(child)
                for child in partition.children
            ]
            below[partition] = partition_to_latency_mapping[partition].overall_latency_sec + max(
                rest, default=0.0
            )
        return below[partition]

    return max((slowest(p) for p in partitions if not p.parents), default=0.0)

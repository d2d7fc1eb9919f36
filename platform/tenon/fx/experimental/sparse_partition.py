"""Partition a program with embeddings: each embedding is on one device, everything else is replicated on
all."""

from __future__ import annotations

from tenon.fx.experimental.partition_graph import (
    combine_two_partitions,
    get_bfs_level_partition,
    get_node_to_partition_mapping,
    reorganize_partitions,
    set_parents_and_children,
)
from tenon.fx.experimental.partitioner_utils import Device, Partition, get_extra_size_of
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node


class SparsePartition:
    """Mixin of ``Partitioner`` with the algorithm for programs with embeddings."""

    partitions: list[Partition]
    node_to_partition: dict[Node, int]
    devices: list[Device]
    graph_module: GraphModule

    def create_partition(self) -> Partition:
        """Append an empty partition and return it."""
        raise NotImplementedError

    def sparse_nn_partition(self, available_mem_bytes: int) -> None:
        """Partition a program whose embeddings need more memory than a device has.

        RuntimeError if there are more partitions of embeddings than devices, or if the rest does not fit
        beside one.
        """
        embeddings: list[Partition] = []
        rest: list[Partition] = []
        modules = dict(self.graph_module.named_modules())
        current: Partition | None = None
        inside = False
        for node in self.graph_module.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            embedding = node.op == "call_module" and "Embedding" in type(modules[str(node.target)]).__name__
            if current is not None and embedding is inside:
                extra = get_extra_size_of(node, current.nodes)
                fits = extra + current.used_mem_bytes <= available_mem_bytes
            else:
                fits = False
            if not fits:
                current, inside = self.create_partition(), embedding
                (embeddings if embedding else rest).append(current)
                if get_extra_size_of(node, current.nodes) > available_mem_bytes:
                    raise RuntimeError(f"{node.target} is too large to fit into a device")
            assert current is not None
            current.add_node(node)
        set_parents_and_children(self.partitions)
        rest = self._combined(rest, available_mem_bytes)
        embeddings = self._combined(embeddings, available_mem_bytes)
        self._place(embeddings, rest, available_mem_bytes)
        reorganize_partitions(self.partitions)
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)

    def _combined(self, some: list[Partition], available: int) -> list[Partition]:
        """Merge the smallest partitions into others as long as one has enough memory left."""
        some = list(some)
        while True:
            get_bfs_level_partition(self.partitions)
            pair = _pair(sorted(some, key=lambda p: p.used_mem_bytes), available)
            if pair is None:
                return some
            combine_two_partitions(*pair, self.partitions)
            some = [p for p in some if p not in pair] + [self.partitions[-1]]

    def _place(self, embeddings: list[Partition], rest: list[Partition], available: int) -> None:
        if len(embeddings) > len(self.devices):
            raise RuntimeError(
                f"Need {len(embeddings)} devices, one for each partition of embeddings;"
                f" there are {len(self.devices)}."
            )
        shared = sum(p.used_mem_bytes for p in rest)
        used: list[int] = []
        for device, partition in zip(self.devices, embeddings, strict=False):
            if shared + partition.used_mem_bytes > available:
                raise RuntimeError(
                    f"partition {partition} of embeddings has {partition.used_mem_bytes} bytes, the other"
                    f" nodes have {shared}: together they do not fit into the {available} of a device."
                )
            partition.logical_device_ids = [device.logical_id]
            used.append(device.logical_id)
        for partition in rest:
            partition.logical_device_ids = used or [self.devices[0].logical_id]


def _pair(by_size: list[Partition], available: int) -> tuple[Partition, Partition] | None:
    """Return the largest partition that can take the smallest one, and the smallest one; None if there is
    none."""
    if len(by_size) < 2:
        return None
    smallest, *others = by_size
    for other in reversed(others):
        if abs(smallest.bfs_level - other.bfs_level) > 1:
            continue
        nodes = smallest.nodes | other.nodes
        if sum(get_extra_size_of(node, nodes) for node in nodes) <= available:
            return other, smallest
    return None

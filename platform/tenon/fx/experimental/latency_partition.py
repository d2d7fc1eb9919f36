"""Partition a program for low latency: combine partitions, or exchange nodes, as long as the latency
falls."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from tenon.fx.experimental.partition_graph import (
    check_dependency,
    combine_two_partitions,
    get_bfs_level_partition,
    get_device_to_partitions_mapping,
    get_node_to_partition_mapping,
    reorganize_partitions,
    reset_partition_device,
    set_parents_and_children,
)
from tenon.fx.experimental.partitioner_utils import (
    Device,
    NodeLatency,
    Partition,
    get_latency_of_partitioned_graph,
    get_partition_to_latency_mapping,
)
from tenon.fx.node import Node


class LatencyPartition:
    """Mixin of ``Partitioner`` with the algorithms that minimise latency."""

    partitions: list[Partition]
    node_to_partition: dict[Node, int]
    devices: list[Device]

    def create_single_node_partition(self, node: Node) -> None:
        """Append a partition of one node."""
        raise NotImplementedError

    def _computing(self) -> list[Node]:
        raise NotImplementedError

    def cost_aware_partition(
        self, transfer_rate_bytes_per_sec: float, node_to_latency_mapping: Mapping[Node, NodeLatency]
    ) -> None:
        """Begin with one partition per node; repeatedly combine the pair that lowers the latency most."""
        for node in self._computing():
            self.create_single_node_partition(node)
        reorganize_partitions(self.partitions)
        get_bfs_level_partition(self.partitions)
        while len(self.partitions) > 1:
            best, chosen = (
                self._cost(self.partitions, transfer_rate_bytes_per_sec, node_to_latency_mapping),
                None,
            )
            for i, j in itertools.combinations(range(len(self.partitions)), 2):
                trial = _copies(self.partitions)
                if not _may_combine(trial[i], trial[j]):
                    continue
                combine_two_partitions(trial[i], trial[j], trial)
                if check_dependency(trial[-1]):
                    continue
                cost = self._cost(trial, transfer_rate_bytes_per_sec, node_to_latency_mapping)
                if cost <= best and cost != float("inf"):
                    best, chosen = cost, (i, j)
            if chosen is None:
                break
            i, j = chosen
            combine_two_partitions(self.partitions[i], self.partitions[j], self.partitions)
            get_bfs_level_partition(self.partitions)
        self._assign_devices()

    def kl_based_partition(
        self, transfer_rate_bytes_per_sec: float, node_to_latency_mapping: Mapping[Node, NodeLatency]
    ) -> None:
        """Begin as ``cost_aware``, then move or exchange nodes between partitions as long as that lowers
        the latency."""
        self.cost_aware_partition(transfer_rate_bytes_per_sec, node_to_latency_mapping)
        improved = True
        while improved:
            improved = False
            best = self._cost(self.partitions, transfer_rate_bytes_per_sec, node_to_latency_mapping)
            for p, q in itertools.permutations(range(len(self.partitions)), 2):
                for node in _movable(self.partitions[p]):
                    for other in [None, *_movable(self.partitions[q])]:
                        trial = _copies(self.partitions)
                        _exchange(trial[p], trial[q], node, other)
                        if not trial[p].nodes or not trial[q].nodes:
                            continue
                        reorganize_partitions(trial)
                        if any(map(check_dependency, trial)):
                            continue
                        cost = self._cost(trial, transfer_rate_bytes_per_sec, node_to_latency_mapping)
                        if cost < best:
                            self.partitions, best, improved = trial, cost, True
                            break
                    if improved:
                        break
                if improved:
                    break
        self._assign_devices()

    def _cost(self, partitions: list[Partition], rate: float, latencies: Mapping[Node, NodeLatency]) -> float:
        """Return the latency of a partitioning; infinity if it does not fit the devices."""
        reset_partition_device(partitions)
        if not get_device_to_partitions_mapping(partitions, self.devices):
            return float("inf")
        mapping = get_partition_to_latency_mapping(partitions, latencies)
        return get_latency_of_partitioned_graph(partitions, mapping, rate)

    def _assign_devices(self) -> None:
        reorganize_partitions(self.partitions)
        reset_partition_device(self.partitions)
        if not get_device_to_partitions_mapping(self.partitions, self.devices):
            raise RuntimeError(
                "Cannot Get a Valid Partition to Logical Device Mapping: the devices are too small."
            )
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)


def _copies(partitions: list[Partition]) -> list[Partition]:
    result: list[Partition] = []
    for partition in partitions:
        copied = Partition(partition.partition_id)
        copied.nodes, copied.bfs_level = set(partition.nodes), partition.bfs_level
        copied.used_mem_bytes = partition.used_mem_bytes
        result.append(copied)
    set_parents_and_children(result)
    return result


def _may_combine(a: Partition, b: Partition) -> bool:
    """Whether two partitions are connected, or on adjacent levels."""
    return abs(a.bfs_level - b.bfs_level) <= 1 or b in a.parents or b in a.children


def _movable(partition: Partition) -> list[Node]:
    return [node for node in sorted(partition.nodes) if node.op not in ("placeholder", "get_attr")]


def _exchange(a: Partition, b: Partition, node: Node, other: Node | None) -> None:
    a.remove_node(node)
    b.add_node(node)
    if other is not None:
        b.remove_node(other)
        a.add_node(other)

"""``Partitioner``: divide a program into parts for devices, by memory or by latency."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping
from typing import NamedTuple

from tenon.fx.experimental.latency_partition import LatencyPartition
from tenon.fx.experimental.partition_graph import (
    check_dependency,
    combine_two_partitions,
    get_bfs_level_partition,
    get_device_partition_stats,
    get_device_to_partitions_mapping,
    get_logical_id_to_device,
    get_node_to_partition_mapping,
    reorganize_partitions,
    reset_partition_device,
    set_parents_and_children,
)
from tenon.fx.experimental.partitioner_utils import (
    Device,
    Partition,
    PartitionerConfig,
    PartitionMode,
    get_extra_size_of,
)
from tenon.fx.experimental.sparse_partition import SparsePartition
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.split_module import split_module
from tenon.nn.module import Module

__all__ = [
    "DAG",
    "DAGNode",
    "PartitionResult",
    "Partitioner",
    "check_dependency",
    "combine_two_partitions",
    "get_bfs_level_partition",
    "get_device_partition_stats",
    "get_device_to_partitions_mapping",
    "get_logical_id_to_device",
    "get_node_to_partition_mapping",
    "reorganize_partitions",
    "reset_partition_device",
    "set_parents_and_children",
]

_NOTHING_COMPUTED = ("placeholder", "get_attr", "output")


class DAGNode:
    """One submodule of a partitioned program: its inputs and outputs, its devices, its size."""

    def __init__(
        self,
        submodule_node: Node,
        input_nodes: list[Node],
        output_nodes: list[Node],
        logical_device_ids: list[int],
        size_bytes: int,
    ) -> None:
        self.submodule_node = submodule_node
        self.input_nodes = input_nodes
        self.output_nodes = output_nodes
        self.logical_device_ids = logical_device_ids
        self.size_bytes = size_bytes

    def __str__(self) -> str:
        return str(self.submodule_node)


class DAG:
    """The submodules of a divided program, in order."""

    def __init__(self) -> None:
        self.nodes: list[DAGNode] = []

    def create_node(
        self,
        submodule_node: Node,
        input_nodes: list[Node],
        output_nodes: list[Node],
        logical_devices: list[int],
        size_bytes: int,
    ) -> None:
        """Append a submodule."""
        self.nodes.append(DAGNode(submodule_node, input_nodes, output_nodes, logical_devices, size_bytes))


class PartitionResult(NamedTuple):
    """The submodules, and the module that calls them."""

    dag: DAG
    module_with_submodules: GraphModule


class Partitioner(SparsePartition, LatencyPartition):
    """Partitions a traced program whose nodes have ``size_bytes``
    (``graph_manipulation.get_size_of_all_nodes``).

    A program that fits on the largest device stays whole. Otherwise ``PartitionerConfig.mode`` selects the
    algorithm: ``size_based`` fills one device after the other; ``sparse_nn`` keeps embeddings apart from what
    is computed on all devices; ``cost_aware`` and ``kl_based`` minimise the latency; ``aot_based`` uses the
    partitions of the configuration.
    """

    def __init__(self) -> None:
        self.partitions: list[Partition] = []
        self.node_to_partition: dict[Node, int] = {}
        self.devices: list[Device] = []

    def partition_graph(
        self, fx_module: GraphModule, torch_module: Module, partitioner_config: PartitionerConfig
    ) -> PartitionResult:
        """Partition ``fx_module``; RuntimeError if the devices do not have enough memory."""
        self.graph_module, self.torch_module = fx_module, torch_module
        self.devices = partitioner_config.devices
        if not self.devices:
            raise RuntimeError("No devices: partitioner_config.devices is empty.")
        nodes = set(self.graph_module.graph.nodes)
        total = sum(get_extra_size_of(node, nodes) for node in nodes if node.op != "output")
        largest = max(self.devices, key=lambda device: device.available_mem_bytes)
        if partitioner_config.mode is PartitionMode.aot_based:
            self.aot_based_partition(
                partitioner_config.node_to_partition_mapping,
                partitioner_config.partition_to_logical_device_mapping,
            )
        elif total <= largest.available_mem_bytes:
            self.find_single_partition(total, logical_device_id=largest.logical_id)
        elif total > sum(device.available_mem_bytes for device in self.devices):
            raise RuntimeError(
                f"Devices have no enough memory for the module: it needs {total} bytes, they have"
                f" {sum(device.available_mem_bytes for device in self.devices)}."
            )
        else:
            self._divide(partitioner_config)
        if partitioner_config.saturate_host:
            self.saturate_host()
        divided = self.do_partition()
        return PartitionResult(self.dump_dag(divided), divided)

    def _divide(self, config: PartitionerConfig) -> None:
        if config.mode is PartitionMode.sparse_nn:
            sizes = {device.available_mem_bytes for device in self.devices}
            if len(sizes) > 1:
                raise RuntimeError(
                    f"All devices must have same memory size! They have {sorted(sizes)} bytes."
                )
            self.sparse_nn_partition(sizes.pop())
        elif config.mode is PartitionMode.cost_aware:
            self.cost_aware_partition(config.transfer_rate_bytes_per_sec, config.node_to_latency_mapping)
        elif config.mode is PartitionMode.kl_based:
            self.kl_based_partition(config.transfer_rate_bytes_per_sec, config.node_to_latency_mapping)
        else:
            self.size_based_partition()

    def _computing(self) -> list[Node]:
        return [node for node in self.graph_module.graph.nodes if node.op not in _NOTHING_COMPUTED]

    def find_single_partition(self, total_size_of_graph: int, logical_device_id: int = 0) -> None:
        """Put the whole program on one device."""
        partition = self.create_partition()
        for node in self.graph_module.graph.nodes:
            if node.op != "output":
                partition.nodes.add(node)
        partition.used_mem_bytes = total_size_of_graph
        partition.logical_device_ids = [logical_device_id]
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)

    def size_based_partition(self) -> None:
        """Fill one device after the other, in the order of the nodes."""
        occupied: set[Device] = set()
        left = 0
        partition: Partition | None = None
        for node in self._computing():
            if partition is not None and get_extra_size_of(node, partition.nodes) <= left:
                pass
            elif len(occupied) == len(self.devices):
                self.create_single_node_partition(node)
                continue
            else:
                device = self._free_device(node, occupied)
                occupied.add(device)
                partition = self.create_partition()
                partition.logical_device_ids.append(device.logical_id)
                left = device.available_mem_bytes
            left -= get_extra_size_of(node, partition.nodes)
            partition.add_node(node)
        reorganize_partitions(self.partitions)
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)
        if not get_device_to_partitions_mapping(self.partitions, self.devices):
            raise RuntimeError(
                "Cannot Get a Valid Partition to Logical Device Mapping: the devices are too small."
            )

    def _free_device(self, node: Node, occupied: set[Device]) -> Device:
        size = get_extra_size_of(node, set())
        for device in self.devices:
            if device not in occupied and device.available_mem_bytes >= size:
                return device
        raise RuntimeError(f"{node} is too large to fit any device: it needs {size} bytes.")

    def saturate_host(self) -> None:
        """Replicate all partitions on unused devices, as often as there are enough for all."""
        free = [
            d for d in self.devices if not any(d.logical_id in p.logical_device_ids for p in self.partitions)
        ]
        on, _, _ = get_device_partition_stats(self.partitions, self.devices)
        groups = [(device, parts) for device, parts in on.items() if parts]
        while True:
            chosen: list[Device] = []
            for _, parts in sorted(groups, key=lambda g: -sum(p.used_mem_bytes for p in g[1])):
                need = sum(p.used_mem_bytes for p in parts)
                fits = [d for d in free if d not in chosen and d.available_mem_bytes >= need]
                if not fits:
                    return
                chosen.append(min(fits, key=lambda d: d.available_mem_bytes))
            ordered = sorted(groups, key=lambda g: -sum(p.used_mem_bytes for p in g[1]))
            for (_, parts), device in zip(ordered, chosen, strict=True):
                for partition in parts:
                    partition.logical_device_ids.append(device.logical_id)
            free = [d for d in free if d not in chosen]

    def do_partition(self) -> GraphModule:
        """Return the module that calls a submodule for each partition."""
        return split_module(self.graph_module, self.torch_module, lambda node: self.node_to_partition[node])

    def dump_dag(self, module_with_submodules: GraphModule) -> DAG:
        """Return the submodules with their devices and sizes."""
        dag = DAG()
        for node in module_with_submodules.graph.nodes:
            if node.op in _NOTHING_COMPUTED or node.target is operator.getitem:
                continue
            outputs = list(node.users) if len(node.users) > 1 else [node]
            partition = self.partitions[int(node.name.rsplit("_", 1)[-1])]
            dag.create_node(
                node, node.all_input_nodes, outputs, partition.logical_device_ids, partition.used_mem_bytes
            )
        return dag

    def create_partition(self) -> Partition:
        """Append an empty partition and return it."""
        partition = Partition(len(self.partitions))
        self.partitions.append(partition)
        return partition

    def create_single_node_partition(self, node: Node) -> None:
        """Append a partition of one node."""
        self.create_partition().add_node(node)

    def aot_based_partition(
        self,
        node_to_partition_mapping: Mapping[Node, int],
        partition_to_logical_device_mapping: Mapping[int, list[int]],
    ) -> None:
        """Partition the program by the given mappings."""
        self.node_to_partition = dict(node_to_partition_mapping)
        numbers = itertools.chain(partition_to_logical_device_mapping, node_to_partition_mapping.values())
        by_number: dict[int, Partition] = {}
        for number in sorted(set(numbers)):
            by_number[number] = Partition(number)
            by_number[number].logical_device_ids = partition_to_logical_device_mapping[number]
        for node, number in node_to_partition_mapping.items():
            by_number[number].add_node(node)
        self.partitions = list(by_number.values())
        set_parents_and_children(self.partitions)
        reset = [p for p in self.partitions if check_dependency(p)]
        if reset:
            raise RuntimeError(
                f"partitions {[p.partition_id for p in reset]} need their own results through others."
            )

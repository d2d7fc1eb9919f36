"""Partitions as a graph: their dependencies, which can be combined, and the devices they fit on."""

from __future__ import annotations

from collections.abc import Iterable

from tenon.fx.experimental.partitioner_utils import Device, Partition, get_extra_size_of
from tenon.fx.node import Node


def reset_partition_device(partitions: list[Partition]) -> None:
    """Remove all partitions from their devices."""
    for partition in partitions:
        partition.logical_device_ids = []


def set_parents_and_children(partitions: list[Partition]) -> None:
    """Set the parents and children of partitions: those whose results they use, and those that use theirs."""
    for partition in partitions:
        partition.parents, partition.children = set(), set()
    for partition in partitions:
        users = {user for node in partition.nodes for user in node.users}
        for other in partitions:
            if other is not partition and any(
                user in other.nodes and not _shared(user, partition, other) for user in users
            ):
                partition.children.add(other)
                other.parents.add(partition)


def _shared(user: Node, partition: Partition, other: Partition) -> bool:
    """Whether all that ``user`` takes from ``partition`` is in ``other`` as well: arguments and
    attributes."""
    return all(n in other.nodes for n in user.all_input_nodes if n in partition.nodes)


def reorganize_partitions(partitions: list[Partition]) -> None:
    """Renumber the partitions, and set their parents and children."""
    for number, partition in enumerate(partitions):
        partition.partition_id = number
    set_parents_and_children(partitions)


def combine_two_partitions(
    partition_0: Partition, partition_1: Partition, partitions: list[Partition]
) -> None:
    """Replace two partitions by their union, which is appended to the list."""
    combined = Partition(len(partitions))
    combined.nodes = partition_0.nodes | partition_1.nodes
    combined.recalculate_mem_size()
    partitions.append(combined)
    partitions.remove(partition_0)
    partitions.remove(partition_1)
    reorganize_partitions(partitions)


def get_bfs_level_partition(partitions: list[Partition]) -> None:
    """Set the level of each partition: the length of the longest path to it."""
    current = {p for p in partitions if not p.parents}
    level = 0
    while current and level <= len(partitions):
        following: set[Partition] = set()
        for partition in current:
            partition.bfs_level = level
            following |= partition.children
        current, level = following, level + 1


def get_node_to_partition_mapping(partitions: list[Partition]) -> dict[Node, int]:
    """Return the number of the partition that each node is in."""
    return {node: partition.partition_id for partition in partitions for node in partition.nodes}


def get_logical_id_to_device(devices: list[Device]) -> dict[int, Device]:
    """Return the devices by their numbers."""
    return {device.logical_id: device for device in devices}


def get_device_partition_stats(
    partitions: list[Partition], devices: list[Device]
) -> tuple[dict[Device, list[Partition]], dict[Device, int], list[Partition]]:
    """Return the partitions and the free memory of each device, and the partitions without a device."""
    by_number = get_logical_id_to_device(devices)
    on: dict[Device, list[Partition]] = {device: [] for device in devices}
    unassigned: list[Partition] = []
    for partition in partitions:
        if not partition.logical_device_ids:
            unassigned.append(partition)
        for number in partition.logical_device_ids:
            on[by_number[number]].append(partition)
    left = {device: device.available_mem_bytes - _needed(on[device]) for device in devices}
    return on, left, unassigned


def _needed(partitions: Iterable[Partition]) -> int:
    """Return the memory that partitions need together on one device."""
    nodes = {node for partition in partitions for node in partition.nodes}
    return sum(get_extra_size_of(node, nodes) for node in nodes)


def get_device_to_partitions_mapping(partitions: list[Partition], devices: list[Device]) -> bool:
    """Assign each partition without a device to one with enough free memory; return whether all could be
    assigned."""
    on, _, unassigned = get_device_partition_stats(partitions, devices)
    for partition in unassigned:
        device = next(
            (d for d in devices if _needed([*on[d], partition]) <= d.available_mem_bytes),
            None,
        )
        if device is None:
            return False
        on[device].append(partition)
        partition.logical_device_ids.append(device.logical_id)
    return True


def check_dependency(partition: Partition) -> bool:
    """Whether ``partition`` depends on itself through others."""
    seen, waiting = {partition}, list(partition.children)
    while waiting:
        other = waiting.pop()
        if other is partition:
            return True
        if other not in seen:
            seen.add(other)
            waiting += other.children
    return False

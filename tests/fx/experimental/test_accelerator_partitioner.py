"""Dividing a program between devices."""

import pytest

import tenon
from tenon import nn
from tenon.fx import symbolic_trace
from tenon.fx.experimental.accelerator_partitioner import Partitioner
from tenon.fx.experimental.partitioner_utils import (
    Device,
    NodeLatency,
    PartitionerConfig,
    PartitionMode,
    get_latency_of_partitioned_graph,
    get_partition_to_latency_mapping,
)
from tenon.fx.passes.graph_manipulation import get_size_of_all_nodes


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.constant = tenon.rand(4)

    def forward(self, a):
        first = a + self.constant
        return self.linear(first) + (first * self.constant)


def devices(*sizes):
    return [Device(f"dev_{k}", size, k) for k, size in enumerate(sizes)]


def divide(*sizes, net=None, inputs=None, **config):
    net = net or Net()
    inputs = inputs or [tenon.rand(4)]
    traced = symbolic_trace(net)
    get_size_of_all_nodes(traced, inputs)
    if config.pop("latencies", False):
        config["node_to_latency_mapping"] = {
            node: NodeLatency(node.size_bytes.total_size, 1.0)
            for node in traced.graph.nodes
            if node.op not in ("placeholder", "get_attr", "output")
        }
    partitioner = Partitioner()
    result = partitioner.partition_graph(traced, net, PartitionerConfig(devices(*sizes), **config))
    assert result.module_with_submodules(*inputs).equal(traced(*inputs))
    return partitioner, result


def test_what_fits_on_the_largest_device_stays_whole():
    _, result = divide(100, 1000, 200)

    assert [node.logical_device_ids for node in result.dag.nodes] == [[1]]


def test_devices_are_filled_one_after_the_other():
    partitioner, result = divide(60, 130, 130)

    assert [node.logical_device_ids for node in result.dag.nodes] == [[0], [1], [2]]
    assert all(
        p.used_mem_bytes <= d.available_mem_bytes
        for p, d in zip(partitioner.partitions, partitioner.devices, strict=True)
    )


def test_too_little_memory_is_refused():
    with pytest.raises(
        RuntimeError, match=r"Devices have no enough memory for the module: it needs \d+ bytes"
    ):
        divide(40, 40)
    with pytest.raises(RuntimeError, match="linear is too large to fit any device"):
        divide(60, 60, 60, 60)


def test_partitions_are_copied_to_free_devices():
    _, result = divide(1000, 1000, 1000, saturate_host=True)

    assert [sorted(node.logical_device_ids) for node in result.dag.nodes] == [[0, 1, 2]]


@pytest.mark.parametrize("mode", [PartitionMode.cost_aware, PartitionMode.kl_based])
def test_latency_decides(mode):
    partitioner, _ = divide(130, 130, 130, mode=mode, transfer_rate_bytes_per_sec=2.0, latencies=True)

    latencies = {
        n: NodeLatency(n.size_bytes.total_size, 1.0) for p in partitioner.partitions for n in p.nodes
    }
    each = get_partition_to_latency_mapping(partitioner.partitions, latencies)
    total = get_latency_of_partitioned_graph(partitioner.partitions, each, 2.0)
    # Moving 16 bytes takes as long as half of an addition: nothing is gained by more partitions than memory needs.
    assert total <= sum(latency.overall_latency_sec for latency in each.values()) + 8.0 * len(each)


def test_a_division_can_be_given():
    net = Net()
    traced = symbolic_trace(net)
    get_size_of_all_nodes(traced, [tenon.rand(4)])
    calls = [n for n in traced.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
    config = PartitionerConfig(
        devices(1000),
        PartitionMode.aot_based,
        node_to_partition_mapping={node: k // 2 for k, node in enumerate(calls)},
        partition_to_logical_device_mapping={0: [0], 1: [0]},
    )

    result = Partitioner().partition_graph(traced, net, config)

    assert [n.logical_device_ids for n in result.dag.nodes] == [[0], [0]]


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(50, 4, mode="sum") for _ in range(3))
        self.top = nn.Linear(12, 2)

    def forward(self, ids, offsets):
        return self.top(tenon.cat([table(ids, offsets) for table in self.tables], 1))


def test_embeddings_are_spread_and_the_rest_is_everywhere():
    ids, offsets = tenon.randint(0, 50, (6,)), tenon.tensor([0, 3])
    _, result = divide(
        1300, 1300, 1300, net=Recommender(), inputs=[ids, offsets], mode=PartitionMode.sparse_nn
    )

    placed = [node.logical_device_ids for node in result.dag.nodes]
    assert sorted(placed)[:1] == [[0]] and [0, 1, 2] in placed and len(placed) == 4

    with pytest.raises(
        RuntimeError, match=r"All devices must have same memory size! They have \[1300, 1400\]"
    ):
        divide(1300, 1400, 1300, net=Recommender(), inputs=[ids, offsets], mode=PartitionMode.sparse_nn)

"""The tab Graphs: what is written of a model, read back with TensorBoard's own reader."""

import itertools

import pytest

import tenon
from tenon import nn
from tenon.errors import CaptureError
from tenon.profiler import profile, schedule, tensorboard_trace_handler
from tenon_tensorboard.graph import ModelGraph
from tenon_tensorboard.times import times_of
from tenon_tensorboard.writer import RunWriter

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        return self.linear(self.body(self.shared(self.shared(x)))) * 2


def read(folder):
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return found


def inputs_of(node):
    return [name.partition(":")[0] for name in node.input]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run with the graph of a profiled model, and the profile's file."""
    folder = tmp_path_factory.mktemp("graph")
    model, x = Net(), tenon.randn(16, 8)
    ready = tensorboard_trace_handler(folder)
    with profile(schedule=schedule(wait=0, warmup=1, active=2, repeat=1), on_trace_ready=ready) as prof:
        for _ in range(3):
            model(x).sum().backward()
            prof.step()
    (trace,) = folder.glob("*.pt.trace.json")
    writer = RunWriter(folder)
    writer.graph(ModelGraph(model, x), times_of(trace))
    writer.close()
    return folder, trace


def test_every_op_is_a_node_under_its_module_and_every_edge_resolves(written):
    nodes = {node.name: node for node in read(written[0]).Graph().node}

    assert len(nodes) == len(read(written[0]).Graph().node)
    assert all(name in nodes for node in nodes.values() for name in inputs_of(node))
    assert inputs_of(nodes["Net/shared/linear_1"])[0] == "Net/shared/linear"
    assert inputs_of(nodes["Net/shared/linear"]) == [
        "input/x",
        "Net/shared/weight",
        "Net/shared/bias",
    ]
    assert nodes["Net/shared/weight"].op == "Parameter"
    assert nodes["Net/body/0/running_mean"].op == "Buffer"
    assert inputs_of(nodes["output/0"]) == ["Net/mul"]
    groups = {name.rpartition("/")[0] for name in nodes}
    assert not groups & set(nodes)


def test_a_captured_graph_is_shown_as_it_is():
    graph = tenon.export.capture(Net().eval(), tenon.randn(16, 8))

    nodes = {node.name: node for node in ModelGraph(graph).definition().node}

    assert inputs_of(nodes["CapturedGraph/shared/linear"])[0] == "input/x"
    assert nodes["CapturedGraph/shared/weight"].op == "Parameter"
    assert sum(node.op == "linear" for node in nodes.values()) == 3


def test_edges_carry_shapes(written):
    nodes = {node.name: node for node in read(written[0]).Graph().node}

    (shape,) = nodes["Net/linear/linear"].attr["_output_shapes"].list.shape

    assert [dim.size for dim in shape.dim] == [16, 3]
    assert nodes["Net/linear/linear"].attr["T"].s == b"float32"


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_times_of_the_nodes_are_those_of_the_profile(written, phase):
    folder, trace = written
    (device,) = read(folder).RunMetadata(phase).step_stats.dev_stats

    stats = {node.node_name: node for node in device.node_stats}
    names = {node.name for node in read(folder).Graph().node}
    measured = times_of(trace)[phase]

    assert set(stats) < names
    # Without what evaluation leaves out: dropout.
    expected = sum(time for (module, _), time in measured.items() if module != "Net.body.2")
    assert sum(node.all_end_rel_micros for node in stats.values()) == pytest.approx(
        expected, abs=2 * len(stats)
    )
    assert all(stats[f"Net/{name}"].all_end_rel_micros > 0 for name in ("shared/linear", "linear/linear"))
    ends = [
        (node.all_start_micros, node.all_start_micros + node.all_end_rel_micros) for node in stats.values()
    ]
    assert ends[0][0] > 0 and all(a[1] <= b[0] for a, b in itertools.pairwise(ends))


def test_nothing_of_the_model_changes_and_no_random_number_is_drawn():
    model, x = Net(), tenon.randn(16, 8)
    model.body[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = tenon.get_rng_state()

    ModelGraph(model, x)

    assert all((value == before[name]).all() for name, value in model.state_dict().items())
    assert (tenon.get_rng_state() == state).all()
    assert model.training and model.body[2].training and not model.body[0].training


def test_a_model_that_cannot_be_recorded_says_why_and_is_left_as_it_was():
    class Odd(nn.Linear):
        def forward(self, x):
            return super().forward(x)[x[:, 0] > 0]

    model = Odd(3, 2)

    with pytest.raises(CaptureError, match="depends on the data"):
        ModelGraph(model, tenon.randn(4, 3))

    assert model.training


@pytest.mark.slow
def test_a_profiled_run_has_the_graph_once_with_its_times(two_ranks):
    own, other = read(two_ranks), read(two_ranks / "rank_1")

    assert any(node.op == "linear" for node in own.Graph().node)
    assert set(own.Tags()["run_metadata"]) == {"forward", "backward"}
    assert all(read(two_ranks).RunMetadata(phase).step_stats.dev_stats for phase in ("forward", "backward"))
    assert not other.Tags()["graph"] and not other.Tags()["run_metadata"]

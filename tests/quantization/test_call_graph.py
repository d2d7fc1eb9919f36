"""``CallGraph``: which layer reads which, read off a captured run."""

import tenon
from tenon import extend, nn
from tenon.nn import functional as F
from tenon.quantization import StaticConv, StaticLinear
from tenon.quantization.call_graph import CallGraph


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.same, self.act = nn.Conv2d(1, 4, 3), nn.Identity(), nn.ReLU()
        self.inner, self.head = nn.Linear(36, 36), nn.Linear(36, 2)

    def forward(self, x):
        x = F.max_pool2d(self.act(self.same(self.conv(x))), 2).flatten(1)
        x = self.act(self.inner(x))
        return self.head(x + self.inner(x))


def test_readers_are_layers_ops_that_pass_values_on_and_others():
    model = Net().eval()

    graph = CallGraph(model, tenon.randn(2, 1, 8, 8))

    assert graph.readers["conv"] == ["same"] and graph.readers["same"] == ["act"]
    (pool,) = graph.readers["act"]
    (view,) = graph.readers[pool]
    assert graph.nodes[pool] is tenon.ops.max_pool and graph.nodes[view] is tenon.ops.reshape
    assert graph.readers[view] == ["inner"] and graph.readers["inner"] == ["act#2"]
    assert sorted(graph.readers["act#2"]) == ["", "inner#2"] and graph.readers["inner#2"] == [""]
    assert graph.readers["head"] == [""], "the output of the model"
    assert dict(graph.calls) == {"conv": 1, "same": 1, "act": 2, "inner": 2, "head": 1}
    assert graph.ranks["conv"] == 4 and graph.ranks["head"] == 2


def test_the_run_leaves_no_trace_in_the_model():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("calls", tenon.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.layer(x) + tenon.rand(4)

    model = Counting().eval()
    x, state = tenon.randn(2, 4), tenon.get_rng_state()

    CallGraph(model, x)

    assert model.calls.item() == 0
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert tenon.equal(tenon.get_rng_state(), state)


def test_shapes_and_branches_may_depend_on_values():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 2)

        def forward(self, x):
            y = self.conv(x).permute(0, 2, 3, 1)
            chosen = y[y.sum(-1) > 0]
            return self.head(chosen) if chosen.abs().max().item() > 0 else chosen

    tenon.manual_seed(0)
    model, x = Sparse().eval(), tenon.randn(2, 1, 8, 8)

    small = tenon.quantize(model, "int8", [x]).model

    assert (type(small.conv), type(small.head)) == (StaticConv, StaticLinear)
    assert small.conv.steps["out_step"] is None, "an index reads its result"


def test_values_of_tensors_are_known_while_a_graph_is_captured():
    seen = []
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    model[1].register_forward_hook(
        lambda module, args, output: seen.append(extend.captured_values((*args, output)))
    )

    graph = tenon.export.capture(model, tenon.randn(2, 4), as_run=True)
    model(tenon.randn(2, 4))

    (found, (given, made)), outside = seen
    assert found is graph and outside is None
    assert (given.node.name, made.node.name) == ("linear", "relu") and made == graph.outputs[0]

"""Tensors that ``forward`` assigns to attributes of modules: state of the graph, or caches that are not."""

import io

import pytest

import tenon
from tenon import jit, nn
from tenon.errors import CaptureError
from tenon.export import Runner, capture, export


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", tenon.zeros(3))
        self.hidden = tenon.ones(3)
        self.cache, self.steps = None, 0

    def forward(self, x):
        self.mean = 0.5 * self.mean + x.mean(0)
        self.hidden = self.hidden * 2 + self.mean
        if self.cache is None:
            self.cache = tenon.arange(3.0)
        self.last = x * self.hidden
        return self.last + self.cache


@pytest.mark.parametrize("dynamic", [None, {"x": {0: "batch"}}])
def test_assigned_state_is_written_and_the_module_stays_as_it_was(dynamic):
    model, x = Mean(), tenon.randn(4, 3)
    mean, hidden = model.mean, model.hidden

    graph = capture(model, x, dynamic=dynamic)

    assert {write.target.label for write in graph.writes} == {"mean", "hidden"}
    assert model.mean is mean and model.hidden is hidden and model.cache is None
    assert not hasattr(model, "last") and set(model._buffers) == {"mean"}
    runner = Runner(graph)
    for _ in range(3):
        y = tenon.randn(4, 3)
        assert tenon.allclose(runner(y), model(y))
    assert tenon.allclose(tenon.tensor(runner.state["mean"]), model.mean)


def test_assigned_buffers_are_mutated_by_programs_and_traces():
    x = tenon.randn(4, 3)
    program, traced, model = export(Mean(), (x,)), jit.trace(Mean(), x, check_trace=False), Mean()

    assert set(program.graph_signature.buffers_to_mutate.values()) == {"mean", "hidden"}
    loaded, run = jit.load(io.BytesIO(traced.save_to_buffer())), program.module()
    for _ in range(2):
        expected = model(x)
        for each in (run, traced, loaded):
            assert tenon.allclose(each(x), expected)


def test_buffers_to_which_gradients_flow_are_traced():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", tenon.zeros(3))

        def forward(self, x):
            self.total.add_(x.sum(0))
            self.total[:1].mul_(2)
            return x + self.total

    model, x = Sum(), tenon.randn(2, 3)
    traced = jit.trace(model, x, check_trace=False)
    assert not model.total.requires_grad and not model.total.any()
    assert tenon.allclose(traced(x), Sum()(x))


def test_a_buffer_that_becomes_another_shape_is_refused():
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", tenon.zeros(0, 3))

        def forward(self, x):
            self.seen = tenon.cat([self.seen, x])
            return self.seen

    model = Grows()
    with pytest.raises(
        CaptureError, match=r"the buffer 'seen' of Grows, of shape \[0, 3\].* \[2, 3\] .*at .*py:"
    ):
        capture(model, tenon.ones(2, 3))
    assert model.seen.shape == (0, 3)

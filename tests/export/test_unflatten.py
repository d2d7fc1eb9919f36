"""``unflatten``: a captured graph as a module with its layers, and all that can be done with such a module."""

import copy

import pytest

import tenon
from tenon import fx, nn
from tenon.errors import ArgumentError
from tenon.export import capture, export, load, save, unflatten, verify
from tenon.quantization import StaticConv, StaticLinear
from tenon.testing.suites.target_models import MODELS


class Net(nn.Module):
    """Convolutions with a norm, a residual sum, and a linear layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.inner = nn.Conv2d(8, 8, 3, padding=1)
        self.twice, self.head = nn.Linear(128, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = self.features(x)
        x = (x + self.inner(x).relu()).flatten(1)
        return self.head(self.twice(self.twice(x).relu()).relu())


@pytest.fixture
def net():
    tenon.manual_seed(0)
    return Net().eval()


@pytest.fixture
def x():
    tenon.manual_seed(1)
    return tenon.randn(4, 1, 8, 8)


def loaded(model, x, folder):
    save(export(model, (x,)), folder / "net.pt2")
    return unflatten(load(folder / "net.pt2"))


#: The forms in which a program travels, each a module again.
FORMS = {
    "fx": lambda model, x, folder: fx.symbolic_trace(model),
    "graph": lambda model, x, folder: unflatten(capture(model, x)),
    "program": lambda model, x, folder: unflatten(export(model, (x,))),
    "file": loaded,
}


@pytest.fixture(params=FORMS)
def traveller(request, net, x, tmp_path):
    return FORMS[request.param](net, x, tmp_path)


def test_layers_are_those_of_the_model_again(net, x):
    graph = capture(net, x)

    made = unflatten(graph)

    kinds = {path: type(layer) for path, layer in made.named_modules() if path and not layer._modules}
    assert kinds == {
        "features.0": nn.Conv2d, "features.1": nn.BatchNorm2d, "inner": nn.Conv2d, "twice": nn.Linear, "head": nn.Linear,
    }  # fmt: skip
    assert {k: tuple(v.shape) for k, v in made.state_dict().items()} == {
        k: tuple(v.shape) for k, v in net.state_dict().items()
    }
    assert sum(node.op == "call_module" and node.target == "twice" for node in made.graph.nodes) == 2
    assert repr(made.inner) == repr(net.inner) and not made.training
    assert made.head.weight is not net.head.weight, "it has copies"
    assert tenon.equal(made(x), net(x))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_computes_the_same_as_a_module_with_layers(name):
    example = MODELS[name]()
    with tenon.no_grad():
        expected = example.model(*example.args)

    made = unflatten(capture(example.model, *example.args))

    with tenon.no_grad():
        result = made(*example.args)
    for mine, own in zip(
        tenon.utils._pytree.tree_leaves(result), tenon.utils._pytree.tree_leaves(expected), strict=True
    ):
        assert tenon.equal(mine, own)


def test_weights_that_are_used_in_another_way_stay_ops():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.free = nn.Embedding(7, 4), nn.Linear(4, 4)
            self.bare = nn.Parameter(tenon.randn(4, 4))

        def forward(self, i):
            y = self.free(self.table(i)) @ self.bare
            return nn.functional.linear(y, self.table.weight), self.free.weight.sum()

    model, i = Tied().eval(), tenon.tensor([1, 5])

    made = unflatten(capture(model, i))

    assert not any(node.op == "call_module" for node in made.graph.nodes)
    assert made.state_dict().keys() == {"table.weight", "free.weight", "free.bias", "bare"}
    assert all(tenon.equal(mine, own) for mine, own in zip(made(i), model(i), strict=True))


def test_sizes_that_change_still_do(net, x):
    made = unflatten(capture(net, x, dynamic={"x": {0: "batch"}}))

    for count in (1, 4, 9):
        given = tenon.randn(count, 1, 8, 8)
        tenon.testing.assert_close(made(given), net(given))


def test_an_adapter_of_arguments_is_refused(net, x):
    with pytest.raises(ArgumentError, match="flat_args_adapter"):
        unflatten(export(net, (x,)), flat_args_adapter=object())


def test_what_travelled_is_compiled(net, x, traveller):
    step = tenon.compile(traveller, fullgraph=True)

    for _ in range(3):
        result = step(x)

    assert step.programs
    tenon.testing.assert_close(result, net(x))


def test_what_travelled_is_quantized_and_exported(net, x, traveller, tmp_path):
    small = tenon.quantize(traveller, "int8", [x]).model

    assert (type(small.inner), type(small.head)) == (StaticConv, StaticLinear)
    expected = net(x)
    assert (small(x) - expected).abs().max() < 0.05 * expected.abs().max()
    save(small.eval(), tmp_path / "bundle", (x,), targets=["numpy"])
    assert verify(tmp_path / "bundle").passed


def test_what_travelled_is_pruned_and_exported(net, x, traveller, tmp_path):
    again = copy.deepcopy(traveller)
    tenon.prune.mask_channels(traveller, x, 0.5)
    masked = traveller(x)

    tenon.prune.compact(traveller, x, seconds=0)

    assert traveller.head.weight.shape[1] < 128 and traveller.inner.weight.shape[0] < 8
    tenon.testing.assert_close(traveller(x), masked, rtol=1e-4, atol=1e-5)
    tenon.prune.load(again, traveller.state_dict())
    tenon.testing.assert_close(again(x), masked, rtol=1e-4, atol=1e-5)
    save(again, tmp_path / "bundle", (x,), targets=["numpy"])
    assert verify(tmp_path / "bundle").passed


def test_quantize_takes_a_graph_or_a_program_itself(net, x):
    for given in (capture(net, x), export(net, (x,))):
        small = tenon.quantize(given, "int8", [x]).model
        assert type(small.head) is StaticLinear


@pytest.mark.slow
def test_a_graph_of_the_pruned_and_quantized_model_is_what_targets_export(net, x, tmp_path):
    made = unflatten(capture(net, x))
    tenon.prune.mask_channels(made, x, 0.5)
    tenon.prune.compact(made, x, seconds=0)
    small = tenon.quantize(capture(made, x), "int8", [x]).model

    graph = capture(small, x)
    save(graph, tmp_path / "bundle", targets=["numpy", "c"])

    assert {"int8_conv", "int8_linear"} <= {node.name for node in graph.calls}
    assert verify(tmp_path / "bundle").passed

"""``capture``: the contents of the graph, its results, restored state, and errors."""

import dataclasses
import re

import pytest

import tenon
from tenon import nn
from tenon.errors import ArgumentError, CaptureError, DTypeError, ShapeError
from tenon.export import Runner, capture
from tenon.graph.interpreter import Interpreter
from tenon.nn import functional as F
from tenon.testing.suites.target_models import MODELS, DynamicNet, Net


@pytest.fixture(autouse=True)
def _seed():
    tenon.manual_seed(0)


def flat(value):
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("name", MODELS)
def test_a_captured_model_computes_what_the_model_computes(name):
    example = MODELS[name]()

    graph = capture(example.model, *example.args)

    with tenon.no_grad():
        expected = flat(example.model(*example.args))
    for mine, own in zip(flat(graph.run(*example.args)), expected, strict=True):
        assert tenon.equal(mine, own)


@pytest.mark.parametrize("name", MODELS)
def test_every_input_has_a_name_and_state_its_tensor(name):
    example = MODELS[name]()

    graph = capture(example.model, *example.args)

    assert len({node.label for node in graph.inputs}) == len(graph.inputs)
    assert [node.value for node in graph.arguments] == [None] * len(example.args)
    own = {**dict(example.model.named_parameters()), **dict(example.model.named_buffers())}
    for node in graph.states:
        assert node.value is own[node.label]
        assert graph.signature.states[node.label] == (
            "parameter" if isinstance(node.value, nn.Parameter) else "buffer"
        )
    assert {node.label for node in graph.states} | set(graph.signature.inputs) == {
        node.label for node in graph.inputs
    }


def test_the_text_names_modules_lines_and_parameters():
    net = Net().eval()

    text = str(capture(net, tenon.ones(2, 4)))

    assert text.splitlines()[0] == "%0: float32[2, 4] = input  # x"
    assert "float32[3, 4] = input  # l0.weight" in text
    assert re.search(r"= linear\(%0, %1, %2\)  # l0 .*target_models\.py:\d+", text) or "  # l0" in text
    assert text.splitlines()[-1].startswith("return %")


def test_loops_and_branches_are_followed_as_they_went():
    net = DynamicNet(5).eval()
    net.to(tenon.float32)

    leaky, plain = capture(net, tenon.ones(2, 4)), capture(net, tenon.ones(2, 4), "relu")

    assert [node.name for node in leaky.calls] == ["linear"] * 5 + ["leaky_relu", "linear"]
    assert [node.name for node in plain.calls] == ["linear"] * 5 + ["relu", "linear"]
    with pytest.raises(ArgumentError, match="captured with the plain argument 'relu', but was given 'lrelu'"):
        plain.run(tenon.ones(2, 4), "lrelu")


def test_a_branch_on_data_is_refused_with_file_and_line():
    def function(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(CaptureError, match=rf"dtype bool at {re.escape(__file__)}:\d+"):
        capture(function, tenon.ones(3))


def test_a_branch_on_data_is_kept_as_a_guard_on_request():
    def function(x):
        if x.sum() > 0:
            return x * 2
        return -x

    graph = capture(function, tenon.ones(3), guards=True)

    assert re.search(r"^guard .*%\d+.* is True  # .*test_capture\.py:\d+$", str(graph), re.M)
    assert graph.run(tenon.full((3,), 2.0)).tolist() == [4.0] * 3
    with pytest.raises(CaptureError, match=r"test_capture\.py:\d+: it was True .* and is False now"):
        graph.run(-tenon.ones(3))


def test_a_float_that_python_reads_is_refused_even_with_guards():
    with pytest.raises(CaptureError, match="guards=True keeps conditions on booleans and integers"):
        capture(lambda x: x * x.sum().item(), tenon.ones(3), guards=True)


def test_a_shape_that_depends_on_data_is_refused():
    with pytest.raises(CaptureError, match="depends on the data"):
        capture(lambda x: x[x > 0], tenon.ones(3))


def test_a_constant_may_decide():
    graph = capture(lambda x: x + 1 if tenon.ones(1).sum() > 0 else x, tenon.ones(3))

    assert [node.name for node in graph.calls] == ["add"]


def test_sequences_are_packed_and_padded_by_lengths_that_python_knows():
    lstm = nn.LSTM(3, 4, batch_first=True)

    def function(x):
        pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence
        packed = pack(x, [2, 4, 1], batch_first=True, enforce_sorted=False)
        return pad(lstm(packed)[0], batch_first=True, total_length=5)[0]

    graph = capture(function, tenon.randn(3, 5, 3))

    other = tenon.randn(3, 5, 3)
    assert tenon.equal(graph.run(other), function(other))


def test_state_and_generator_stay_as_they_were():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = tenon.get_rng_state()

    graph = capture(model, tenon.randn(5, 3, generator=tenon.Generator().manual_seed(1)))

    assert all(tenon.equal(value, before[name]) for name, value in model.state_dict().items())
    assert tenon.equal(tenon.get_rng_state(), state)
    assert sorted(write.target.label for write in graph.writes) == [
        "1.num_batches_tracked", "1.running_mean", "1.running_var",
    ]  # fmt: skip
    assert "dropout_mask" in [node.name for node in graph.calls]


def test_nests_of_arguments_and_results_are_kept():
    def function(batch, *, scale):
        return {"sum": batch["a"] + batch["b"][0], "scaled": (batch["a"] * scale, "text")}

    batch = {"a": tenon.ones(2), "b": [tenon.full((2,), 3.0)]}
    graph = capture(function, batch, kwargs={"scale": tenon.full((1,), 5.0)})

    assert graph.signature.inputs == ["batch.a", "batch.b.0", "scale"]
    result = graph.run(batch, scale=tenon.full((1,), 2.0))
    assert result["sum"].tolist() == [4.0, 4.0]
    assert result["scaled"][0].tolist() == [2.0, 2.0] and result["scaled"][1] == "text"
    with pytest.raises(ArgumentError, match=r"takes \(\{'a': \*, 'b': \[\*\]\}, scale=\*\), but was given"):
        graph.run(tenon.ones(2), scale=tenon.ones(1))


def test_an_argument_that_is_returned_or_passed_twice():
    x = tenon.arange(3.0)

    graph = capture(lambda a, b: (a, a - b), x, x)

    assert graph.signature.inputs == ["a", "b"]
    first, difference = graph.run(tenon.ones(3), tenon.full((3,), 3.0))
    assert first.tolist() == [1.0] * 3 and difference.tolist() == [-2.0] * 3


def test_wrong_arguments_are_named():
    graph = capture(lambda image: image * 2, tenon.ones(2, 3))

    with pytest.raises(ShapeError, match=r"argument 'image' has shape \[2, 4\], but \[2, 3\] was captured"):
        graph.run(tenon.ones(2, 4))
    with pytest.raises(DTypeError, match="argument 'image' has dtype int64, but float32"):
        graph.run(tenon.ones(2, 3, dtype=tenon.int64))
    with pytest.raises(
        ArgumentError, match=r"takes \(\*\), but was given \(\[\[\*, .*Pass arguments"
    ) as caught:
        graph.run(tenon.ones(200, 30).tolist())
    assert len(str(caught.value)) < 1000
    with pytest.raises(ArgumentError, match="does not take the 2 examples"):
        capture(Net(), tenon.ones(2, 4), tenon.ones(1))


def test_an_argument_that_is_changed_in_place_is_refused():
    def function(images):
        images.add_(1)
        return images

    example = tenon.ones(3)
    with pytest.raises(CaptureError, match=r"'images' is changed in place.*images\.clone\(\)"):
        capture(function, example)
    assert example.tolist() == [1.0, 1.0, 1.0]


def test_several_modules_are_distinguished_by_their_variables():
    encoder, decoder = nn.Linear(2, 3), nn.Linear(3, 2)

    graph = capture(lambda x: decoder(encoder(x)), tenon.ones(1, 2))

    assert [node.label for node in graph.states] == [
        "encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias",
    ]  # fmt: skip


def test_a_plain_tensor_of_a_module_is_named_by_its_attribute():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Module()
            self.inner.shift = [tenon.ones(2)][0]

        def forward(self, x):
            return x + self.inner.shift

    graph = capture(Shifted(), tenon.ones(2))

    assert graph.signature.states == {"inner.shift": "tensor"}


def test_a_lazy_module_makes_its_parameters_first():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU()).eval()

    graph = capture(model, tenon.ones(2, 5))

    assert [node.label for node in graph.states] == ["0.weight", "0.bias"]


def test_a_compiled_module_is_captured_like_the_module():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).eval()

    graph = capture(tenon.compile(model), tenon.ones(1, 3))

    assert [node.name for node in graph.calls] == ["linear", "relu"]


def test_an_error_of_the_function_leaves_no_recorder():
    def broken(x):
        x.add_(1)
        raise RuntimeError("broken")

    x = tenon.zeros(2)
    with pytest.raises(RuntimeError, match="broken"):
        capture(broken, x)
    assert x.tolist() == [0.0, 0.0]
    assert capture(lambda x: x + 1, x).run(x).tolist() == [1.0, 1.0]


def test_copies_can_be_changed_apart():
    graph = capture(Net().eval(), tenon.ones(2, 4))
    text = str(graph)

    copy = graph.copy()
    copy.nodes[-1].args = (copy.nodes[-1].args[0], *copy.nodes[-1].args[1:])
    copy.outputs.append(copy.calls[0].out())
    copy.calls[0].attrs["changed"] = True

    assert str(graph) == text and len(copy.outputs) == 2


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic", "int8-weights"])
def test_quantized_models(scheme):
    example = MODELS["digits"]()
    small, _ = tenon.quantize(example.model, scheme, [example.args[0]])

    graph = capture(small, *example.args)

    with tenon.no_grad():
        assert tenon.equal(graph.run(*example.args), small(*example.args))


def test_pruned_and_compacted_models():
    example = MODELS["digits"]()
    model, images = example.model, example.args[0]
    tenon.prune.mask_channels(model, images, 0.5)
    masked = capture(model, images)
    with tenon.no_grad():
        expected = model(images)
    assert tenon.equal(masked.run(images), expected)

    tenon.prune.compact(model, images, seconds=0.01)
    compacted = capture(model, images)

    assert tenon.allclose(compacted.run(images), expected, atol=1e-5)
    weights = [sum(node.avals[0].size for node in graph.states) for graph in (masked, compacted)]
    assert weights[1] < 0.7 * weights[0]


def test_functions_of_gradients_are_captured_in_train_mode():
    def slope(x):
        return tenon.autograd.grad(x.sin().sum(), x)[0]

    graph = capture(slope, tenon.ones(3).requires_grad_(), train=True)

    assert tenon.allclose(graph.run(tenon.arange(3.0)), tenon.arange(3.0).cos())


def test_runner_keeps_its_own_state():
    model = nn.BatchNorm1d(2)
    runner = Runner(capture(model, tenon.randn(4, 2)))

    runner(tenon.full((4, 2), 3.0))

    assert runner.state["num_batches_tracked"] == 1 and model.num_batches_tracked == 0
    assert runner.state["running_mean"] == pytest.approx([0.3, 0.3])
    assert F.relu(model.running_mean).tolist() == [0.0, 0.0]


def test_bytes_read_as_another_dtype_are_refused():
    with pytest.raises(CaptureError, match=r"as another dtype \(view\(dtype\)\) cannot be captured"):
        capture(lambda x: x.view(tenon.int32) + 1, tenon.ones(3))


def test_one_hot_of_given_classes_is_captured():
    graph = capture(lambda x: F.one_hot(x, 4), tenon.tensor([0, 1]))

    assert graph.run(tenon.tensor([3, 2])).tolist() == [[0, 0, 0, 1], [0, 0, 1, 0]]


def test_nonzero_static_is_captured():
    graph = capture(lambda x: tenon.nonzero_static(x, size=3), tenon.ones(2, 2))

    assert graph.run(tenon.eye(2)).tolist() == [[0, 0], [1, 1], [-1, -1]]


def test_the_magnitude_of_a_spectrum_is_captured():
    x = tenon.randn(8)

    graph = capture(lambda x: tenon.fft.fft(x).abs(), tenon.ones(8))

    assert tenon.allclose(graph.run(x), tenon.fft.fft(x).abs())


def test_a_run_copies_no_weights_and_changes_none(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    x = tenon.randn(3, 4)
    graph = capture(model, x)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    read = []
    original = Interpreter.run
    monkeypatch.setattr(
        Interpreter, "run", lambda self, arrays, s=(): read.append(arrays) or original(self, arrays, s)
    )

    first, second = graph.run(x), graph.run(x)

    assert all(read[0][node] is node.value.raw for node in graph.states)
    assert tenon.equal(first, second) and graph.writes
    assert all(tenon.equal(value, before[name]) for name, value in model.state_dict().items())


def test_objects_with_tensors_in_them_are_refused_as_results():
    class Output:
        def __init__(self, value):
            self.value = [value]

    @dataclasses.dataclass(slots=True)
    class Pair:
        value: object

    for made in (Output, Pair, lambda value: {value}):
        with pytest.raises(
            CaptureError, match=r"returns a \w+ with tensors in it.*register_(pytree_node|dataclass)"
        ):
            capture(lambda x, made=made: made(x * 2), tenon.ones(2))
    given = Pair(tenon.ones(2))
    graph = capture(lambda pair: pair.value * 2, given)
    assert graph.run(given).tolist() == [2, 2]
    with pytest.raises(ArgumentError, match="captured with the plain argument"):
        graph.run(Pair(tenon.zeros(2)))


def test_registered_dataclasses_are_arguments_and_results(tmp_path):
    @dataclasses.dataclass
    class Pair:
        first: object
        second: object = 3

    tenon.export.register_dataclass(Pair)
    with pytest.raises(ValueError, match="Only dataclasses"):
        tenon.export.register_dataclass(int)

    class Model(nn.Module):
        def forward(self, pair):
            return Pair(pair.first * pair.second, [pair.first])

    program = tenon.export.export(Model(), (Pair(tenon.ones(2), tenon.ones(2)),))
    tenon.export.save(program, tmp_path / "program.pt2")
    given = Pair(tenon.full((2,), 2.0), tenon.full((2,), 5.0))
    result = program.module()(given)
    assert (
        isinstance(result, Pair) and result.first.tolist() == [10, 10] and result.second[0].tolist() == [2, 2]
    )
    first, second = tenon.export.load(tmp_path / "program.pt2").module()(given)
    assert tenon.equal(first, result.first) and tenon.equal(second[0], given.first)


def test_an_autocast_region_around_the_capture_is_part_of_the_graph():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), tenon.randn(5, 3)
    with tenon.autocast("cpu", dtype=tenon.bfloat16):
        expected, graph = model(x), capture(model, x, dynamic={"input": {0: "batch"}})
        inner = tenon.autocast("cpu", enabled=False)
        with inner:
            assert [node.name for node in capture(model, x).calls] == ["linear", "linear"]
    assert graph.run(x).dtype is tenon.bfloat16
    assert tenon.equal(graph.run(x), expected)


def test_distributions_check_their_arguments_when_they_are_captured():
    distributions = tenon.distributions

    def sample(x):
        normal = distributions.Normal(x, x.exp())
        return normal.log_prob(normal.rsample()) + distributions.Gamma(x, x).sample()

    graph = capture(sample, tenon.ones(3))
    tenon.manual_seed(4)
    expected = sample(tenon.full((3,), 2.0))
    tenon.manual_seed(4)

    assert tenon.equal(graph.run(tenon.full((3,), 2.0)), expected)
    with pytest.raises(ArgumentError, match="Expected parameter concentration"):
        capture(sample, -tenon.ones(3))
    with pytest.raises(CaptureError, match="Python reads the value"):
        capture(lambda x: sample(x) if x.sum() > 0 else x, tenon.ones(3))


MASKED = {
    "all axes": lambda x: x.__setitem__(x > 10, 0),
    "leading axes": lambda x: x.__setitem__(x[..., 0] > 10, tenon.arange(4.0)),
    "one axis": lambda x: x.__setitem__((..., tenon.tensor([True, False, False, True])), x.sum()),
    "view": lambda x: x.__setitem__((1, x[0, :, 0] > 3, slice(1, 3)), 2),
}


@pytest.mark.parametrize("name", MASKED)
def test_values_are_assigned_by_a_mask(name):
    def function(x):
        result = x.clone()
        MASKED[name](result)
        return result

    x = tenon.arange(24.0).reshape(2, 3, 4)
    graph, compiled = capture(function, x), tenon.compile(function, fullgraph=True)
    for change in (0.0, 7.0):
        assert tenon.equal(graph.run(x + change), function(x + change))
        assert all(tenon.equal(compiled(x + change), function(x + change)) for _ in range(3))


def test_values_that_a_mask_counts_are_refused():
    def function(x):
        result = x.clone()
        result[x > 0] = tenon.ones(int((x > 0).sum()))
        return result

    with pytest.raises(CaptureError, match=r"depends on the data|Python reads"):
        capture(function, tenon.ones(3))


def test_functions_with_named_results_may_return_them():
    result = capture(lambda x: (x.max(1), tenon.sort(x)), tenon.ones(2, 3)).run(tenon.eye(2, 3))
    assert result[0].indices.tolist() == [0, 1] and result[1].values[0].tolist() == [0, 0, 1]


def test_second_derivatives_are_captured():
    x = tenon.randn(3)
    function = tenon.func.hessian(lambda x: (x**3).sum())
    assert tenon.allclose(capture(function, tenon.ones(3)).run(x), (6 * x).diag())

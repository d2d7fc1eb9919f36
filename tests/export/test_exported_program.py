"""PyTorch's ``torch.export``: programs, their graphs as ``fx``, dynamic shapes, files without pickle."""

import collections
import copy
import io
import zipfile

import pytest

import tenon
from tenon import fx, nn
from tenon.errors import ArgumentError, BundleError, CaptureError, LoweringError, ShapeError
from tenon.export import Dim, ExportedProgram, capture, dims, export, load, save, verify
from tenon.testing.suites.reference_target import ReferenceTarget
from tenon.testing.suites.target_models import MODELS


@pytest.fixture(autouse=True)
def _seed():
    tenon.manual_seed(0)


def flat(value):
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("name", MODELS)
def test_the_module_of_a_program_computes_what_the_exported_one_does(name):
    example = MODELS[name]()

    module = export(example.model, example.args).module()

    with tenon.no_grad():
        expected, results = flat(example.model(*example.args)), flat(module(*example.args))
    assert all(tenon.allclose(a, b, atol=1e-6) for a, b in zip(expected, results, strict=True))
    own = dict(example.model.named_parameters())
    mine = dict(module.named_parameters())
    assert mine and set(mine) <= set(own)
    assert all(mine[key] is own[key] for key in mine)


def test_the_graph_module_takes_parameters_first():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU()).eval()
    x = tenon.randn(2, 4)

    program = export(model, (x,))

    assert isinstance(program.graph_module, fx.GraphModule)
    signature = program.graph_signature
    assert signature.parameters == ("0.weight", "0.bias", "1.weight", "1.bias")
    assert signature.buffers == ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert signature.user_inputs == ("input",) or len(signature.user_inputs) == 1
    placeholders = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    assert placeholders == [spec.arg.name for spec in signature.input_specs]
    assert [node.op for node in program.graph.nodes if node.op.startswith("call")] == ["call_function"] * 3
    values = [program.state_dict[spec.target] for spec in signature.input_specs if spec.target] + [x]
    (result,) = program.graph_module(*values)
    assert tenon.allclose(result, model(x))
    assert "linear" in program.graph_module.code and "0.weight" in str(program)


def test_writes_into_buffers_are_outputs():
    model = nn.BatchNorm1d(2)
    x = tenon.randn(8, 2)

    program = export(model, (x,))

    assert sorted(program.graph_signature.buffers_to_mutate.values()) == [
        "num_batches_tracked", "running_mean", "running_var",
    ]  # fmt: skip
    module = program.module()
    module(x)
    assert dict(module.named_buffers())["num_batches_tracked"].item() == 1


def test_structures_are_those_of_the_module():
    class Both(nn.Module):
        def forward(self, batch, *, scale=2):
            return {"a": batch["x"] * scale, "rest": [batch["y"], "text"]}

    batch = {"x": tenon.ones(2), "y": tenon.zeros(1)}
    module = export(Both(), (batch,), {"scale": 3}).module()

    result = module({"x": tenon.full((2,), 2.0), "y": tenon.ones(1)}, scale=3)

    assert result["a"].tolist() == [6.0, 6.0]
    assert result["rest"][0].tolist() == [1.0] and result["rest"][1] == "text"
    with pytest.raises(ArgumentError, match="captured with the plain argument 3"):
        module(batch, scale=4)


DYNAMIC = {
    "by name": {"x": {0: Dim("batch", min=2, max=64)}},
    "in a tuple": ({0: Dim("batch", min=2, max=64)},),
    "one for each axis": [(Dim("batch", min=2, max=64), None)],
    "automatic": {"x": {0: Dim.AUTO}},
}


@pytest.mark.parametrize("shapes", DYNAMIC.values(), ids=DYNAMIC)
def test_dynamic_shapes(shapes):
    example = MODELS["net"]()
    program = export(example.model, example.args, dynamic_shapes=shapes)
    module = program.module()

    for size in (2, 7, 31):
        x = tenon.randn(size, 4)
        assert tenon.allclose(module(x), example.model(x), atol=1e-6)

    with pytest.raises(ShapeError, match="dimension 1 is 5, not 4"):
        module(tenon.ones(2, 5))


def test_a_range_is_checked():
    program = export(
        MODELS["net"]().model, (tenon.ones(5, 4),), dynamic_shapes={"x": {0: Dim("batch", min=2, max=64)}}
    )

    assert program.range_constraints == {"batch": (2, 64)}
    with pytest.raises(
        ShapeError, match=r"batch \(dimension 0 of argument 'x'\) = 65 is out of range: .* 2 to 64"
    ):
        program.module()(tenon.ones(65, 4))


@pytest.mark.slow
def test_sizes_that_are_computed_run_at_other_sizes():
    example = MODELS["gpt"]()
    batch, length = dims("batch", "length", min=1, max=64)

    program = export(example.model, example.args, dynamic_shapes={"tokens": {0: batch, 1: length}})

    tokens = tenon.randint(0, 40, (3, 13))
    with tenon.no_grad():
        assert tenon.allclose(program.module()(tokens), example.model(tokens), atol=1e-5)


def test_wrong_dynamic_shapes_are_refused():
    example = MODELS["net"]()

    with pytest.raises(ArgumentError, match="dynamic_shapes names 'y'; the arguments are x"):
        export(example.model, example.args, dynamic_shapes={"y": {0: Dim("batch")}})
    with pytest.raises(ArgumentError, match="is not an identifier"):
        Dim("a b")
    with pytest.raises(ArgumentError, match="is more than max"):
        Dim("a", min=3, max=2)
    with pytest.raises(ValueError, match=r"instance of `torch\.nn\.Module`"):
        export(lambda x: x, (tenon.ones(1),))


def test_decompositions():
    example = MODELS["vit"]()
    program = export(example.model, example.args)

    whole = program.run_decompositions()
    one = program.run_decompositions({tenon.ops.softmax: None})

    def names(p):
        return {node.target.__name__ for node in p.graph.nodes if node.op == "call_function"}

    assert {"layer_norm", "softmax", "gelu"} <= names(program)
    assert not {"layer_norm", "softmax", "gelu"} & names(whole)
    assert "softmax" not in names(one) and "layer_norm" in names(one)
    with tenon.no_grad():
        expected = example.model(*example.args)
        assert tenon.allclose(whole.module()(*example.args), expected, atol=1e-5)


def test_a_program_is_saved_and_loaded_without_pickle(tmp_path):
    example = MODELS["digits"]()
    program = export(example.model, example.args, dynamic_shapes={"images": {0: Dim("batch")}})

    save(program, tmp_path / "digits.pt2", extra_files={"note": "trained on digits"})
    extra = {"note": ""}
    read = load(tmp_path / "digits.pt2", extra_files=extra)

    assert isinstance(read, ExportedProgram) and extra == {"note": "trained on digits"}
    assert [info.filename for info in zipfile.ZipFile(tmp_path / "digits.pt2").infolist()] == [
        "graph.json", "program.json", "weights.safetensors", "extra/note",
    ]  # fmt: skip
    x = tenon.randn(5, 1, 8, 8)
    with tenon.no_grad():
        assert tenon.allclose(read.module()(x), example.model(x), atol=1e-6)
    assert read.graph_signature == program.graph_signature
    buffer = io.BytesIO()
    save(program, buffer)
    assert isinstance(load(io.BytesIO(buffer.getvalue())), ExportedProgram)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "net.pt2"
    example = MODELS["net"]()
    save(export(example.model, example.args), path)
    content = path.read_bytes()
    for damaged in (b"", b"PK", content[: len(content) // 2], content.replace(b"graph.json", b"grape.json")):
        path.write_bytes(damaged)
        with pytest.raises(BundleError):
            load(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graph.json", " " * 10_000_000)
        archive.writestr("weights.safetensors", b"")
    with pytest.raises(BundleError, match="is compressed"):
        load(path)


def test_a_program_becomes_a_bundle(tmp_path):
    example = MODELS["net"]()

    folder = save(export(example.model, example.args), tmp_path / "net", targets=[ReferenceTarget()])

    assert verify(folder, found=[ReferenceTarget()]).passed


def test_the_module_can_be_captured_again():
    example = MODELS["digits"]()
    module = export(example.model, example.args).module()

    graph = capture(module, *example.args)

    with tenon.no_grad():
        assert tenon.allclose(graph.run(*example.args), example.model(*example.args), atol=1e-6)


def test_an_fx_module_is_exported_like_any_other():
    example = MODELS["net"]()
    traced = fx.symbolic_trace(example.model)

    program = export(traced, example.args)

    assert program.graph_signature.parameters == ("l0.weight", "l0.bias", "l1.weight", "l1.bias")
    assert tenon.allclose(program.module()(*example.args), example.model(*example.args), atol=1e-6)


class Accumulator(nn.Module):
    """Changes an argument and a buffer, and returns what both were."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(2, 2)
        self.register_buffer("total", tenon.zeros(2))
        self.register_buffer("factor", tenon.full((2,), 2.0), persistent=False)

    def forward(self, x, scale):
        before, seen = x.clone(), self.total.clone()
        self.total.add_(x * self.factor)
        x.mul_(scale)
        return before, seen


def test_arguments_that_change_are_outputs_and_change_in_the_module(tmp_path):
    program = export(Accumulator(), (tenon.ones(2), 3))
    save(program, tmp_path / "accumulator.pt2")

    for each in (program, load(tmp_path / "accumulator.pt2"), program.run_decompositions()):
        signature = each.graph_signature
        assert [str(spec) for spec in signature.input_specs] == [
            "p_unused_weight: PARAMETER target='unused.weight'",
            "p_unused_bias: PARAMETER target='unused.bias'",
            "b_total: BUFFER target='total' persistent=True",
            "b_factor: BUFFER target='factor' persistent=False",
            "x: USER_INPUT",
            "scale: USER_INPUT",
        ]
        assert list(signature.buffers_to_mutate.values()) == ["total"]
        assert list(signature.user_inputs_to_mutate.values()) == ["x"]
        assert list(each.state_dict) == ["unused.weight", "unused.bias", "total"]
        assert list(each.constants) == ["factor"]
        module, x = each.module(), tenon.tensor([1.0, 2.0])
        with tenon.no_grad():
            results = [module(x, 3), module(x, 3)]
        assert [[t.tolist() for t in result] for result in results] == [
            [[1.0, 2.0], [0.0, 0.0]], [[3.0, 6.0], [2.0, 4.0]],
        ]  # fmt: skip
        assert x.tolist() == [9.0, 18.0]
        dict(module.named_buffers())["total"].zero_()


def test_targets_refuse_graphs_that_change_arguments(tmp_path):
    program = export(Accumulator(), (tenon.ones(2), 3))

    with pytest.raises(LoweringError, match="changes its argument 'x' in place"):
        save(program, tmp_path / "bundle", targets=[ReferenceTarget()])


def test_buffers_can_be_swapped():
    class Swap(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", tenon.ones(2))
            self.register_buffer("b", tenon.zeros(2))

        def forward(self, x):
            old = self.a.clone()
            self.a.copy_(self.b)
            self.b.copy_(old)
            return x + self.a

    module = export(Swap(), (tenon.ones(2),)).module()

    assert module(tenon.ones(2)).tolist() == [1.0, 1.0]
    assert module(tenon.ones(2)).tolist() == [2.0, 2.0]
    assert module.a.tolist() == [1.0, 1.0]


def test_nodes_tell_their_operator_module_and_line():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2)).eval()

    program = export(model, (tenon.ones(1, 1, 6, 6),))

    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    aten = tenon.ops.aten
    assert [node.target for node in calls] == [
        aten.conv2d.default, aten.relu.default, aten.max_pool2d.default,
    ]  # fmt: skip
    assert [node.name for node in calls] == ["conv2d", "relu", "max_pool2d"]
    assert calls[0].meta["torch_fn"] == ("conv2d_1", "function.conv2d")
    assert calls[0].meta["nn_module_stack"]["0"] == ("0", "tenon.nn.layers.conv.Conv2d")
    assert "test_exported_program.py" in calls[0].meta["stack_trace"]
    value = calls[2].meta["val"]
    assert tuple(value.shape) == (1, 2, 2, 2) and value.dtype == tenon.float32


def test_named_tuples_survive_a_file(tmp_path):
    point = collections.namedtuple("point", ["x", "y"])

    class Length(nn.Module):
        def forward(self, p):
            return p.x.square() + p.y.square()

    arguments = (point(tenon.ones(1), tenon.ones(1)),)
    program = export(Length(), arguments, dynamic_shapes={"p": [{0: Dim("n")}] * 2})
    save(program, tmp_path / "length.pt2")

    module = load(tmp_path / "length.pt2").module()

    assert module(point(tenon.full((2,), 3.0), tenon.full((2,), 4.0))).tolist() == [25.0, 25.0]


def test_axes_that_a_program_fixes_are_found_out():
    model = nn.Linear(4, 2)

    program = export(model, (tenon.ones(4, 4),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))

    assert list(program.range_constraints) == ["input_0"]
    with pytest.raises(CaptureError, match=r"You marked input.size\(\)\[1\] as dynamic"):
        export(model, (tenon.ones(4, 4),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.DYNAMIC},))


@pytest.mark.parametrize(
    "options",
    [
        {"strict": True},
        {"preserve_module_call_signature": ("0",)},
        {"prefer_deferred_runtime_asserts_over_guards": True},
    ],
)
def test_arguments_without_effect_say_so(options):
    model, x = nn.Sequential(nn.Linear(2, 2)).eval(), tenon.ones(1, 2)

    with pytest.warns(UserWarning, match=f"{next(iter(options))}.* has no effect"):
        program = export(model, (x,), **options)

    assert tenon.allclose(program.module()(x), model(x))


class Indexed(tenon.nn.Module):
    def forward(self, x, i):
        return x[:, i], x[i, :, None], x[i, i]


def test_programs_and_traces_index_by_tensors(tmp_path):
    model, args = Indexed(), (tenon.randn(3, 3), tenon.tensor([2, 0]))
    expected = model(*args)
    program = export(model, args)
    path = tmp_path / "program.pt2"
    save(program, path)

    for made in (
        program.module(), tenon.export.unflatten(program), load(path).module(), copy.deepcopy(program.module()),
        tenon.jit.trace(model, args, strict=False, check_trace=False),
    ):  # fmt: skip
        assert all(tenon.equal(mine, own) for mine, own in zip(made(*args), expected, strict=True))


def test_constants_and_temporary_buffers_are_not_in_the_state_dict_of_modules():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.plain = nn.Linear(2, 2), tenon.ones(2)
            self.register_buffer("kept", tenon.ones(2))
            self.register_buffer("temporary", tenon.ones(2), persistent=False)

        def forward(self, x):
            return self.linear(x) * self.plain + tenon.tensor([1.0, 2.0]) + self.kept * self.temporary

    model, x = Model().eval(), tenon.ones(1, 2)
    program = tenon.export.export(model, (x,))
    for made in (program.module(), tenon.export.unflatten(program)):
        assert set(made.state_dict()) == set(model.state_dict()) and tenon.equal(made(x), model(x))
        made.load_state_dict(model.state_dict())


def test_several_tensors_without_a_name_are_constants():
    class Picks(nn.Module):
        def forward(self, x):
            return x[tenon.tensor([1, 0])] * x.index_select(1, tenon.tensor([0, 2])).sum()

    x = tenon.randn(2, 3)
    assert tenon.equal(export(Picks(), (x,)).module()(x), Picks()(x))

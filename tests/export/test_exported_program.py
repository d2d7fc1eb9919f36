"""PyTorch's ``torch.export``: programs, their graphs as ``fx``, dynamic shapes, files without pickle."""

import io
import zipfile

import pytest

import tenon
from tenon import fx, nn
from tenon.errors import ArgumentError, BundleError, ShapeError
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
    assert signature.parameters == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert signature.buffers == ["1.running_mean", "1.running_var"]
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
    with pytest.raises(ArgumentError, match="is no identifier"):
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
        "graph.json", "weights.safetensors", "extra/note",
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

    assert program.graph_signature.parameters == ["l0.weight", "l0.bias", "l1.weight", "l1.bias"]
    assert tenon.allclose(program.module()(*example.args), example.model(*example.args), atol=1e-6)

"""The runner as a user has it: one file, run by a Python that has NumPy and nothing else."""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.export import capture
from tenon.export.vectors import make_vectors
from tenon.nn import functional as F
from tenon.testing.suites.target_models import MODELS, Example
from tenon_target_numpy import program
from tenon_target_numpy.target import NumpyTarget

#: Runs a file with a path that has a folder with NumPy only, and shows what was imported.
ISOLATED = """
import runpy, sys
folder, runner, *arguments = sys.argv[1:]
sys.path[:] = [p for p in sys.path if "site-packages" not in p] + [folder]
sys.argv = [runner, *arguments]
try:
    runpy.run_path(runner, run_name="__main__")
finally:
    foreign = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
    print("imported", sorted(name for name in foreign if name[0] != "_"))
"""


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x, scale):
        return self.second(F.gelu(self.first(x))) * scale


def write(folder, graph, calls):
    target = NumpyTarget()
    vectors = make_vectors(graph, calls)
    target.write(target.lowered(graph), vectors, folder)
    return vectors


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a folder with a runner, and its vectors."""
    folder = tmp_path_factory.mktemp("runner")
    tenon.manual_seed(0)
    example = tenon.randn(5, 4), tenon.randn(5, 1)
    return folder, write(folder, capture(Model(), *example), [example])


def loaded(folder):
    """Return the names of a runner, imported by its path."""
    names = {"__name__": "runner", "__file__": str(folder / "runner.py")}
    exec(compile((folder / "runner.py").read_text(), str(folder / "runner.py"), "exec"), names)
    return names


@pytest.fixture(scope="module")
def runner(written):
    return loaded(written[0])


@pytest.fixture(scope="module")
def only_numpy(tmp_path_factory):
    """Return a folder from which NumPy, and nothing else, can be imported."""
    folder = tmp_path_factory.mktemp("packages")
    installed = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists():
            (folder / name).symlink_to(installed / name)
    return folder


def run_isolated(only_numpy, folder, *arguments):
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        ISOLATED,
        str(only_numpy),
        str(folder / "runner.py"),
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True)


def test_it_imports_numpy_only_and_prints_the_largest_difference(written, only_numpy):
    done = run_isolated(only_numpy, written[0])

    assert done.returncode == 0, done.stderr
    assert "run 0, output 0: max difference" in done.stdout
    assert "passed" in done.stdout
    assert "imported ['numpy']" in done.stdout


def test_wrong_outputs_fail(written, only_numpy, tmp_path):
    shutil.copytree(written[0], tmp_path / "copy")
    names = loaded(tmp_path / "copy")
    vectors = names["read_tensors"](tmp_path / "copy" / "vectors.safetensors")
    vectors["0.outputs.0"][1, 2] += 0.5
    names["write_tensors"](tmp_path / "copy" / "vectors.safetensors", vectors)

    done = run_isolated(only_numpy, tmp_path / "copy")

    assert done.returncode == 1
    assert "max difference 0.5" in done.stdout and "failed" in done.stdout


def test_without_vectors_it_says_what_to_give(written, only_numpy, tmp_path):
    shutil.copytree(written[0], tmp_path / "copy")
    (tmp_path / "copy" / "vectors.safetensors").unlink()

    done = run_isolated(only_numpy, tmp_path / "copy")

    assert done.returncode == 2
    assert "does not exist" in done.stdout and "python runner.py VECTORS" in done.stdout


def test_inputs_by_position_and_by_name(written, runner):
    (run,) = written[1].runs
    x, scale = run.inputs

    np.testing.assert_allclose(runner["run"](x, scale), run.outputs[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(runner["run"](scale=scale, x=x), run.outputs[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(runner["run"](x, scale=scale), run.outputs[0], rtol=1e-5, atol=1e-6)


X, SCALE = np.zeros((5, 4), np.float32), np.zeros((5, 1), np.float32)


@pytest.mark.parametrize(
    ("args", "named", "error", "message"),
    [
        ((X[:, :3], SCALE), {}, ValueError, "dimension 1 of the input 'x' has size 3; it must have 4"),
        ((X, SCALE[:2]), {}, ValueError, "dimension 0 of the input 'scale' has size 2; it must have 5"),
        ((X[0], SCALE), {}, ValueError, r"'x' has 1 dimensions, shape \[4\]; it must have 2, \[5, 4\]"),
        ((X.astype(np.float64), SCALE), {}, TypeError, "'x' has dtype float64; it must have float32"),
        ((X,), {}, TypeError, r"the input 'scale', float32 \[5, 1\], is missing"),
        ((X, SCALE, X), {}, TypeError, "3 inputs were given; there are 2: x, scale"),
        ((X, SCALE), {"y": X}, TypeError, "the model has no input 'y'; it has x, scale"),
        ((X, SCALE), {"x": X}, TypeError, "the input 'x' is given twice"),
    ],
)
def test_wrong_inputs_are_named(runner, args, named, error, message):
    with pytest.raises(error, match=message):
        runner["run"](*args, **named)


def header_of(data):
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def with_header(header, rest):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


def changed(**changes):
    def change(data):
        header, rest = header_of(data)
        header["first.weight"].update(changes)
        return with_header(header, rest)

    return change


def without(name):
    def change(data):
        header, rest = header_of(data)
        del header[name]
        return with_header(header, rest)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:5], "not a safetensors file: it has 5 bytes"),
        (lambda data: b"\xff" * 8 + data[8:], "the header of 18446744073709551615 bytes does not fit"),
        (lambda data: data[:8] + b"{" + data[8:-1], "the header is not JSON"),
        (lambda data: with_header([1], header_of(data)[1]), "the header is not a JSON object"),
        (lambda data: with_header(b'{"a": 1, "a": 2}', b""), "a key occurs twice"),
        (lambda data: with_header({"a": {"dtype": "F32"}}, b""), "a tensor has no data_offsets"),
        (lambda data: with_header(b"[" * 5000, b""), "the header is not JSON"),
        (lambda data: data[:-4], "first.weight|second.bias|takes 12 bytes"),
        (lambda data: data + b"1234", "4 bytes belong to no tensor"),
        (changed(dtype="C64"), "first.weight has dtype 'C64'"),
        (changed(dtype=["F32"]), "first.weight has dtype"),
        (changed(shape=[-1, 4]), r"first.weight has shape \[-1, 4\]"),
        (changed(shape=[1 << 62, 1 << 62]), "first.weight, F32"),
        (changed(shape=[6, 4.0]), "first.weight has shape"),
        (changed(data_offsets=[0, 1 << 60]), "first.weight, F32"),
        (changed(data_offsets=[4, 100]), "takes 96 bytes from 0 on, but lies at"),
        (changed(shape=[4, 6]), r"first.weight is float32 \[4, 6\]; it must be float32 \[6, 4\]"),
        (without("second.bias"), "bytes belong to no tensor"),
    ],
)  # fmt: skip
def test_damaged_weights_are_refused(written, runner, tmp_path, change, message):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(change((written[0] / "weights.safetensors").read_bytes()))

    with pytest.raises(ValueError, match=message):
        runner["Runner"](path)


def test_missing_weights_are_named(written, runner, tmp_path):
    tensors = runner["read_tensors"](written[0] / "weights.safetensors")
    del tensors["second.bias"]
    runner["write_tensors"](tmp_path / "weights.safetensors", tensors)

    with pytest.raises(ValueError, match=r"lacks second.bias, float32 \[3\]"):
        runner["Runner"](tmp_path / "weights.safetensors")


def test_weights_are_read_by_safetensors_too(written):
    from safetensors.numpy import load_file

    tensors = load_file(written[0] / "weights.safetensors")

    assert {name: array.shape for name, array in tensors.items()} == {
        "first.weight": (6, 4), "first.bias": (6,), "second.weight": (3, 6), "second.bias": (3,)
    }  # fmt: skip


def test_a_training_step_keeps_updates_and_saves_its_state(tmp_path):
    tenon.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = tenon.optim.AdamW(model.parameters(), lr=0.05)
    x, y = tenon.randn(6, 4), tenon.randint(0, 3, (6,))

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    vectors = write(tmp_path, capture(step, x, y, train=True), [(x, y)] * 8)
    expected = [float(run.outputs[0]) for run in vectors.runs]
    names = loaded(tmp_path)
    first = names["Runner"]()

    losses = [float(first.run(x.numpy(), y.numpy())) for _ in range(4)]
    first.save(tmp_path / "tuned.safetensors")
    second = names["Runner"](tmp_path / "tuned.safetensors")
    second.numbers.update(first.numbers)
    losses += [float(second.run(x.numpy(), y.numpy())) for _ in range(4)]

    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-6)
    assert losses[-1] < losses[0] / 2
    assert first.numbers["optimizer.step"] == 5
    first.numbers["optimizer.lr"] = 0.0
    before = first.state["0.weight"].copy()
    first.run(x.numpy(), y.numpy())
    np.testing.assert_array_equal(first.state["0.weight"], before)


def test_a_failed_run_changes_no_state(tmp_path):
    tenon.manual_seed(0)
    model = nn.Linear(2, 3)
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = tenon.randn(4, 2), tenon.randint(0, 3, (4,))
    write(tmp_path, capture(step, x, y, train=True), [(x, y)])
    runner = loaded(tmp_path)["Runner"]()
    before = {name: array.copy() for name, array in runner.state.items()}

    with pytest.raises(IndexError, match="target 7 is not one of 3 classes"):
        runner.run(x.numpy(), np.array([0, 7, 1, 2]))

    for name, array in before.items():
        np.testing.assert_array_equal(runner.state[name], array)


def test_several_outputs_come_as_a_tuple(tmp_path):
    x = tenon.tensor([[3.0, 1.0], [2.0, 5.0]])
    write(tmp_path, capture(lambda x: {"top": x.max(1), "low": x.min()}, x), [(x,)])

    values, indices, low = loaded(tmp_path)["run"](x.numpy())

    assert (values.tolist(), indices.tolist(), float(low)) == ([3.0, 5.0], [0, 1], 1.0)


def test_guards_are_checked(tmp_path):
    def function(x):
        return x * 2 if x.sum() > 0 else x - 1

    x = tenon.ones(3)
    write(tmp_path, capture(function, x, guards=True), [(x,)])
    run = loaded(tmp_path)["run"]

    assert run(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    with pytest.raises(
        ValueError, match=r"test_runner.py:\d+ decided by True when it was captured; now it is False"
    ):
        run(-np.ones(3, np.float32))


def test_names_of_arguments_cannot_hide_functions(tmp_path):
    def function(np, state, linear_1, softmax):
        return F.softmax(F.linear(np, state), 1) + linear_1 * softmax

    example = tuple(tenon.randn(3, 3) for _ in range(4))
    vectors = write(tmp_path, capture(function, *example), [example])
    runner = loaded(tmp_path)
    inputs = dict(zip(["np", "state", "linear_1", "softmax"], vectors.runs[0].inputs, strict=True))

    np.testing.assert_allclose(runner["run"](**inputs), vectors.runs[0].outputs[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("batch", "length"), [("np", "linear"), ("state", "max")])
def test_names_of_sizes_cannot_hide_what_the_runner_uses(batch, length, tmp_path):
    def function(x, weight):
        return F.linear(x, weight) / x.shape[0] if x.shape[1] > 3 else x, x.reshape(-1)

    x, weight = tenon.randn(4, 5, 3), tenon.ones(2, 3)
    graph = capture(function, x, weight, dynamic={"x": {0: batch, 1: length}})
    write(tmp_path, graph, [(x, weight)])
    runner = loaded(tmp_path)

    mean, flat = runner["run"](np.ones((2, 7, 3), np.float32), weight.numpy())

    np.testing.assert_array_equal(mean, np.full((2, 7, 2), 1.5, np.float32))
    assert flat.shape == (42,)
    with pytest.raises(ValueError, match=f"decided by {length} > 3, .* not for {length} = 2"):
        runner["run"](np.ones((2, 2, 3), np.float32), weight.numpy())
    assert runner["INPUTS"]["x"] == ("float32", (batch, length, 3))


def test_arguments_with_names_of_builtins(tmp_path):
    def function(slice, abs):
        return slice[:, 1:].abs() * abs / slice.shape[0]

    x = tenon.ones(4, 3)
    write(
        tmp_path,
        capture(function, x, x[:, 1:], dynamic={"slice": {0: "n"}, "abs": {0: "n"}}),
        [(x, x[:, 1:])],
    )

    run = loaded(tmp_path)["run"]

    assert run(np.ones((2, 3), np.float32), np.full((2, 2), 3, np.float32)).tolist() == [[1.5, 1.5]] * 2


def test_the_runner_has_only_the_functions_that_it_uses(written, runner):
    assert {"linear", "gelu", "erfc"} <= set(runner)
    assert {"conv", "softmax", "sigmoid", "max_pool"}.isdisjoint(runner)


@pytest.mark.parametrize(
    ("function", "call"), [(lambda: tenon.arange(4) * 2.0, ()), (lambda x: None, (tenon.ones(2),))]
)
def test_functions_without_arguments_or_results(function, call, tmp_path):
    graph = capture(function, *call)
    vectors = make_vectors(graph, [call] * 2)
    NumpyTarget().write(NumpyTarget().lowered(graph), vectors, tmp_path)

    assert vectors.excess(NumpyTarget().run(tmp_path, [run.inputs for run in vectors.runs])) == 0


def moved(x):
    y = x * 2
    z = y.t().contiguous()
    a = z.view(-1) + 1
    b = z.clone()
    c = z.sum() + y.detach().sum()
    d = b.t() - y
    if (x * 3).sum() > 0:
        d = d + c
    return a, d, z.contiguous(), b


@pytest.mark.parametrize(
    "name", ["moved", *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(MODELS))]
)
def test_results_are_deleted_after_their_last_use(name, tmp_path, monkeypatch):
    """Large ones are, here all: none is read, or deleted again, afterwards."""
    monkeypatch.setattr(program, "_LARGE", 0)
    tenon.manual_seed(0)
    example = Example(moved, (tenon.ones(3, 4),)) if name == "moved" else MODELS[name]()
    graph = capture(example.model, *example.args, guards=name == "moved")
    vectors = make_vectors(graph, [example.args])

    NumpyTarget().write(NumpyTarget().lowered(graph), vectors, tmp_path)

    assert "\n    del " in (tmp_path / "runner.py").read_text()
    assert vectors.excess(NumpyTarget().run(tmp_path, [run.inputs for run in vectors.runs])) <= 1

"""What a new elementwise op has as soon as it is defined; run by ``test_new_op.py`` in a process of its own."""

import importlib.util
import inspect
from pathlib import Path

import gaussian_op
import numpy as np
import pytest
from click.testing import CliRunner

import tenon
from tenon import profiler
from tenon.cli import main

DOCS = Path(__file__).resolve().parents[3] / "docs" / "build_reference.py"


def reference(x):
    return np.exp(-x * x)


@pytest.fixture
def x():
    tenon.manual_seed(0)
    return tenon.randn(5, 7)


@pytest.mark.parametrize("name", ["gaussian", "bell"])
def test_gaussian_is_a_method(x, name):
    np.testing.assert_allclose(getattr(x, name)().numpy(), reference(x.numpy()), rtol=1e-6)


@pytest.mark.parametrize("name", ["gaussian_", "bell_"])
def test_gaussian_has_a_form_in_place(x, name):
    expected, address = reference(x.numpy().copy()), x.data_ptr()

    assert getattr(x, name)() is x and x.data_ptr() == address
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["gaussian", "bell"])
def test_gaussian_is_a_function_that_writes_into_out(x, name):
    function, out = getattr(tenon, name), tenon.empty(5, 7, dtype=tenon.float64)

    np.testing.assert_allclose(function(x).numpy(), reference(x.numpy()), rtol=1e-6)
    assert function(x, out=out) is out
    np.testing.assert_allclose(out.numpy(), reference(x.numpy()), rtol=1e-6)
    assert str(inspect.signature(function)) == "(input, *, out=None)"
    with pytest.raises(TypeError, match="argument 'input' \\(position 1\\) must be Tensor, not float"):
        function(1.0)


def test_gaussian_has_a_gradient(x):
    x.requires_grad_()
    y = x.gaussian()
    y.sum().backward()

    assert y.grad_fn.name() == "GaussianBackward0"
    np.testing.assert_allclose(
        x.grad.numpy(), -2 * x.detach().numpy() * reference(x.detach().numpy()), rtol=1e-5
    )


def test_gaussian_of_whole_numbers_is_of_floats():
    y = tenon.arange(3).gaussian()

    assert y.dtype is tenon.float32
    np.testing.assert_allclose(y.numpy(), reference(np.arange(3.0)), rtol=1e-6)


def test_gaussian_of_a_meta_tensor_has_a_shape_only():
    y = tenon.empty(2, 3, dtype=tenon.float16, device="meta").gaussian()

    assert (y.device.type, tuple(y.shape), y.dtype) == ("meta", (2, 3), tenon.float16)


def test_gaussian_runs_as_its_autocast_class_says(x):
    narrow = x.bfloat16()

    with tenon.autocast("cpu", dtype=tenon.bfloat16):
        assert narrow.gaussian().dtype is tenon.float32
    assert narrow.gaussian().dtype is tenon.bfloat16


def test_gaussian_of_16_bits_is_rounded_once(x):
    y = x.bfloat16().gaussian()

    expected = tenon.tensor(reference(x.bfloat16().double().numpy())).bfloat16()
    assert tenon.equal(y, expected)


def test_gaussian_fuses_in_compiled_programs():
    x = tenon.randn(128, 256)
    step = tenon.compile(lambda x: (x * 2.0).gaussian().sum(1))
    for _ in range(3):
        y = step(x)

    np.testing.assert_allclose(y.numpy(), reference(2 * x.numpy()).sum(1), rtol=1e-5)
    calls = [n.label or n.op.name for n in step.programs[0].graph.calls if not n.op.view]
    assert calls == ["mul+gaussian+sum"]


def test_large_arrays_run_by_generated_code():
    pytest.importorskip("llvmlite")
    x = tenon.randn(512, 512)

    np.testing.assert_allclose(x.gaussian().numpy(), reference(x.numpy()), rtol=1e-5)
    shown = CliRunner().invoke(main, ["doctor", "kernels", "gaussian"]).output
    assert "generated from the expression" in shown


def test_gaussian_serves_in_the_rules_of_optimizers():
    class Bells(tenon.optim.Optimizer):
        """Descends along the bell of each gradient."""

        defaults = {"lr": 0.1}

        def update(self, f, p, g, s, h):
            return f.sub(p, f.mul(f.gaussian(g), h.lr)), s

    p = tenon.nn.Parameter(tenon.randn(64, 64))
    before = p.detach().numpy().copy()
    p.grad = tenon.randn(64, 64)
    Bells([p]).step()

    np.testing.assert_allclose(p.detach().numpy(), before - 0.1 * reference(p.grad.numpy()), rtol=1e-5)


def test_gaussian_has_its_name_in_profiles(x):
    with profiler.profile() as profile:
        x.gaussian()

    assert [event.key for event in profile.key_averages()] == ["tenon::gaussian"]


def test_gaussian_is_in_the_reference():
    spec = importlib.util.spec_from_file_location("build_reference", DOCS)
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)

    assert "gaussian" in dir(tenon) and "bell" in dir(tenon)
    assert "gaussian(input, *, out=None)" in build.page("tenon")
    assert "### Tensor.gaussian(self" in "\n".join(build.members(tenon.Tensor))
    assert "## gaussian\n" in build.page("tenon.ops")
    assert gaussian_op.Gaussian.__doc__ in tenon.gaussian.__doc__

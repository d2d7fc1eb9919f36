"""Finding oneDNN, the reasons if there is none, statuses, and the objects between an array and a primitive."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tenon.extend import Config, errors
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import ELTWISE, Attributes, post_op_argument
from tenon_cpu.onednn.descriptors import Descriptor, element_strides, representable
from tenon_cpu.onednn.library import OneDnnError, find
from tenon_cpu.onednn.primitives import Primitive, packed, unpacked
from tenon_cpu.onednn.runtime import available, runtime

pytestmark = pytest.mark.together

needed = pytest.mark.skipif(not available(), reason=available().reason)


def run(code, **environment):
    """Standard output of ``code`` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


COMPUTES = """
import tenon
from tenon_cpu.onednn.runtime import available
a = tenon.arange(40000.0).reshape(200, 200) / 40000
b = a @ a
assert abs(b[3, 5].item() - (a[3].double() * a[:, 5].double()).sum().item()) < 1e-3
print(available().ok, available().reason)
"""


@pytest.mark.slow
def test_switched_off_it_says_so_and_numpy_computes():
    assert run(COMPUTES, TENON_ONEDNN="0").startswith("False switched off by TENON_ONEDNN=0")


SHOWN = """
import warnings
warnings.simplefilter("always")
warnings.showwarning = lambda message, *rest: print("warned:", message)
"""


def test_a_named_file_that_is_missing_is_the_reason_of_one_warning_and_numpy_computes(tmp_path):
    said = run(SHOWN + COMPUTES, TENON_ONEDNN_LIBRARY=str(tmp_path / "libnone.so")).splitlines()

    reason = f"TENON_ONEDNN_LIBRARY={tmp_path}/libnone.so cannot be used: not loaded"
    assert (
        said[0].startswith(f"warned: {reason}") and said[1].startswith(f"False {reason}") and len(said) == 2
    )


def test_a_file_that_is_not_a_library_is_refused(tmp_path):
    (tmp_path / "text.so").write_text("not a library")

    found = find(Config.from_environment({"TENON_ONEDNN_LIBRARY": str(tmp_path / "text.so")}))

    assert found.library is None
    assert "not loaded" in found.reason


def test_another_library_is_recognised():
    found = find(Config.from_environment({"TENON_ONEDNN_LIBRARY": "libm.so.6"}))

    assert found.library is None
    assert "it has no function dnnl_version" in found.reason


@needed
def test_a_named_library_is_used():
    path = runtime().library.path

    found = find(Config.from_environment({"TENON_ONEDNN_LIBRARY": path}))

    assert found.library is not None
    assert found.library.version[0] == 3
    assert found.reason.endswith(f"from {path}")


def test_without_wheel_and_system_library_the_reason_names_both_and_the_remedy(monkeypatch):
    monkeypatch.setattr("tenon_cpu.onednn.library.WHEEL", "no-such-wheel")
    monkeypatch.setattr("tenon_cpu.onednn.library.SONAME", "libnosuchlibrary.so.3")

    found = find(Config.from_environment({}))

    assert found.library is None
    assert "the system: not loaded" in found.reason
    assert "pip install no-such-wheel" in found.reason


@pytest.mark.slow
@needed
def test_loading_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    code = (
        "import ctypes\nfrom tenon_cpu.onednn.runtime import runtime\nruntime()\n"
        "c = ctypes.CDLL(None)\nc.getenv.restype = ctypes.c_char_p\nprint(c.getenv(b'GOMP_SPINCOUNT'))"
    )

    assert run(code) == "None"
    assert run(code, GOMP_SPINCOUNT="123") == "b'123'"


@pytest.mark.slow
@needed
@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
@pytest.mark.parametrize(
    "count",
    [
        1,
        pytest.param(2, marks=pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")),
    ],
)
def test_threads_follow_the_setting_that_rules_blas(variable, count):
    code = (
        "import threading\nfrom tenon_cpu.onednn.runtime import runtime\nr = runtime()\n"
        "seen = []\n"
        "def look(): seen.append((r.local.threads, r.openmp.omp_get_max_threads()))\n"
        "look()\n"
        "for name in ('other', 'tenon-cpu'):\n"
        "    t = threading.Thread(target=look, name=name); t.start(); t.join()\n"
        "print(seen)"
    )
    clean = {"OMP_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": "", variable: str(count)}

    assert run(code, **clean) == str([(count, count), (count, count), (1, 1)])


@needed
def test_an_error_names_function_status_and_arguments():
    three = Descriptor.rows((3, 3), np.float32)
    four = Descriptor.rows((4, 4), np.float32)

    with pytest.raises(OneDnnError) as caught:
        Primitive("matmul", three, four, None, four)

    said = str(caught.value)
    assert "dnnl_matmul_primitive_desc_create returned status 2 (invalid_arguments)" in said
    assert "float32[3, 3]" in said and "float32[4, 4]" in said


@needed
def test_a_case_that_the_library_lacks_can_be_told_from_an_error():
    mixed = [Descriptor.rows((4, 4), t) for t in (np.int8, np.float16, np.float32)]

    with pytest.raises(OneDnnError) as caught:
        Primitive("matmul", mixed[0], mixed[1], None, mixed[2])

    assert caught.value.unimplemented


@needed
def test_an_execution_with_an_unknown_argument_is_refused():
    d = Descriptor.rows((4, 4), np.float32)
    made = Primitive("matmul", d, d, None, d)

    with pytest.raises(errors.BackendError, match="takes no argument at position 41"):
        made.execution({c.SRC: None, c.WEIGHTS: None, c.BIAS: None, c.DST: None})
    with pytest.raises(errors.BackendError, match="no argument at position 129"):
        made.layout(c.DIFF_SRC)


@needed
def test_an_execution_that_lacks_an_argument_fails_instead_of_doing_nothing():
    d = Descriptor.rows((4, 4), np.float32)
    x = np.ones((4, 4), np.float32)
    ready = Primitive("matmul", d, d, None, d).execution({c.SRC: x, c.DST: np.empty_like(x)})

    with pytest.raises(OneDnnError, match="dnnl_primitive_execute returned status 2"):
        ready()


@needed
def test_a_primitive_with_a_wrong_number_of_parameters_is_refused():
    d = Descriptor.rows((4, 4), np.float32)

    with pytest.raises(errors.BackendError, match="3 parameters: 4 are needed"):
        Primitive("matmul", d, d, d)
    with pytest.raises(errors.BackendError, match="unknown"):
        Primitive("matmull", d, d, None, d)


@needed
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[::2],
        lambda x: x.T,
        lambda x: x[:, 1:3],
        lambda x: x[:1],
        lambda x: x[:, :1],
        lambda x: x[::-1][:1],
        lambda x: np.broadcast_to(x[:1, :1], (1, 1)),
    ],
)
def test_an_array_is_read_where_it_lies(make):
    x = make(np.arange(24, dtype=np.float32).reshape(4, 6))
    assert representable(x)
    plain = Descriptor.rows(x.shape, x.dtype)

    copied = packed(x, plain)

    assert Descriptor.of(x).shape == x.shape
    assert Descriptor.of(x).dtype == x.dtype
    np.testing.assert_array_equal(copied.view(x.shape, x.dtype), x)
    np.testing.assert_array_equal(unpacked(copied, plain), x)


@pytest.mark.parametrize(
    "x",
    [
        np.ones((3, 3), np.float64),
        np.ones((0, 3), np.float32),
        np.ones((), np.float32),
        np.ones((3, 3), np.float32)[::-1],
        np.broadcast_to(np.float32(1), (3, 3)),
        np.ones((3,) * 2, np.complex64),
        np.ones(9, np.uint8)[1:].view(np.float32)[:2],
        np.ndarray((2,), np.float32, np.zeros(12, np.uint8), strides=(6,)),
    ],
    ids=["float64", "empty", "scalar", "reversed", "broadcast", "complex", "unaligned start", "odd stride"],
)
def test_what_cannot_be_described_is_distinguished(x):
    assert representable(x) == (x.strides == (4,))


@needed
def test_a_blocked_layout_goes_there_and_back():
    x = np.random.default_rng(0).normal(size=(20, 37)).astype(np.float32)
    made = Primitive(
        "matmul",
        Descriptor.rows((16, 20), np.float32),
        Descriptor.any((20, 37), np.float32),
        None,
        Descriptor.rows((16, 37), np.float32),
    )
    layout = made.layout(c.WEIGHTS)

    buffer = packed(x, layout)

    assert buffer.address % 64 == 0
    assert layout.size >= x.nbytes
    assert layout.shape == (20, 37)
    np.testing.assert_array_equal(unpacked(buffer, layout), x)


@needed
def test_descriptors_are_equal_where_the_layout_is():
    rows = Descriptor.rows((3, 4), np.float32)

    assert rows == Descriptor.of(np.ones((3, 4), np.float32))
    assert rows != Descriptor.of(np.ones((4, 3), np.float32).T)
    assert rows.strides == (4, 1)
    assert element_strides(np.ones((3, 4), np.float32).T) == (1, 4)


def _erf(x):
    from math import erf

    return np.vectorize(erf)(x)


CURVES = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)),
    "square": np.square,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "linear": lambda x: 0.5 * x + 2,
    "soft_relu": lambda x: np.log1p(np.exp(0.5 * x)) / 0.5,
    "hardsigmoid": lambda x: np.clip(0.5 * x + 2, 0, 1),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "exp": np.exp,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "swish": lambda x: x / (1 + np.exp(-0.5 * x)),
    "log": np.log,
    "clip": lambda x: np.clip(x, 0.5, 2),
    "clip_v2": lambda x: np.clip(x, 0.5, 2),
    "pow": lambda x: 0.5 * x**2,
    "gelu_erf": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
    "round": np.round,
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "hardswish": lambda x: x * np.clip(0.5 * x + 2, 0, 1),
}


@needed
@pytest.mark.parametrize("name", sorted(ELTWISE))
def test_every_named_curve_is_the_one_that_oneDNN_computes(name):
    x = np.linspace(0.1, 3, 64, dtype=np.float32).reshape(8, 8)
    if name not in ("sqrt", "log"):
        x = x * np.where(np.arange(64).reshape(8, 8) % 2, -1, 1).astype(np.float32)
    d, one, out = Descriptor.of(x), np.eye(8, dtype=np.float32), np.empty_like(x)
    alpha = 0.0 if name == "relu" else 0.5
    made = Primitive("matmul", d, d, None, d, attributes=Attributes([(name, alpha, 2.0)]))

    made.execution({c.SRC: x, c.WEIGHTS: one, c.DST: out})()

    np.testing.assert_allclose(out, CURVES[name](x.astype(np.float64)), rtol=2e-5, atol=2e-5)


@needed
def test_post_ops_run_in_order_with_operands_that_broadcast():
    rng = np.random.default_rng(0)
    x, w, out = (rng.normal(size=(8, 8)).astype(np.float32) for _ in range(3))
    row, column = rng.normal(size=(1, 8)).astype(np.float32), rng.normal(size=(8, 1)).astype(np.float32)
    d, before = Descriptor.of(x), out.copy()
    chain = [("add", Descriptor.of(row)), ("relu",), ("mul", Descriptor.of(column)), ("sum", 0.5)]
    made = Primitive("matmul", d, d, None, d, attributes=Attributes(chain))
    operands = {post_op_argument(0): row, post_op_argument(2): column}

    made.execution({c.SRC: x, c.WEIGHTS: w, c.DST: out, **operands})()

    np.testing.assert_allclose(out, np.maximum(x @ w + row, 0) * column + 0.5 * before, rtol=1e-5, atol=1e-5)


@needed
def test_an_unknown_post_op_is_refused_with_the_known_ones():
    with pytest.raises(errors.BackendError, match=r"post-op .relux.*gelu_erf"):
        Attributes([("relux",)])

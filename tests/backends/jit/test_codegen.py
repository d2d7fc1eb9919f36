"""Functions of the generated code against NumPy in higher precision, and loops that must be vectorized."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import tenon.ops  # noqa: F401  (fills the op table)
from tenon.graph.cluster import Builder, Namespace

pytest.importorskip("llvmlite")

from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.fusion import clusters

pytestmark = pytest.mark.together

#: Function -> reference in float64, arguments, allowed error in units in the last place.
FUNCTIONS = {
    "exp": (np.exp, (-110, 95), 2),
    "exp2": (np.exp2, (-155, 135), 2),
    "expm1": (np.expm1, (-20, 95), 3),
    "log": (np.log, (1e-45, 1e38), 2),
    "log2": (np.log2, (1e-45, 1e38), 4),
    "log10": (np.log10, (1e-45, 1e38), 4),
    "log1p": (np.log1p, (-0.9999, 1e6), 4),
    "tanh": (np.tanh, (-12, 12), 3),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), (-87, 30), 3),
    "erf": (np.vectorize(math.erf), (-6, 6), 3),
    "erfc": (np.vectorize(math.erfc), (-6, 9), 7),
    "asin": (np.arcsin, (-1, 1), 1.5),
    "acos": (np.arccos, (-1, 1), 1.5),
    "atan": (np.arctan, (-30, 30), 1.2),
    "sinh": (np.sinh, (-91, 91), 2),
    "cosh": (np.cosh, (-91, 91), 2),
    "atanh": (np.arctanh, (-1, 1), 2),
    "sqrt": (np.sqrt, (0, 1e30), 1),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (1e-30, 1e30), 2),
}
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 88.72, -103.9, -104.1, 89.0, 1.0, -1.0, 3e38]
)


def one(op, **attrs):
    def run(*arrays):
        builder = Builder()
        f = Namespace(builder)
        values = [builder.input(a.shape, a.dtype) for a in arrays]
        cluster = builder.build([getattr(f, op)(*values, **attrs)])
        out = np.empty(cluster.aval(cluster.outputs[0]).shape, cluster.aval(cluster.outputs[0]).dtype)
        clusters.fuse(cluster)(*arrays, out)
        return out

    return run


def arguments(low, high):
    rng = np.random.default_rng(0)
    spread = rng.uniform(low, high, 20000)
    small = rng.uniform(-1, 1, 20000) * 10.0 ** rng.integers(-9, 1, 20000)
    small = np.abs(small) if low >= 0 else small
    scale = np.exp(rng.uniform(math.log(max(low, 1e-44)), math.log(high), 20000)) if low >= 0 else spread[:9]
    x = np.concatenate([spread, small, scale]).astype(np.float32)
    return x[(x >= low) & (x <= high)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_functions_are_right_to_a_few_units_in_the_last_place(name):
    reference, (low, high), units = FUNCTIONS[name]
    x = arguments(low, high)

    made = one(name)(x)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        rounded = exact.astype(np.float32)
        step = np.maximum(np.spacing(np.abs(rounded)), np.float32(1.4e-45)).astype(np.float64)
    finite = np.abs(exact) < 3.4e38

    assert np.all(np.abs(made[finite].astype(np.float64) - exact[finite]) <= units * step[finite])
    assert np.array_equal(made[~finite], rounded[~finite])


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_at_zeros_infinities_nan_and_denormals(name, dtype):
    reference, _, units = FUNCTIONS[name]
    x = SPECIAL.astype(dtype)

    made = one(name)(x)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64)).astype(dtype)

    special = ~np.isfinite(exact) | (exact == 0)
    assert np.array_equal(made[special], exact[special], equal_nan=True)
    assert np.array_equal(np.signbit(made[exact == 0]), np.signbit(exact[exact == 0]))
    assert np.allclose(made[~special], exact[~special], rtol=units * 2e-7, atol=3e-45)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_extremes_treat_nan_as_numpy_does(name):
    x, y = (a.ravel().copy() for a in np.meshgrid(SPECIAL.astype(np.float32), SPECIAL.astype(np.float32)))

    assert np.array_equal(one(name)(x, y), getattr(np, name)(x, y), equal_nan=True)


@pytest.mark.parametrize(
    "name", ["isnan", "isinf", "isfinite", "signbit", "sign", "abs", "relu", "floor", "trunc", "logical_not"]
)
def test_tests_and_roundings_at_special_values(name):
    x = SPECIAL.astype(np.float32)
    numpy_name = {"abs": "absolute"}.get(name, name)
    expected = {
        "sign": lambda v: np.where(np.isnan(v), 0, np.sign(v)),
        "relu": lambda v: np.maximum(v, 0),
    }.get(name, getattr(np, numpy_name, None))

    with np.errstate(all="ignore"):
        assert np.array_equal(one(name)(x), expected(x), equal_nan=True)


@pytest.mark.parametrize(
    "name",
    ["exp", "log", "tanh", "sigmoid", "erf", "erfc", "atan", "sinh", "gelu", "silu", "softplus", "relu"],
)
def test_loops_over_float32_become_vectors(name):
    builder = Builder()
    made = getattr(Namespace(builder), name)(builder.input((1 << 16,), np.float32))
    cluster = builder.build([made[0] if isinstance(made, tuple) else made])
    arrays = [np.zeros(1 << 16, np.float32) for _ in range(2)]

    text = str(llvm.compiler().optimised(clusters.fuse(cluster).generated(arrays).text))

    assert re.search(r"store <\d+ x float>", text)
    assert not re.search(r"call float @(exp|log|tanh|erf)", text)


def test_the_error_function_is_exact_at_zero_and_infinity():
    x = np.array([0.0, np.inf, -np.inf], np.float32)

    assert one("erf")(x).tolist() == [0, 1, -1]
    assert one("erfc")(x).tolist() == [1, 0, 2]


def test_machine_code_is_found_again_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TENON_CACHE", str(tmp_path))
    text_compiler = llvm._Compiler()
    builder = Builder()
    x = builder.input((11, 7), np.float32)
    cluster = builder.build([x * 3.0])
    a, out = np.ones((11, 7), np.float32), np.empty((11, 7), np.float32)
    text = clusters.FusedKernel(cluster).generated([a, out]).text

    compiled = llvm.counts.compiled
    text_compiler.function(text, "entry")
    assert llvm.counts.compiled == compiled + 1
    llvm._Compiler().function(text, "entry")
    assert llvm.counts.compiled == compiled + 1

    (entry,) = tmp_path.rglob("cluster-*.signed")
    text_compiler.store.write(entry.stem, b"no object file")
    llvm._Compiler().function(text, "entry")
    assert llvm.counts.compiled == compiled + 2


CAST = ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"]


@pytest.mark.parametrize(
    "source", ["float32", *(pytest.param(name, marks=pytest.mark.slow) for name in CAST[1:])]
)
def test_casts_between_all_dtypes_are_numpys(source):
    x = np.array([0, 1, 2, 3, 100]).astype(source)
    for target in CAST:
        made = one("cast", dtype=np.dtype(target))(x)
        assert made.dtype == target and np.array_equal(made, x.astype(target)), target


FLOAT16 = """
import numpy as np, tenon.ops
from tenon.graph.cluster import Builder, Namespace
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.fusion import clusters

def cast(x, dtype):
    builder = Builder()
    cluster = builder.build([Namespace(builder).cast(builder.input(x.shape, x.dtype), dtype=np.dtype(dtype))])
    out = np.empty(x.shape, dtype)
    clusters.fuse(cluster)(x, out)
    return out

assert not llvm.compiler().has_fma
short = np.arange(65536, dtype=np.uint16).view(np.float16)
assert np.array_equal(cast(short, "float32"), short.astype(np.float32), equal_nan=True)
bits = np.arange(0, 1 << 32, 4999, dtype=np.uint32)
halfway = short[~np.isnan(short)].astype(np.float32).view(np.uint32) + np.arange(4095, 4098, dtype=np.uint32)[:, None]
wide = np.concatenate([bits, halfway.ravel()]).view(np.float32)
with np.errstate(all="ignore"):
    assert np.array_equal(cast(wide, "float16"), wide.astype(np.float16), equal_nan=True)
print("equal")
"""


def test_float16_is_converted_as_numpy_does_where_the_processor_has_no_instruction_for_it():
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CPU_FEATURES"}
    run = subprocess.run(
        [sys.executable, "-c", FLOAT16],
        env={**environment, "NUMBA_CPU_NAME": "generic"},
        capture_output=True,
        text=True,
    )

    assert (run.returncode, run.stdout) == (0, "equal\n"), run.stderr


def test_bfloat16_is_rounded_to_nearest_even_once():
    import ml_dtypes

    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(1000), [np.nan, np.inf, 1e-40, 3.39e38]]).astype(np.float32)

    made = one("cast", dtype=np.dtype(ml_dtypes.bfloat16))(x)

    assert np.array_equal(
        made.astype(np.float32), x.astype(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True
    )

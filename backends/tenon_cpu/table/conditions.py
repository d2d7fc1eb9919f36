"""Conditions of the CPU backend's kernels, with the descriptions that ``tenon doctor kernels`` prints."""

from __future__ import annotations

from tenon.extend import Condition, dtype_is
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.eager_ops.calls import FLOAT, indices_fit

#: Checked last, when a call is large enough: the search for numba takes time.
NUMBA = Condition("numba()", "compiled kernels are available (numba)", {"numba": available})
LLVM = Condition("llvm()", "generated code is available (llvmlite)", {"llvm": llvm.available})
LAST_AXIS = Condition("axis == x.ndim - 1", "axis is the last one", {}, "axis")
NO_OUT = Condition("out is None", "out is not given")


def floats(*arrays: str) -> tuple[Condition, Condition]:
    """Require float32 arrays (one whose name ends with ``?`` may be None) and numba."""
    return dtype_is(FLOAT, *arrays), NUMBA


def contiguous(*arrays: str) -> Condition:
    """Require nonempty arrays in C order, all float32 or all float64; one whose name ends with ``?`` may be
    None."""
    first, code = arrays[0], [f"{arrays[0]}.dtype.char in 'fd'"]
    for name in arrays:
        array = name.rstrip("?")
        test = f"{array}.flags.c_contiguous and {array}.size"
        if array != first:
            test = f"{array}.dtype is {first}.dtype and {test}"
        code.append(f"({array} is None or {test})" if name.endswith("?") else test)
    names = ", ".join(a.rstrip("?") for a in arrays)
    return Condition(
        " and ".join(code), f"{names} in C order, of float32 or of float64, not empty", {},
        f"{first}.dtype.name, {first}.flags.c_contiguous",
    )  # fmt: skip


def real(array: str) -> Condition:
    """Require float32 or float64."""
    return Condition(f"{array}.dtype.char in 'fd'", f"{array} of float32 or float64", {}, f"{array}.dtype")


def rank(array: str, test: str, description: str = "") -> Condition:
    """Require a rank that satisfies ``test``, for example ``== 2``."""
    return Condition(f"{array}.ndim {test}", description or f"{array} has {test} axes", {}, f"{array}.ndim")


def indices(array: str) -> Condition:
    """Require int64 in C order."""
    return Condition(
        f"indices_fit({array})", f"{array} holds int64 in C order", {"indices_fit": indices_fit},
        f"{array}.dtype",
    )  # fmt: skip


def same_shape(one: str, other: str) -> Condition:
    """Require two arrays of equal shape."""
    return Condition(
        f"{one}.shape == {other}.shape", f"{one} and {other} of one shape", {}, f"{one}.shape, {other}.shape"
    )

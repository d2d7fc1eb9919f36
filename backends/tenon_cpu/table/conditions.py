"""What the CPU backend's kernels ask of a call, in the words that ``tenon doctor kernels`` prints."""

from __future__ import annotations

from tenon.extend import Condition, dtype_is
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.eager_ops.calls import FLOAT, indices_fit

#: Asked last, when a call is large enough: looking for numba takes a while.
NUMBA = Condition("numba()", "compiled kernels are available (numba)", {"numba": available})
LLVM = Condition("llvm()", "generated code is available (llvmlite)", {"llvm": llvm.available})
LAST_AXIS = Condition("axis == x.ndim - 1", "axis is the last one", {}, "axis")
NO_OUT = Condition("out is None", "out is not given")


def floats(*arrays: str) -> tuple[Condition, Condition]:
    """float32 arrays (one whose name ends with ``?`` may be None), for a compiled kernel."""
    return dtype_is(FLOAT, *arrays), NUMBA


def contiguous(*arrays: str) -> Condition:
    """Arrays in C order, not empty, all of float32 or all of float64; with ``?`` one may be None."""
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
    """float32 or float64."""
    return Condition(f"{array}.dtype.char in 'fd'", f"{array} of float32 or float64", {}, f"{array}.dtype")


def rank(array: str, test: str, says: str = "") -> Condition:
    """How many axes an array has, as ``== 2``."""
    return Condition(f"{array}.ndim {test}", says or f"{array} has {test} axes", {}, f"{array}.ndim")


def indices(array: str) -> Condition:
    """int64 in C order."""
    return Condition(
        f"indices_fit({array})", f"{array} holds int64 in C order", {"indices_fit": indices_fit},
        f"{array}.dtype",
    )  # fmt: skip


def same_shape(one: str, other: str) -> Condition:
    """Two arrays of one shape."""
    return Condition(
        f"{one}.shape == {other}.shape", f"{one} and {other} of one shape", {}, f"{one}.shape, {other}.shape"
    )

"""Elementwise ops on large float32 arrays by generated code, where NumPy has no loop of its own for them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import copysign as _copysign
from tenon.ops import erf as _erf
from tenon.ops import erfc as _erfc
from tenon_cpu.jit import codegen_llvm, short
from tenon_cpu.jit.calls import FLOAT, WORTH


def _made(op: Any, *args: Any, **attrs: Any) -> Any:
    """``op`` of arrays; its own forward where they are small, or there is no compiler."""
    large = all(
        a.__class__ is np.ndarray and a.dtype is FLOAT and a.size >= WORTH and a.flags.aligned for a in args
    )
    found = None
    if large and not attrs and codegen_llvm.available():
        found = short.elementwise(op.name, args, attrs, FLOAT, FLOAT)
    if found is not None:
        return found
    return op.forward(np, *args, **attrs)


KERNELS: dict[str, Kernel] = {op.name: functools.partial(_made, op) for op in (_erf, _erfc, _copysign)}

__all__ = ["KERNELS"]

"""Eager kernels bound to a compiled program's memory: they write into it, where others return an array to
copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tenon.extend import Attr, Kernel
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS
from tenon_cpu.jit.fusion.chains import Input

#: Ops with a kernel that writes to ``out``; their other kernels ignore it.
_FILLING = frozenset(("embedding", "cross_entropy_grad"))


def prepare(
    kernel: Kernel, name: str, ins: Sequence[Input], attrs: Mapping[str, Attr], outs: Sequence[np.ndarray]
) -> Callable[[], None] | None:
    """Return ``kernel``, of the op ``name``, bound to ``outs``; None where it would not be faster."""
    if name not in _FILLING:
        return None
    (out,) = outs
    if out.size < MIN_ELEMENTS or out.dtype is not FLOAT or not out.flags.carray:
        return None

    def run() -> None:
        result = kernel(*ins, **attrs, out=out)
        if result is not out:
            np.copyto(out, result)

    return run

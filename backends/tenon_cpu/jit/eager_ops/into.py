"""Eager kernels that write straight into a compiled program's memory, instead of an array to be copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon_cpu.jit.eager_ops.calls import FLOAT, WORTH

#: Ops of which a row fills the ``out`` that it is given; other rows leave it alone.
_FILLING = frozenset(("embedding", "cross_entropy_grad"))


def prepare(
    kernel: Kernel, name: str, ins: Sequence[Any], attrs: Mapping[str, Any], outs: Sequence[Any]
) -> Callable[[], None] | None:
    """``kernel``, of the op called ``name``, bound to ``outs``; None where a copy is as good."""
    if name not in _FILLING:
        return None
    (out,) = outs
    if out.size < WORTH or out.dtype is not FLOAT or not out.flags.carray:
        return None

    def run() -> None:
        made = kernel(*ins, **attrs, out=out)
        if made is not out:
            np.copyto(out, made)

    return run

"""Eager kernels that write straight into a compiled program's memory, instead of an array to be copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon_cpu.jit.calls import FLOAT, WORTH
from tenon_cpu.jit.eager_parts import embedding
from tenon_cpu.jit.eager_rows import cross_entropy_grad

#: Kernels that fill the ``out`` they are given, where their loops serve the call.
_FILLING: dict[str, Callable[..., Any]] = {"embedding": embedding}
#: Those that get the namespace of raw ops first.
_FILLING_COMPOSITES: dict[str, Callable[..., Any]] = {"cross_entropy_grad": cross_entropy_grad}


def prepare(
    f: Any, name: str, ins: Sequence[Any], attrs: Mapping[str, Any], outs: Sequence[Any]
) -> Callable[[], None] | None:
    """The kernel of an op bound to ``outs``; None where a copy is as good."""
    filling, first = (_FILLING.get(name), ()) if name in _FILLING else (_FILLING_COMPOSITES.get(name), (f,))
    if filling is None:
        return None
    (out,) = outs
    if out.size < WORTH or out.dtype is not FLOAT or not out.flags.carray:
        return None

    def run() -> None:
        made = filling(*first, *ins, **attrs, out=out)
        if made is not out:
            np.copyto(out, made)

    return run

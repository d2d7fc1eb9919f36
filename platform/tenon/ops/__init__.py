"""What can be computed: the flat namespace of ops, ``ops.exp(t)``.

Arrays are positional, everything else is a keyword. As the ``f`` of a rule this module tapes or
records; ``backend.raw`` has the same names for bare arrays.
"""

from __future__ import annotations

from typing import Any

from tenon.engine import backward, dispatch, meta  # noqa: F401 - what ops need beneath them
from tenon.engine.op import table
from tenon.ops import (  # noqa: F401
    angles,
    aten,
    bessel,
    compare,
    complex,
    composite,
    contraction,
    convolution,
    ctc,
    elementwise,
    extremes,
    fft,
    gamma,
    indexing,
    integer_parts,
    joining,
    matrices,
    memory,
    movement,
    numeric,
    once,
    piecewise,
    placing,
    prod_parts,
    quantized,
    quantized_recurrent,
    random,
    random_slopes,
    reduce,
    scatter_extreme,
    segments,
    smooth,
    spatial,
    special,
    standing,
    strided,
)
from tenon.tensors import inplace  # noqa: F401 - what ops need beneath them

# Importing a submodule put it under its name here; where an op has the same name, the op is meant.
globals().update({name: op for name, op in table.by_name.items() if name in globals()})


def _define(name: str) -> None:
    """Import the op ``name`` if a plugin offers it; it enters the table by itself."""
    from tenon.plugins import registry  # imports pluggy, which reading names needs not

    if name in registry.names("ops"):
        registry.resolve("ops", name)


table.define = _define


def __getattr__(name: str) -> Any:
    return getattr(table, name)


def __dir__() -> list[str]:
    return sorted(table.by_name)

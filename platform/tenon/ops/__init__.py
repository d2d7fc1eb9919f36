"""The flat namespace of ops: ``ops.exp(t)``.

Arrays are positional arguments, attributes are keywords. Passed as ``f`` to a rule, this module computes on
tensors, with autograd or into a graph that is being recorded; ``backend.raw`` has the same names for bare
arrays. Each op is one class in one of the modules below; see ``engine/op.py`` for what such a class states.
"""

from __future__ import annotations

import importlib
from typing import Any

from tenon.compat import torch_dispatch  # noqa: F401 - registers itself with tensors
from tenon.compat.finder import is_second_name
from tenon.engine import backward, dispatch  # noqa: F401 - ops need them
from tenon.engine.op import table
from tenon.kernels import expressions, meta  # noqa: F401 - ops need them
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
    double_backward,
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
    ordering,
    piecewise,
    prod_gradient,
    quantized,
    quantized_recurrent,
    random,
    randomized_relu,
    reduce,
    scatter_extreme,
    segments,
    slice_scatter,
    smooth,
    spatial,
    special,
    strided,
)
from tenon.tensors import inplace  # noqa: F401 - ops need them

# Importing a submodule binds its name here; an op of the same name takes precedence.
globals().update({name: op for name, op in table.by_name.items() if name in globals()})


def _define(name: str) -> None:
    """Import the op ``name`` if a plugin provides it; its class registers itself in the table."""
    from tenon.plugins import registry  # imports pluggy, which reading a built-in op does without

    if name in registry.names("ops"):
        registry.resolve("ops", name)


table.define = _define


def load_library(path: str) -> None:
    """Raise OSError, as torch.ops.load_library does for a file that is not there: libraries handle that, and
    go on without their extension."""
    raise OSError(
        f"torch.ops.load_library({path!r}): it is compiled for PyTorch, whose code tenon does not run."
    )


def __getattr__(name: str) -> Any:  # an Op; callers know the class
    if name.lstrip("_").startswith("c10d") and is_second_name(f"{__name__}.{name}"):
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(table, name)


def __dir__() -> list[str]:
    return sorted(table.by_name)

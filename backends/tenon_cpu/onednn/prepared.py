"""Implement ``Backend.prepare`` in the layouts that a pass assigned: convolutions, pooling, batch norm, sums
and int8.

``attrs["layouts"]`` is the op's ``Assigned``; without it all arrays are plain. A rule returns None where
oneDNN is not faster than the eager kernel. That is allowed for plain arrays only: the eager kernel would
misread others, so it is an error for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from tenon.extend import Attrs, Operand, Thunk, errors
from tenon_cpu.onednn import norm, pooling, prepared_convolution, prepared_int8, reductions
from tenon_cpu.onednn.layouts import Assigned
from tenon_cpu.onednn.runtime import available

Rule = Callable[[Sequence[Operand], Attrs, Sequence[np.ndarray], Assigned], "Thunk | None"]


def _prepared(
    name: str, rule: Rule, ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray]
) -> Thunk | None:
    op_attrs = dict(attrs)
    layouts = op_attrs.pop("layouts", None) or Assigned.plain(ins, outs)
    arrays = [a for a in (*ins, *outs) if isinstance(a, np.ndarray)]
    usable = available() and all(a.size for a in arrays)
    thunk: Thunk | None = rule(ins, op_attrs, outs, layouts) if usable else None
    if thunk is None and not layouts.all_plain:
        raise errors.BackendError(
            f"{name}: no kernel computes {[(a.dtype.name, a.shape) for a in arrays]} in the layouts"
            f" {layouts.inputs} -> {layouts.outputs}. Assign the layouts that wanted_layouts returns."
        )
    return thunk


PREPARE: dict[str, Callable[[Sequence[Operand], Attrs, Sequence[np.ndarray]], Thunk | None]] = {
    name: functools.partial(_prepared, name, rule)
    for table in (
        prepared_convolution.PREPARE,
        pooling.PREPARE,
        norm.PREPARE,
        reductions.PREPARE,
        prepared_int8.PREPARE,
    )
    for name, rule in table.items()
}

__all__ = ["PREPARE"]

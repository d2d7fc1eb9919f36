"""Every kernel of the CPU backend, op by op, in the order in which they are asked.

A new kernel is one row in one of these files. ``tenon doctor kernels OP`` prints what they say.
"""

from __future__ import annotations

from tenon.extend import KernelTable
from tenon_cpu.table import (
    activations,
    elementwise,
    indexing,
    matrices,
    products,
    quantized,
    recurrent,
    reductions,
    rows,
    space,
)

_PARTS = (
    elementwise, activations, reductions, rows, products, recurrent, quantized, indexing, space, matrices,
)  # fmt: skip


def kernel_table() -> KernelTable:
    """All rows."""
    table = KernelTable()
    for part in _PARTS:
        part.add_to(table)
    return table


__all__ = ["kernel_table"]

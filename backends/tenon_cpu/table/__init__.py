"""Every kernel of the CPU backend, op by op, in order of precedence.

A new kernel is one row in one of these files. ``tenon doctor kernels OP`` prints them.
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
    spatial,
)

_PARTS = (
    elementwise, activations, reductions, rows, products, recurrent, quantized, indexing, spatial, matrices,
)  # fmt: skip


def kernel_table() -> KernelTable:
    """Return the table with the rows of all files."""
    table = KernelTable()
    for part in _PARTS:
        part.add_to(table)
    return table


__all__ = ["kernel_table"]

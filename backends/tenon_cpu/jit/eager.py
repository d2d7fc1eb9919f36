"""The compiled kernels as ops, by name: see ``calls`` for which calls they serve."""

from __future__ import annotations

from tenon.extend import Kernel
from tenon_cpu.jit import (
    attention,
    eager_fourier,
    eager_lines,
    eager_moves,
    eager_parts,
    eager_points,
    eager_space,
    eager_sparse,
)

KERNELS: dict[str, Kernel] = {
    **eager_parts.KERNELS,
    **eager_lines.KERNELS,
    **eager_moves.KERNELS,
    **eager_points.KERNELS,
    **eager_fourier.KERNELS,
    **eager_space.KERNELS,
}
COMPOSITES: dict[str, Kernel] = {
    **eager_parts.COMPOSITES,
    **eager_points.COMPOSITES,
    **eager_lines.COMPOSITES,
    **eager_moves.COMPOSITES,
    **eager_space.COMPOSITES,
    **eager_sparse.COMPOSITES,
    **attention.COMPOSITES,
}

__all__ = ["COMPOSITES", "KERNELS"]

"""The compiled kernels as ops, by name: see ``calls`` for which calls they serve."""

from __future__ import annotations

from tenon.extend import Kernel
from tenon_cpu.jit import attention
from tenon_cpu.jit.eager_ops import fourier as eager_fourier
from tenon_cpu.jit.eager_ops import lines as eager_lines
from tenon_cpu.jit.eager_ops import moves as eager_moves
from tenon_cpu.jit.eager_ops import parts as eager_parts
from tenon_cpu.jit.eager_ops import points as eager_points
from tenon_cpu.jit.eager_ops import space as eager_space
from tenon_cpu.jit.eager_ops import sparse as eager_sparse

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

"""The compiled kernels as ops, by name: see ``calls`` for which calls they serve."""

from __future__ import annotations

from tenon.extend import Kernel
from tenon_cpu.jit import eager_parts, eager_rows

KERNELS: dict[str, Kernel] = {**eager_parts.KERNELS}
COMPOSITES: dict[str, Kernel] = {**eager_parts.COMPOSITES, **eager_rows.COMPOSITES}

__all__ = ["COMPOSITES", "KERNELS"]

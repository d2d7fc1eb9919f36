"""The CPU's compiler: generated machine code for clusters, and steps bound to their arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np

from tenon.extend import Backend, Compiler, Op

if TYPE_CHECKING:
    from tenon.extend import Attrs, LayoutRules, Operand, Thunk
    from tenon_cpu.jit.fusion.clusters import FusedKernel
    from tenon_cpu.jit.fusion.domain import Cluster
    from tenon_cpu.jit.fusion.optimizer import EachKernel
    from tenon_cpu.kernels.updates import EachUpdate


class CpuCompiler(Compiler):
    """Compiler of the CPU backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def fuse(self, cluster: Cluster) -> FusedKernel | None:
        """Generate machine code for a cluster of ops; None if there is none for it."""
        from tenon_cpu.jit.fusion import clusters

        return clusters.fuse(cluster)

    def fuse_each(self, cluster: Cluster, targets: tuple[int, ...]) -> EachKernel | EachUpdate | None:
        """Generate machine code that applies a rule to many arrays; without llvmlite, NumPy's functions
        do."""
        from tenon_cpu.jit.fusion import optimizer

        return optimizer.fuse_each(cluster, targets)

    def prepare(
        self, op: Op, ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray]
    ) -> Thunk | None:
        """Bind loops for tiny products, a oneDNN primitive, or a kernel that fills ``outs``."""
        from tenon_cpu import onednn
        from tenon_cpu.jit import attention
        from tenon_cpu.jit.eager_ops import bound_kernels
        from tenon_cpu.jit.fusion import chains

        kernels = self.backend.kernels
        return (
            chains.prepare(op.name, ins, attrs, outs)
            or onednn.prepare(op.name, ins, attrs, outs)
            or attention.prepare(kernels[op], op.name, ins, attrs, outs)
            or bound_kernels.prepare(kernels[op], op.name, ins, attrs, outs)
        )

    def chain(self, thunks: Sequence[Thunk]) -> Sequence[tuple[int, Thunk]]:
        """Merge consecutive generated kernels into one call."""
        from tenon_cpu.jit.fusion import chains

        return chains.chain(thunks)

    def layouts(self) -> LayoutRules | None:
        """oneDNN's blocked layouts; None without oneDNN."""
        from tenon_cpu.onednn import available, preferred_layouts

        return preferred_layouts if available() else None

    def binding(self) -> AbstractContextManager[None]:
        """A context in which generated kernels are bound that share their temporary arrays."""
        from tenon_cpu.jit.fusion import scratch

        return scratch.shared()

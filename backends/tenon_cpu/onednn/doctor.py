"""The rows of ``tenon doctor`` about oneDNN."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tenon_cpu.onednn.cache import caches
from tenon_cpu.onednn.eager import matmul
from tenon_cpu.onednn.runtime import available, runtime

_ISA = {
    0x1: "SSE4.1", 0x3: "AVX", 0x7: "AVX2", 0xF: "AVX2 + VNNI", 0x27: "AVX-512", 0x67: "AVX-512 + VNNI",
    0xE7: "AVX-512 + bf16", 0x1EF: "AVX-512 + fp16", 0xFEF: "AMX", 0x1FEF: "AMX + fp16",
}  # fmt: skip


def rows() -> Iterable[tuple[str, str]]:
    """Yield (title, text): the library or why there is none, instruction set, threads, a trial matrix
    product, the counters of each cache."""
    availability = available()
    yield "library", availability.reason
    if not availability:
        return
    here = runtime()
    isa = here.library.functions["dnnl_get_effective_cpu_isa"]()
    yield "instructions", _ISA.get(isa, f"{isa:#x}")
    yield "threads", f"{here.threads} (follows BLAS: OMP_NUM_THREADS or OPENBLAS_NUM_THREADS)"
    yield "trial product", _trial()
    for cache in caches:
        counts = cache.counts()
        yield (
            f"cache of {cache.name}",
            (
                f"{counts.size} prepared (at most {counts.capacity} a thread), {counts.hits} hits,"
                f" {counts.misses} misses"
            ),
        )


def _trial() -> str:
    """Compare oneDNN's result of a matrix product with NumPy's, twice, so that the cache is used too."""
    x = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    difference = max(float(np.abs(matmul(x, x) - x.astype(np.float64) @ x).max()) for _ in range(2))
    return f"{'agrees with' if difference < 1e-3 else 'DIFFERS from'} NumPy's (by {difference:.1g} at most)"

"""What ``tenon doctor`` says about oneDNN."""

from __future__ import annotations

from collections.abc import Iterable

from tenon_cpu.onednn.cache import caches
from tenon_cpu.onednn.runtime import available, runtime

_ISA = {
    0x1: "SSE4.1", 0x3: "AVX", 0x7: "AVX2", 0xF: "AVX2 + VNNI", 0x27: "AVX-512", 0x67: "AVX-512 + VNNI",
    0xE7: "AVX-512 + bf16", 0x1EF: "AVX-512 + fp16", 0xFEF: "AMX", 0x1FEF: "AMX + fp16",
}  # fmt: skip


def rows() -> Iterable[tuple[str, str]]:
    """Library or reason, instruction set, threads, and each cache's counters."""
    found = available()
    yield "library", found.reason
    if not found:
        return
    here = runtime()
    isa = here.library.functions["dnnl_get_effective_cpu_isa"]()
    yield "instructions", _ISA.get(isa, f"{isa:#x}")
    yield "threads", f"{here.threads} (follows BLAS: OMP_NUM_THREADS or OPENBLAS_NUM_THREADS)"
    for cache in caches:
        counts = cache.counts()
        yield (
            f"cache of {cache.name}",
            (
                f"{counts.size} prepared (at most {counts.capacity} a thread), {counts.hits} hits,"
                f" {counts.misses} misses"
            ),
        )

"""The sections of ``tenon doctor`` on the CPU's threads and compiled kernels."""

from __future__ import annotations

from collections.abc import Iterable

from tenon_cpu import threads
from tenon_cpu.jit.compiler import compile as jit

Row = tuple[str, str]


def thread_rows() -> Iterable[Row]:
    """The name and size of each set of threads in the process."""
    from tenon_cpu.onednn.runtime import available as onednn_available
    from tenon_cpu.onednn.runtime import runtime

    pool = threads.pool()
    yield "in use", str(threads.usable())
    yield "BLAS", f"{pool.blas.get()}{'' if pool.blas.found else ' (no OpenBLAS: cannot be changed)'}"
    yield "oneDNN", str(runtime().threads) if onednn_available() else "not in use"
    yield "thread pool", f"{pool.size}, one of them the caller's"
    yield "OpenMP libraries", ", ".join(openmp_libraries()) or "none loaded"


def openmp_libraries() -> list[str]:
    """Files of the OpenMP libraries that this process has loaded; with several, their threads compete."""
    return [path for name in ("libgomp", "libiomp5", "libomp") for path in threads.loaded_libraries(name)]


def kernel_rows() -> Iterable[Row]:
    """numba's version, or why it is not used; where machine code is kept, and how much of it."""
    if not jit.available():
        yield "numba", f"not in use: {jit.reason()}"
        return
    yield "numba", f"{_version('numba')} (LLVM {_llvm()})"
    store = jit.store()
    count, size = store.entries()
    if store.usable:
        yield "machine code", f"{count} kernels, {size / 1e6:.1f} MB in {store.folder}"
    else:
        yield "machine code", f"not kept: {store.reason}"
    counts = jit.counts
    yield "this process", f"{counts.loaded} loaded, {counts.compiled} compiled, {counts.seconds:.1f} s"


def _version(name: str) -> str:
    import importlib.metadata

    return importlib.metadata.version(name)


def _llvm() -> str:
    from llvmlite import binding

    return ".".join(map(str, binding.llvm_version_info))

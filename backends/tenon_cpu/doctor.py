"""What ``tenon doctor`` says about the CPU's threads and compiled kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenon_cpu import threads
from tenon_cpu.jit.compiler import compile as jit

Row = tuple[str, str]


def thread_rows() -> Iterable[Row]:
    """Each set of threads in the process, and its size."""
    from tenon_cpu.onednn.runtime import available as onednn_available
    from tenon_cpu.onednn.runtime import runtime

    found = threads.pool()
    yield "in use", str(threads.usable())
    yield "BLAS", f"{found.blas.get()}{'' if found.blas.found else ' (not an OpenBLAS: it cannot be told)'}"
    yield "oneDNN", str(runtime().threads) if onednn_available() else "not in use"
    yield "shared-out work", f"{found.size}, one of them the caller's"
    yield "OpenMP libraries", ", ".join(openmp_libraries()) or "none loaded"


def openmp_libraries() -> list[str]:
    """Files of the OpenMP libraries that this process has loaded; more than one means rival threads."""
    return [path for name in ("libgomp", "libiomp5", "libomp") for path in threads.loaded_libraries(name)]


def kernel_rows() -> Iterable[Row]:
    """numba's version, or why there is none; where machine code is kept."""
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
    done = jit.counts
    yield "this process", f"{done.loaded} loaded, {done.compiled} compiled, {done.seconds:.1f} s"


def _version(name: str) -> str:
    import importlib.metadata

    return importlib.metadata.version(name)


def _llvm() -> str:
    import importlib

    binding: Any = importlib.import_module("llvmlite.binding")
    return ".".join(map(str, binding.llvm_version_info))

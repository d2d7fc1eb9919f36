"""The CPU backend: NumPy arrays, the shared reference forwards, and the kernels that beat them."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence

import numpy as np

from tenon.extend import (
    Availability,
    Backend,
    Config,
    Device,
    Kernel,
    KernelRow,
    KernelTable,
    MemoryStats,
    Op,
    Primitive,
    ShortKernel,
    random_loops,
)
from tenon_cpu.allocator import give_back, keep_freed_memory, megabytes
from tenon_cpu.compiler import CpuCompiler
from tenon_cpu.draws import CompiledLoops
from tenon_cpu.threads import set_count, split, usable

_CPU = Device("cpu")


class CpuBackend(Backend):
    """Backend of ``device="cpu"``."""

    name = "cpu"
    xp = np
    array_type = np.ndarray

    def __init__(self) -> None:
        super().__init__()
        keep_freed_memory(megabytes(Config.from_environment()))
        random_loops.use(CompiledLoops())

    @functools.cached_property
    def compiler(self) -> CpuCompiler:
        """The compiler of programs: generated machine code, and oneDNN's primitives."""
        return CpuCompiler(self)

    def is_available(self) -> Availability:
        """Available everywhere."""
        return Availability(True, f"NumPy {np.__version__}")

    def devices(self) -> Sequence[Device]:
        """One device, whatever the number of cores."""
        return (_CPU,)

    def kernel_table(self) -> KernelTable:
        """Kernels that are faster than the reference forward over NumPy."""
        from tenon_cpu.table import kernel_table

        return kernel_table()

    def rows(self, op: Op) -> Sequence[KernelRow]:
        """The op's rows of the table; an op without any, but with an expression, gets a generated kernel."""
        rows = super().rows(op)
        if op.expression is None or self.has_kernel(op) or not isinstance(op, Primitive):
            return rows
        if op.ufunc is not None or type(op).forward is not Primitive.forward:
            return rows
        from tenon_cpu.table.elementwise import generated

        return (generated(op), *rows)

    def kernels_for_short(self, op: Op) -> Sequence[ShortKernel]:
        """Generated kernels for 16-bit floats, which NumPy converts number by number."""
        from tenon_cpu.jit.short_floats import ops as short_ops

        return short_ops.kernels_for(op)

    def for_values(self, op: Op, kernel: Kernel) -> Kernel:
        """``kernel``, or one that omits what only gradients read: slopes of activations, singular vectors."""
        from tenon_cpu.jit.eager_ops import activation_values
        from tenon_cpu.kernels import factoring

        reduced = activation_values.VISIBLE.get(op.name) or factoring.VISIBLE.get(op.name)
        return kernel if reduced is None else functools.partial(reduced, kernel)

    def has_attention_kernel(self, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> bool:
        """Whether there is an attention kernel for these heads: float32, of a width of whole vectors."""
        from tenon_cpu.jit import attention

        return attention.is_supported(query, key, value)

    def prefers_bfloat16(self, op: Op) -> bool:
        """Whether oneDNN finds instructions that multiply bfloat16, whatever the op."""
        from tenon_cpu.onednn.runtime import multiplies_bfloat16

        return bool(multiplies_bfloat16())

    def matmul_into(self, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> bool:
        """Let oneDNN write the product into ``out``."""
        from tenon_cpu import onednn
        from tenon_cpu.onednn import eager

        return bool(onednn.available()) and eager.matmul_into(x, y, out)

    def copy_past_caches(self, source: np.ndarray, out: np.ndarray) -> None:
        """Let compiled code copy arrays of more than 256 KiB; others as NumPy does."""
        from tenon_cpu.jit.eager_ops import copying

        copying.copy_past_caches(source, out)

    def from_host(self, array: np.ndarray, device: Device | None = None) -> np.ndarray:
        """``array`` itself."""
        return array

    def to_host(self, array: np.ndarray) -> np.ndarray:
        """``array`` itself, or the data of an object that converts to an array."""
        return np.asarray(array)

    def as_array(self, value: object) -> np.ndarray:
        """``value`` as an array, NumPy's scalars as 0-d arrays."""
        return np.asarray(value)

    def shares_memory(self, a: np.ndarray, b: np.ndarray) -> bool:
        """Whether two arrays overlap."""
        return np.may_share_memory(a, b)

    def split(self, work: Callable[[int, int], object], count: int, least: int = 1) -> None:
        """Call ``work(start, stop)`` on chunks of ``range(count)``, on as many threads as BLAS has."""
        split(work, count, least)

    def threads(self) -> int:
        """The number of threads of BLAS, oneDNN and all other kernels."""
        return usable()

    def set_threads(self, count: int) -> None:
        """Set the number of threads of BLAS, the thread pool, and oneDNN where it is in use."""
        set_count(count)

    def device_of(self, array: object) -> Device:
        """The CPU."""
        return _CPU

    def trim(self) -> None:
        """Free what recordings and compilation leave: cycles, scratch memory, the C library's free lists."""
        from tenon_cpu import onednn

        gc.collect()
        onednn.release()
        give_back()

    def memory(self, device: Device | None = None) -> MemoryStats:
        """Resident and peak memory of this process, and the machine's total."""
        import os

        # Not getrusage: its peak is at first that of the process that started this one.
        with open("/proc/self/status") as status:
            sizes = dict(line.split(":", 1) for line in status)
        used, peak = (1024 * int(sizes[name].split()[0]) for name in ("VmRSS", "VmHWM"))
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return MemoryStats(used, max(used, peak), total)

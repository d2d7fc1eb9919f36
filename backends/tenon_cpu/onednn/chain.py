"""A primitive with reorders of those arguments whose layout is not the one that it requires.

A ``Chain`` is created once per shape. Eager ops call it with the arrays of each call, to which it keeps no
references; ``bound`` returns a function without arguments for compiled programs. Scratch memory and the
intermediate arrays of the reorders are memory that all chains of a thread share; their contents last for one
call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping

import numpy as np

from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.library import failure
from tenon_cpu.onednn.primitives import Execution, Memory, Primitive, address, address_of, reorder
from tenon_cpu.onednn.runtime import ALIGNMENT, Buffer, runtime
from tenon_cpu.onednn.signatures import DST, SCRATCHPAD, SRC

Array = np.ndarray

#: Bytes of shared memory kept by each thread; a chain that needs more allocates it in every call.
MAX_KEPT_BYTES = 256 << 20


class Shared(threading.local):
    """The memory that the chains of one thread share."""

    def __init__(self) -> None:
        self.buffer = Buffer(0)

    def at_least(self, size: int) -> Buffer:
        """Return a buffer of at least ``size`` bytes, whose contents are undefined after the call."""
        if self.buffer.size >= size:
            return self.buffer
        self.buffer = Buffer(0)  # free the old one first: the allocator may reuse its memory
        buffer = Buffer(size)
        if size <= MAX_KEPT_BYTES:
            self.buffer = buffer
        return buffer

    def release(self) -> None:
        """Free the calling thread's memory; its next chain allocates again."""
        self.buffer = Buffer(0)


shared = Shared()


class Chain:
    """``primitive`` with arguments in ``inputs`` and ``outputs``: position -> the array's descriptor.

    Call it with one array per argument, inputs first, in the order given here; on one thread at a time.
    """

    def __init__(
        self, primitive: Primitive, inputs: Mapping[int, Descriptor], outputs: Mapping[int, Descriptor]
    ) -> None:
        library = runtime().library
        self.primitive, self.size = primitive, 0
        self._set = library.quick["dnnl_memory_set_data_handle"]
        self._execute = library.functions["dnnl_primitive_execute"]
        self._base = 0  # address of the shared memory at the last call
        self._inner: list[tuple[ctypes.c_void_p, int]] = []
        self._outer: list[ctypes.c_void_p] = []
        main = primitive.execution(dict.fromkeys((*inputs, *outputs)))
        before: list[Execution] = []
        after: list[Execution] = []
        for position, descriptor in (*inputs.items(), *outputs.items()):
            layout, is_input = primitive.layout(position), position in inputs
            if layout == descriptor:
                self._outer.append(main.memory(position))
                continue
            copy = (reorder(descriptor, layout) if is_input else reorder(layout, descriptor)).execution(
                {SRC: None, DST: None}
            )
            (before if is_input else after).append(copy)
            self._outer.append(copy.memory(SRC if is_input else DST))
            offset = self._reserve(layout.size)
            self._inner += [
                (copy.memory(DST if is_input else SRC), offset),
                (main.memory(position), offset),
            ]
        self._steps: list[Execution] = [*before, main, *after]
        for step in self._steps:
            if step.primitive.scratchpad is not None:
                self._inner.append((step.memory(SCRATCHPAD), self._reserve(step.primitive.scratchpad.size)))
        self._runs = [step.run for step in self._steps]

    def _reserve(self, size: int) -> int:
        offset = self.size
        self.size += size + -size % ALIGNMENT
        return offset

    @property
    def reorders(self) -> int:
        """The number of arguments that are copied."""
        return len(self._steps) - 1

    def __call__(self, *arrays: Array) -> None:
        """Execute on ``arrays``."""
        self.bind(*[address_of(array) for array in arrays])
        self.run()

    def bind(self, *addresses: int | None) -> None:
        """Point the arguments at arrays by their addresses."""
        status, set_handle = 0, self._set
        for handle, start in zip(self._outer, addresses, strict=True):
            status |= set_handle(handle, start)
        if status:
            raise failure("dnnl_memory_set_data_handle", status, f"({self.primitive!r})")

    def bound(self, *arrays: Memory) -> Callable[[], None]:
        """Return a function without arguments that executes on ``arrays`` and keeps them alive."""
        self.bind(*[address(array) for array in arrays])
        return _Bound(self, arrays)

    def run(self) -> None:
        """Execute on the arrays that the arguments point to."""
        memory = self._scratch() if self.size else None
        execute = self._execute
        for run, step in zip(self._runs, self._steps, strict=True):
            if status := execute(*run):
                raise step.failed(status)
        del memory  # alive until here: a buffer over the limit has no other reference

    def _scratch(self) -> Buffer:
        memory = shared.at_least(self.size)
        if memory.address != self._base:
            self._base, status = 0, 0
            for handle, offset in self._inner:
                status |= self._set(handle, memory.address + offset)
            if status:
                raise failure("dnnl_memory_set_data_handle", status, f"({self.primitive!r})")
            self._base = memory.address if memory is shared.buffer else 0
        return memory


class _Bound:
    """A chain and the arrays that it is bound to."""

    __slots__ = ("arrays", "chain", "run")

    def __init__(self, chain: Chain, arrays: tuple[Memory, ...]) -> None:
        self.chain, self.arrays, self.run = chain, arrays, chain.run

    def __call__(self) -> None:
        """Execute."""
        self.run()

"""Primitives and their executions: create from descriptors, bind to memory, execute.

``Primitive(kind, *parameters)`` is created once per shape and takes 0.1 ms or more;
``primitive.execution({...})`` binds its arguments to memory; calling the execution computes.
``execution.bind`` binds one argument to other memory.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tenon.extend import errors
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.descriptors import Descriptor, dims
from tenon_cpu.onednn.library import OneDnnError, failure
from tenon_cpu.onednn.runtime import Buffer, on_fork, runtime
from tenon_cpu.onednn.signatures import (
    DST,
    POST_OP,
    PRIMITIVES,
    QUERY_ARGUMENT,
    QUERY_IMPLEMENTATION,
    QUERY_SCRATCHPAD,
    SCALES,
    SCRATCHPAD,
    SRC,
)

Memory = np.ndarray | Buffer
#: A parameter of a primitive; ``signatures.PRIMITIVES`` states by a letter which of the types it has.
Parameter: TypeAlias = Any


class _Argument(ctypes.Structure):
    _fields_ = (("position", ctypes.c_int), ("memory", ctypes.c_void_p))


class Primitive:
    """A primitive of ``kind``, a key of ``signatures.PRIMITIVES``, which lists its parameters in order.

    A parameter is a ``Descriptor`` or None, a number, a tuple of numbers (dims), or a forward ``Primitive``
    as hint. ``implementation`` is oneDNN's name of the kernel; one that contains "ref" is orders of magnitude
    slower.
    """

    def __init__(self, kind: str, *parameters: Parameter, attributes: Attributes | None = None) -> None:
        here = runtime()
        self.kind, self.parameters = kind, parameters
        quick = here.library.quick
        self._destroy = {
            "handle": quick["dnnl_primitive_destroy"],
            "descriptor": quick["dnnl_primitive_desc_destroy"],
        }
        self.threads = here.local.threads
        attributes = attributes or Attributes()
        descriptor = ctypes.c_void_p()
        if kind == "reorder":
            source, target = parameters
            here.call(
                "dnnl_reorder_primitive_desc_create",
                ctypes.byref(descriptor), source.handle, here.engine, target.handle, here.engine,
                attributes.handle,
            )  # fmt: skip
        else:
            self._create(descriptor, attributes)
        self.attributes, self.descriptor = attributes, descriptor
        self.handle = ctypes.c_void_p()
        here.call("dnnl_primitive_create", ctypes.byref(self.handle), descriptor)
        name = ctypes.c_char_p()
        here.call("dnnl_primitive_desc_query", descriptor, QUERY_IMPLEMENTATION, 0, ctypes.byref(name))
        self.implementation = (name.value or b"").decode()
        scratch = here.library.quick["dnnl_primitive_desc_query_md"](descriptor, QUERY_SCRATCHPAD, 0)
        self.scratchpad = Descriptor.copy(scratch) if scratch else None
        if self.scratchpad is not None and not self.scratchpad.size:
            self.scratchpad = None
        _live.add(self)

    @classmethod
    def if_implemented(
        cls, kind: str, *parameters: Parameter, attributes: Attributes | None = None
    ) -> Primitive | None:
        """Create a primitive; None where oneDNN has none."""
        try:
            return cls(kind, *parameters, attributes=attributes)
        except OneDnnError as error:
            if error.unimplemented:
                return None
            raise

    def _create(self, descriptor: ctypes.c_void_p, attributes: Attributes) -> None:
        here, kind = runtime(), self.kind
        letters = PRIMITIVES.get(kind)
        if letters is None or len(letters) != len(self.parameters):
            raise errors.BackendError(
                f"Primitive {kind!r} with {len(self.parameters)} parameters:"
                f" {'unknown' if letters is None else f'{len(letters)} are needed ({letters})'}."
                " See onednn/signatures.py."
            )
        parameters = [_as_c_argument(p, letter) for p, letter in zip(self.parameters, letters, strict=True)]
        name = f"dnnl_{kind}_primitive_desc_create"
        status = here.library.functions[name](
            ctypes.byref(descriptor), here.engine, *parameters, attributes.handle
        )
        if status:
            raise failure(name, status, f"({', '.join(str(p) for p in self.parameters)})")

    @property
    def reference(self) -> bool:
        """Whether oneDNN has only its slow reference kernel for this case; callers should use another
        kernel."""
        return "ref" in self.implementation

    def layout(self, position: int) -> Descriptor:
        """Return the layout that the primitive has for the argument at ``position``."""
        descriptor = runtime().library.quick["dnnl_primitive_desc_query_md"](
            self.descriptor, QUERY_ARGUMENT, position
        )
        if not descriptor or not runtime().library.quick["dnnl_memory_desc_get_size"](descriptor):
            raise errors.BackendError(
                f"{self.kind} has no argument at position {position}. See onednn/signatures.py for positions."
            )
        return Descriptor.copy(descriptor)

    def execution(self, arguments: Mapping[int, Memory | None], *, own_scratch: bool = False) -> Execution:
        """Return the primitive bound to these arguments, position -> memory; None for those that are bound
        before the first call.

        Scratch memory is shared by a thread's executions, unless ``own_scratch``.
        """
        return Execution(self, arguments, own_scratch)

    def __del__(self) -> None:
        # Attributes are missing if __init__ raised; at exit this module's globals are gone.
        attributes = self.__dict__
        for name in ("handle", "descriptor"):
            if attributes.get(name):
                attributes["_destroy"][name](attributes[name])

    def __repr__(self) -> str:
        return f"<{self.kind} {self.implementation} {', '.join(str(p) for p in self.parameters)}>"


def _as_c_argument(parameter: Parameter, letter: str) -> object:
    if letter == "m":
        return None if parameter is None else parameter.handle
    if letter == "h":
        return None if parameter is None else parameter.descriptor
    return dims(parameter) if letter == "d" else parameter


class Execution:
    """A primitive bound to memory, which it keeps alive; ``execution()`` computes.

    It may run on any thread, but not on two at once. Scratch memory is the thread's, or with ``own_scratch``
    the execution's.
    """

    def __init__(
        self, primitive: Primitive, arguments: Mapping[int, Memory | None], own_scratch: bool
    ) -> None:
        here = runtime()
        self.primitive = primitive
        self._bound: dict[int, Memory | None] = {}
        self._memory: dict[int, ctypes.c_void_p] = {}
        self._destroy = here.library.quick["dnnl_memory_destroy"]
        #: For callers that inline ``bind``: ``set_handle(memory, address)`` returns a status.
        self.set_handle = here.library.quick["dnnl_memory_set_data_handle"]
        for position, memory in arguments.items():
            self._add(position, memory)
        if primitive.scratchpad is not None:
            size = primitive.scratchpad.size
            self._add(SCRATCHPAD, Buffer(size) if own_scratch else here.local.scratch_of(size))
        self._array = (_Argument * len(self._memory))(
            *(_Argument(position, memory) for position, memory in self._memory.items())
        )
        #: For callers that inline the call: ``execute(*run)`` returns a status.
        self.execute = here.library.functions["dnnl_primitive_execute"]
        self._stream = here.local.stream
        self.run = (primitive.handle, self._stream.handle, len(self._array), self._array)
        self._shares_scratch = primitive.scratchpad is not None and not own_scratch
        self._thread = threading.get_ident()

    def _add(self, position: int, memory: Memory | None) -> None:
        here = runtime()
        handle = ctypes.c_void_p()
        if SCALES <= position < POST_OP:
            if not isinstance(memory, np.ndarray):
                raise errors.BackendError(
                    f"{self.primitive!r} needs its scales or zero points at position {position} as an array."
                )
            constants = Descriptor.of(memory)  # the primitive has no descriptor of them, only the mask
            descriptor, size = constants.handle, constants.size
        else:
            descriptor = here.library.quick["dnnl_primitive_desc_query_md"](
                self.primitive.descriptor, QUERY_ARGUMENT, position
            )
            size = here.library.quick["dnnl_memory_desc_get_size"](descriptor) if descriptor else 0
        # oneDNN accepts an argument that the primitive does not have, and may then do nothing.
        if not size:
            raise errors.BackendError(
                f"{self.primitive!r} takes no argument at position {position}. See onednn/signatures.py."
            )
        here.call("dnnl_memory_create", ctypes.byref(handle), descriptor, here.engine, address(memory))
        self._memory[position], self._bound[position] = handle, memory

    def memory(self, position: int) -> ctypes.c_void_p:
        """Return the memory object of an argument, for ``dnnl_memory_set_data_handle``."""
        return self._memory[position]

    def bind(self, position: int, memory: Memory) -> None:
        """Bind the argument at ``position`` to other memory of the same layout, and keep it alive."""
        self.point(position, address(memory))
        self._bound[position] = memory

    def point(self, position: int, target: int | None) -> None:
        """Bind the argument at ``position`` to the address ``target``; the caller keeps the memory alive."""
        status = self.set_handle(self._memory[position], target)
        if status:
            raise failure("dnnl_memory_set_data_handle", status, f"({self.primitive!r}, {position})")

    def release(self) -> None:
        """Drop the references to bound memory; for executions that stay in a cache."""
        for position in self._bound:
            if position != SCRATCHPAD:
                self._bound[position] = None

    def call(self) -> Callable[[], None]:
        """Return a function without arguments that executes, on any thread but not on two at once."""
        execute, (handle, stream, count, arguments) = self.execute, self.run
        if not self._shares_scratch:

            def alone() -> None:
                if status := execute(handle, stream, count, arguments):
                    raise self.failed(status)

            return alone
        thread, current = self._thread, threading.get_ident

        def call() -> None:
            nonlocal thread
            if thread != current():
                self.move()
                thread = current()
            if status := execute(handle, stream, count, arguments):
                raise self.failed(status)

        return call

    def move(self) -> None:
        """Bind the calling thread's scratch memory, as executions of another thread may be using the present
        one."""
        if self._shares_scratch and self.primitive.scratchpad is not None:
            self.bind(SCRATCHPAD, runtime().local.scratch_of(self.primitive.scratchpad.size))
        self._thread = threading.get_ident()

    def __call__(self) -> None:
        """Execute; raises BackendError if the status is not success."""
        if self._thread != threading.get_ident():
            self.move()
        if status := self.execute(*self.run):
            raise self.failed(status)

    def failed(self, status: int) -> errors.BackendError:
        """Return the error for a status of ``execute``."""
        if not self.primitive.handle:
            return errors.BackendError(
                f"{self.primitive!r} was prepared before a fork, for {self.primitive.threads} OpenMP threads"
                " that the child does not have. Prepare (compile) it again in the child."
            )
        return failure("dnnl_primitive_execute", status, f"({self.primitive!r}, {sorted(self._memory)})")

    def __del__(self) -> None:
        for memory in self.__dict__.get("_memory", {}).values():
            self._destroy(memory)


def address(memory: Memory | None) -> int | None:
    """Return the address of ``memory``."""
    if memory is None:
        return None
    return memory.address if isinstance(memory, Buffer) else address_of(memory)


def _address_of() -> Callable[[np.ndarray], int]:
    """Return the fastest function that reads an array's address: 0.13 us by the C field, 1.0 us by
    ``ctypes``.

    ``data`` is the first field after the object header of ``PyArrayObject``; a probe checks that at import.
    """
    head, read = object.__basicsize__, ctypes.c_size_t.from_address
    probe = np.zeros((3, 5), np.float32)
    if sys.implementation.name == "cpython" and all(
        read(id(a) + head).value == a.ctypes.data for a in (probe, probe[1:, 2:], probe.T[::-1])
    ):
        return lambda array: read(id(array) + head).value
    return lambda array: array.ctypes.data


address_of = _address_of()


def reorder(source: Descriptor, target: Descriptor) -> Primitive:
    """Return the primitive that copies from one layout to another: arguments ``SRC`` and ``DST``."""
    return Primitive("reorder", source, target)


def packed(array: np.ndarray, target: Descriptor, source: Descriptor | None = None) -> Buffer:
    """Return a copy of ``array`` in the layout ``target``; ``source`` describes ``array``, by default its
    strides do."""
    buffer, pack = packing(array, target, source)
    pack()
    return buffer


def packing(
    array: np.ndarray, target: Descriptor, source: Descriptor | None = None
) -> tuple[Buffer, Execution]:
    """Return a buffer for ``array`` in the layout ``target``, and the execution that copies the array to
    it."""
    buffer = target.buffer()
    return buffer, reorder(source or Descriptor.of(array), target).execution({SRC: array, DST: buffer})


def unpacked(buffer: Buffer, source: Descriptor) -> np.ndarray:
    """Return the values of ``buffer``, in the layout ``source``, as an array in C order."""
    shape, dtype = source.shape, source.dtype
    array = np.empty(shape, dtype)
    reorder(source, Descriptor.rows(shape, dtype)).execution({SRC: buffer, DST: array})()
    return array


_live: weakref.WeakSet[Primitive] = weakref.WeakSet()


def _after_fork() -> None:
    """Reset the handle of primitives that need threads which the forked child does not have.

    The child's copies of the objects are not destroyed; they end with the process. A NULL primitive makes
    ``execute`` return a status instead of waiting forever.
    """
    for primitive in list(_live):
        if primitive.threads != 1:
            primitive.handle.value = None


on_fork(_after_fork)

"""Backends: an array namespace plus a table of optimized kernels.

Every op has a reference forward over ``xp``; a backend lists in ``kernel_table`` only the ops for which it
has faster kernels (``kernel_table.py``). ``bind`` combines both lazily, one entry per op at its first use:
``backend.kernels[op]`` is what dispatch calls, ``backend.raw`` the same as a namespace for rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, SupportsInt

import numpy as np

from tenon.device import Device
from tenon.engine.dispatch import backends_are
from tenon.engine.op import Composite, Op, Primitive, table
from tenon.engine.plans import Plan
from tenon.engine.types import Array, ArrayNamespace, Operand, OpNamespace
from tenon.errors import BackendError, DeviceError
from tenon.kernels.compiler import HOOKS, Compiler, compiler_from_methods
from tenon.kernels.following import following
from tenon.kernels.kernel_table import Choice, KernelRow, KernelTable, select
from tenon.kernels.kernel_table import Kernel as Kernel
from tenon.kernels.plan_table import PlanTable
from tenon.kernels.rounding import is_short, keeping_digits
from tenon.kernels.short_kernels import ShortKernel, composed
from tenon.kernels.whole_arrays import WholeArrays


class Availability(NamedTuple):
    """Whether a backend can run here, and why (not)."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes in use and at peak on a device; ``total`` is None where it is not known."""

    used: int
    peak: int
    total: int | None = None


class Backend(WholeArrays):
    """Base of all backends: derive, set ``name``, ``xp`` and ``array_type``, override what differs.

    With ``from_host``, ``to_host`` and ``device_of`` that is a complete backend; everything else has a
    default. Kernels receive bare arrays and the op's attrs. A kernel of an op with ``residuals`` returns them
    as well.
    """

    name: str = ""
    xp: ArrayNamespace = None
    array_type: type = object

    def __init__(self) -> None:
        self.kernels: dict[Op, Kernel] = _KernelsByOp(
            lambda op: op.transfer if op.crosses else self.bind(op)  # type: ignore[attr-defined]
        )
        self.short_kernels: dict[Op, Kernel] = _KernelsByOp(lambda op: self.for_short(op, self.kernels[op]))
        self.plans: dict[Op, Plan] = PlanTable(self)
        self.raw = RawNamespace(self, self.kernels)
        #: The same for gradient rules on 16-bit floats.
        self.short_raw = RawNamespace(self, self.short_kernels)
        self._table: KernelTable | None = None

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        own_hooks = [name for name in HOOKS if name in vars(cls)]
        if own_hooks and "compiler" not in vars(cls):
            cls.compiler = compiler_from_methods(cls, own_hooks)  # type: ignore[assignment]

    @cached_property
    def compiler(self) -> Compiler | None:
        """The compiler of programs for this backend; None: their ops run by the same kernels as eager code.

        A backend with a compiler sets the attribute, in the class or in ``__init__``.
        """
        return None

    def is_available(self) -> Availability:
        """Whether this backend can run here, and why not; must not raise."""
        return Availability(True, "always available")

    def devices(self) -> Sequence[Device]:
        """The devices of this type on this machine."""
        return (Device(self.name),)

    def overrides(self) -> Mapping[str, Kernel]:
        """Kernels that replace the reference forward, by op name; several of an op: ``kernel_table``."""
        return {}

    def kernel_table(self) -> KernelTable:
        """The kernels of this backend by op, with the calls that each accepts; called once.

        By default those of ``overrides``, for every call. A call that no row accepts runs the reference.
        """
        return KernelTable(self.overrides())

    @property
    def table(self) -> KernelTable:
        """The result of ``kernel_table``, cached at its first use."""
        if self._table is None:
            kernels = self.kernel_table()
            kernels.check(self.name)
            self._table = kernels
        return self._table

    def has_kernel(self, op: Op) -> bool:
        """Whether the table has a kernel for ``op`` that can run on this machine."""
        return bool(self.table.usable(op.name))

    def kernel_for(self, op: Op, args: Sequence[Operand]) -> Kernel:
        """The kernel that dispatch would call with ``args``."""
        return (self.short_kernels if self.holds_short(args) else self.kernels)[op]

    def holds_short(self, args: Sequence[Operand]) -> bool:
        """Whether the first array of a call holds 16-bit floats."""
        first = next((a for a in args if isinstance(a, self.array_type)), None)
        return first is not None and is_short(first.dtype)  # type: ignore[attr-defined]

    def for_short(self, op: Op, kernel: Kernel) -> Kernel:
        """The kernel to call instead of ``kernel`` if the first array holds 16-bit floats."""
        return composed(self.kernels_for_short(op), keeping_digits(kernel) if op.keeps_digits else kernel)

    def kernels_for_short(self, op: Op) -> Sequence[ShortKernel]:
        """The kernels to try before those of the table, in order, if the first array holds 16-bit floats."""
        return ()

    def for_values(self, op: Op, kernel: Kernel) -> Kernel:
        """The kernel to call instead of ``kernel`` if the residuals of ``op`` are not needed.

        It may omit them from the tuple that it returns.
        """
        return kernel

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Array:
        """Return an uninitialised array of this shape and dtype on ``device``."""
        return self.xp.empty(shape, dtype)

    def from_host(self, array: np.ndarray, device: Device) -> Array:
        """Return ``array`` on ``device``; may be ``array`` itself if the device is the host."""
        raise BackendError(f"backend {self.name!r} defines no from_host; add it.")

    def to_host(self, array: Array) -> np.ndarray:
        """Return ``array`` as a NumPy array; may share memory if the device is the host."""
        raise BackendError(f"backend {self.name!r} defines no to_host; add it.")

    def as_array(self, value: Operand) -> Array:
        """Return a kernel's result as ``array_type`` (NumPy reductions return scalars)."""
        return self.xp.asarray(value)

    def on_device(self, device: Device) -> Backend:
        """The backend of such arrays on another device."""
        return backend_for(device)

    def shares_memory(self, a: Array, b: Array) -> bool:
        """Whether two arrays overlap."""
        return bool(self.xp.may_share_memory(a, b))

    def split(self, work: Callable[[int, int], object], count: int, least: int = 1) -> None:
        """Call ``work(start, stop)`` on chunks of ``range(count)``, in parallel where that is faster.

        Chunks have at least ``least`` elements; by default there is a single one.
        """
        work(0, count)

    def threads(self) -> int:
        """Return the number of threads that kernels use; 1 if they do not run on the host."""
        return 1

    def set_threads(self, count: int) -> None:
        """Use ``count`` threads in kernels from now on."""
        raise BackendError(f"backend {self.name!r} has no threads to set.")

    def device_of(self, array: Array) -> Device:
        """The device that holds ``array``."""
        return Device(self.name)

    def synchronize(self, device: Device | None = None) -> None:
        """Wait until all work submitted to the device is done; by default execution is synchronous."""

    def mark(self, device: Device | None = None) -> SupportsInt:
        """Return a timestamp on the device's own clock, in nanoseconds, for profilers."""
        import time

        return time.perf_counter_ns()

    def memory(self, device: Device | None = None) -> MemoryStats:
        """Memory statistics of the device."""
        raise BackendError(f"backend {self.name!r} does not report its memory.")

    def has_attention_kernel(self, query: Array, key: Array, value: Array) -> bool:
        """Return whether the fused op ``attention`` is faster than its parts for these arrays; by default
        False."""
        return False

    def prefers_bfloat16(self, op: Op) -> bool:
        """Whether ``op``, a matrix product or convolution, is faster in bfloat16 than in float32."""
        return False

    def matmul_into(self, x: Array, y: Array, out: Array) -> bool:
        """Write the product of two matrices into ``out``; False if there is no such kernel."""
        return False

    def copy_past_caches(self, source: np.ndarray, out: np.ndarray) -> None:
        """Copy a host array into ``out``, of the same shape and dtype, where nobody reads it soon.

        By default as NumPy copies, which reads the memory that it overwrites.
        """
        np.copyto(out, source)

    def trim(self) -> None:
        """Return cached free memory to the system, after one-time work; does nothing by default."""

    def bind(self, op: Op) -> Kernel:
        """The kernel of ``op`` on this backend, which runs the first row that accepts a call."""
        return select(op, self.rows(op), self._namespaces)

    def choice(self, op: Op) -> Choice:
        """How ``bind`` selects among the kernels of ``op``, for reports."""
        return Choice(op, self.rows(op), self._namespaces)

    @property
    def _namespaces(self) -> Mapping[str, ArrayNamespace | OpNamespace]:
        """Namespaces that a kernel receives if its first parameter has their name."""
        return {"f": self.raw, "xp": self.xp}

    def rows(self, op: Op) -> Sequence[KernelRow]:
        """The usable rows of ``op``, followed by the reference unless one accepts every call."""
        rows = self.table.usable(op.name)
        complete = any(not row.accepts and not row.declines for row in rows)
        return rows if complete else (*rows, KernelRow("reference", self._reference(op)))

    def _reference(self, op: Op) -> Kernel:
        """The fallback kernel of ``op``, over the array namespace."""
        if isinstance(op, Composite):
            plain = type(op).raw_forward is Composite.raw_forward
            return op.decompose if plain else op.raw_forward
        assert isinstance(op, Primitive)
        if self.xp is None:
            raise BackendError(
                f"backend {self.name!r} has no array namespace and no kernel for {op.name!r}. Add one."
            )
        if op.ufunc is not None and type(op).forward is Primitive.forward:
            ufunc: Kernel | None = getattr(self.xp, op.ufunc, None)
            if ufunc is not None:
                return ufunc
        return op.forward

    def __repr__(self) -> str:
        return f"<backend {self.name}>"

    def __reduce__(self) -> tuple[Callable[[str], Backend], tuple[str]]:
        return (backend_named, (self.name,))

    def __deepcopy__(self, memo: object) -> Backend:
        return self


class _KernelsByOp(dict[Op, Kernel]):
    """The kernels that ``bind`` returns; each is bound when it is first looked up."""

    def __init__(self, bind: Callable[[Op], Kernel]) -> None:
        super().__init__()
        self.bind = bind

    def __missing__(self, op: Op) -> Kernel:
        kernel = self[op] = self.bind(op)
        return kernel


class RawNamespace:
    """The namespace ``f`` for bare arrays: ``raw.exp(array)``. Residuals are dropped from results."""

    def __init__(self, backend: Backend, kernels: dict[Op, Kernel]) -> None:
        self._backend, self._kernels = backend, kernels
        self._around: Callable[[Op, Kernel], Kernel] | None = None

    def watch(self, around: Callable[[Op, Kernel], Kernel] | None) -> None:
        """Return ``around(op, kernel)`` instead of each kernel from now on; None restores the kernels."""
        self._around = around
        for name in [name for name in vars(self) if not name.startswith("_")]:
            delattr(self, name)

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("__"):
            raise AttributeError(name)
        op = table[name] if name in table.by_name else getattr(table, name)
        kernel = self._kernels[op]
        if op.follows:
            kernel = following(kernel, op, self._backend.xp)
        if op.residuals:
            kernel = _visible(kernel, op.outputs)
        if self._around is not None:
            kernel = self._around(op, kernel)
        setattr(self, name, kernel)
        return kernel


def _visible(kernel: Kernel, outputs: int) -> Kernel:
    def call(*args: Operand, **attrs: object) -> Operand:
        result = kernel(*args, **attrs)
        return result[0] if outputs == 1 else result[:outputs]

    return call


_INSTANCES: dict[str, Backend] = {}


def backends_in_use() -> list[Backend]:
    """Every backend instantiated so far."""
    return list(_INSTANCES.values())


def device_types() -> list[str]:
    """The device types of the installed backends, sorted; instantiates no backend."""
    from tenon.plugins import registry

    return sorted({*registry.names("backends"), *_INSTANCES, "meta"})


def backend_named(name: str) -> Backend:
    """The backend called ``name``, instantiated at its first use; DeviceError if it is unknown."""
    backend = _INSTANCES.get(name)
    if backend is None:
        from tenon.plugins import registry  # plugins load at the first use of a kind

        if name == "meta":
            from tenon.kernels.meta import META

            backend = META
        else:
            try:
                backend = registry.resolve("backends", name)()
            except AttributeError as error:
                raise DeviceError(
                    f"no backend for device type {name!r}; known: {', '.join(device_types())}. Install the"
                    " plugin that provides it, or see `tenon plugins`."
                ) from error
            if not isinstance(backend, Backend):
                raise BackendError(
                    f"the plugin's backend {name!r} is a {type(backend).__name__}, not a"
                    " tenon.extend.Backend."
                )
        # Two threads may get here at the same time; both must return one instance.
        backend = _INSTANCES.setdefault(name, backend)
    return backend


def backend_for(device: Device) -> Backend:
    """The available backend that serves ``device``; DeviceError with its reason otherwise."""
    backend = _INSTANCES.get(device.type) or backend_named(device.type)
    if device.index is not None or device.type not in _CHECKED:
        _check(backend, device)
    return backend


_CHECKED: set[str] = set()


def _check(backend: Backend, device: Device) -> None:
    available = backend.is_available()
    if not available:
        raise DeviceError(f"device {str(device)!r} cannot be used: {available.reason}")
    _CHECKED.add(device.type)
    if device.index is not None and device.type != "cpu":
        count = len(backend.devices())
        if device.index >= count:
            raise DeviceError(
                f"invalid device ordinal: {device} requested, {count} {device.type} device(s) present."
            )


backends_are(backend_for)

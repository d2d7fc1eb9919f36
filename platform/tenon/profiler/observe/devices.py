"""Time ops of asynchronous devices: marks in the device's stream, before and after each op.

A mark is an event of the device (``Backend.mark``); its time is read when records become events, as that
waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from tenon.engine.op import Op
from tenon.engine.types import Array, Operand
from tenon.engine.value import Value
from tenon.kernels.backend import Backend
from tenon.profiler.observe.records import DEVICE

if TYPE_CHECKING:
    from tenon.profiler.observe.tap import Tap


def marked_op(tap: Tap, run: Callable[..., Operand], devices: Collection[Backend]) -> Callable[..., Operand]:
    """Wrap ``run``, which is ``SLOT``'s ``single``, ``pair`` or ``execute``, to mark ops of ``devices``."""

    def marked(op: Op, *call: Operand) -> Operand:
        args = call[0] if call[0].__class__ is tuple else call
        first = next((a for a in args if isinstance(a, Value) and a._backend in devices), None)
        if first is None:
            return run(op, *call)
        backend = first._backend
        device = backend.device_of(first.raw)
        begin = backend.mark(device)
        out = run(op, *call)
        tap.lane().extend((DEVICE, op, begin, backend.mark(device), device.index or 0))
        return out

    return marked


def marked_kernel(tap: Tap, backend: Backend) -> Callable[[Op, Callable[..., Array]], Callable[..., Array]]:
    """Return a wrapper of kernels, for ``watch``, that marks their calls on ``backend``'s arrays."""

    def around(op: Op, kernel: Callable[..., Array]) -> Callable[..., Array]:
        recorded = tap.kernel(op, kernel)

        def marked(*args: Array, **attrs: object) -> Operand:
            array = next((a for a in args if isinstance(a, backend.array_type)), None)
            if array is None:
                return recorded(*args, **attrs)
            device = backend.device_of(array)
            begin = backend.mark(device)
            out = recorded(*args, **attrs)
            tap.lane().extend((DEVICE, op, begin, backend.mark(device), device.index or 0))
            return out

        return marked

    return around

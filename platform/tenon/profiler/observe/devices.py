"""Ops of devices that go on after the op returned: marks in the device's stream, before and after.

A mark is an event of the device (``Backend.mark``); what it says is asked for when records become events, as
that waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from tenon.engine.op import Op
from tenon.engine.types import Array, Operand
from tenon.engine.value import Value
from tenon.kernels.backend import Backend
from tenon.profiler.observe.records import DEVICE

if TYPE_CHECKING:
    from tenon.profiler.observe.tap import Tap


def marked_op(tap: Tap, run: Callable[..., Operand], devices: Collection[Backend]) -> Callable[..., Operand]:
    """``SLOT``'s ``single``, ``pair`` or ``execute`` that marks ops of ``devices``."""

    def marked(op: Op, *given: Any) -> Operand:
        args = given[0] if given[0].__class__ is tuple else given
        first = next((a for a in args if isinstance(a, Value) and a._backend in devices), None)
        if first is None:
            return run(op, *given)
        backend = first._backend
        device = backend.device_of(first.raw)
        begin = backend.mark(device)
        out = run(op, *given)
        tap.lane().extend((DEVICE, op, begin, backend.mark(device), device.index or 0))
        return out

    return marked


def marked_kernel(tap: Tap, backend: Backend) -> Callable[[Op, Callable[..., Array]], Callable[..., Array]]:
    """The same for the ops of rules, on ``backend``'s arrays: what its raw namespace is watched with."""

    def around(op: Op, kernel: Callable[..., Array]) -> Callable[..., Array]:
        recorded = tap.kernel(op, kernel)

        def marked(*args: Array, **attrs: Any) -> Operand:
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

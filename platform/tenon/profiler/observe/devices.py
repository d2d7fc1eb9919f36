"""Ops of devices that go on after the op returned: marks in the device's stream, before and after.

A mark is an event of the device (``Backend.mark``); what it says is asked for when records become events, as
that waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tenon.engine.value import Value
from tenon.profiler.observe.records import DEVICE


def marked_op(tap: Any, run: Callable[..., Any], devices: Collection[Any]) -> Callable[..., Any]:
    """``SLOT``'s ``single``, ``pair`` or ``execute`` that marks ops of ``devices``."""

    def marked(op: Any, *given: Any) -> Any:
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


def marked_kernel(tap: Any, backend: Any) -> Callable[[Any, Any], Any]:
    """The same for the ops of rules, on ``backend``'s arrays: what its raw namespace is watched with."""

    def around(op: Any, kernel: Any) -> Any:
        recorded = tap.kernel(op, kernel)

        def marked(*args: Any, **attrs: Any) -> Any:
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

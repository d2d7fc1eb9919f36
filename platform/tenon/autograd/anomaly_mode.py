"""Anomaly detection: a NaN in a gradient is an error that names the op, its module and where it was called.

While it is on, every node keeps the stack of the call that made it, and every gradient is looked through.
Both are dear; nothing is paid while it is off.
"""

from __future__ import annotations

import traceback
import warnings
from typing import Any

from tenon.core import scopes, watch
from tenon.core.value import Value
from tenon.errors import AnomalyError, TenonWarning


class _State:
    """The mode of this process: the innermost context decides."""

    enabled = False
    check_nan = True


class set_detect_anomaly:
    """Switch anomaly detection on or off at once; as a context manager, restore it at the end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.previous = (_State.enabled, _State.check_nan)
        _switch(bool(mode), check_nan)

    def __enter__(self) -> None:
        """The mode is on since the constructor ran."""

    def __exit__(self, *exc: object) -> None:
        _switch(*self.previous)


class detect_anomaly:
    """As a context manager: record where ops are called, and raise on a NaN gradient (``check_nan``)."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self.previous: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self.previous.append((_State.enabled, _State.check_nan))
        _switch(True, self.check_nan)

    def __exit__(self, *exc: object) -> None:
        _switch(*self.previous.pop())


def is_anomaly_enabled() -> bool:
    """Whether anomaly detection is on."""
    return _State.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether it looks for NaN."""
    return _State.check_nan


def _switch(enabled: bool, check_nan: bool) -> None:
    if enabled and not _State.enabled:
        watch.add(_remember)
    elif _State.enabled and not enabled:
        watch.remove(_remember)
    _State.enabled, _State.check_nan = enabled, check_nan
    watch.differentiated = _look if enabled else None


def _remember(node: Any) -> None:
    frames = traceback.extract_stack()[:-1]
    node.stack = [f for f in frames if "/tenon/core/" not in f.filename.replace("\\", "/")]


def _look(node: Any, grads: Any) -> None:
    """AnomalyError if a gradient that ``node`` gives to an input holds NaN."""
    if not _State.check_nan:
        return
    for position, g in enumerate(grads):
        if g is None:
            continue
        backend = g._backend if isinstance(g, Value) else node.backend
        raw = g.raw if isinstance(g, Value) else backend.as_array(g)
        if raw.dtype.kind not in "fcV" or backend.name == "meta":
            continue
        found = backend.raw.any(backend.raw.isnan(raw), axes=tuple(range(raw.ndim)))
        if bool(found):
            _raise(node, position)


def _raise(node: Any, position: int) -> None:
    where = "no call was recorded: it ran before anomaly detection was switched on"
    if node.stack:
        where = "".join(traceback.format_list(node.stack))
        warnings.warn(
            f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{where}",
            TenonWarning,
            stacklevel=2,
        )
    path = scopes.path_of(node.module)
    raise AnomalyError(
        f"Function '{node.name()}' returned nan values in its {position}th output"
        + (f" (op {node.op.name} in module {path})" if path else f" (op {node.op.name})")
        + ". Look at the operands of this call:\n"
        + where
    )


__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"]

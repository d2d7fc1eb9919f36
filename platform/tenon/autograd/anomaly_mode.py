"""Anomaly detection: a NaN in a gradient is an error that names the op, its module and where it was called.

While enabled, every node records the stack of the call that created it, and all forward results and gradients
are checked for NaN and infinity. That is slow; disabled, it costs nothing. As in PyTorch, ``node.metadata``
holds the stack as "traceback_", and as "parent_" the node whose gradient was being computed when this one was
created.

The first forward op that produces NaN from finite inputs is recorded, and so is the first that produces an
infinity, which many programs do on purpose. The error in backward names both; without an error, a warning
names the NaN when the mode ends.
"""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tenon.engine import scopes
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Kind
from tenon.engine.types import Array, Attrs, Operand
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import AnomalyError, TenonWarning
from tenon.tensors.autograd.nodes import user_metadata

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.engine.tape import Node
    from tenon.engine.types import Arguments, Nested
    from tenon.kernels.backend import Backend

#: ``visit(node, gradient)`` of the sweep.
Visit: TypeAlias = "Callable[[Node, Operand], None]"

_CORE = tuple(str(Path(__file__).parents[1] / part) for part in ("engine", "tensors"))
_UNKNOWN = (
    "No forward pass information available. Enable detect anomaly during forward pass for more information."
)


class _State:
    """The mode of this process, as set by the innermost context."""

    enabled = False
    check_nan = True
    #: The first occurrence of each kind since the mode was enabled: "nan", "inf" (forward), "inf gradient".
    first: ClassVar[dict[str, str]] = {}


class _Visited(threading.local):
    """The node whose gradient this thread is computing."""

    node: Node | None = None


_VISITED = _Visited()


class set_detect_anomaly:
    """Enable or disable anomaly detection immediately; as a context manager, restore it on exit."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.previous = (_State.enabled, _State.check_nan)
        _switch(bool(mode), check_nan)

    def __enter__(self) -> None:
        """Do nothing: the constructor has set the mode."""

    def __exit__(self, *exc: object) -> None:
        _switch(*self.previous)


class detect_anomaly:
    """Record in the ``with`` block where ops are called; with ``check_nan``, raise AnomalyError for gradients
    with NaN."""

    def __init__(self, check_nan: bool = True) -> None:
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be"
            " enabled for debugging.",
            stacklevel=2,
        )
        self.check_nan = check_nan
        self.previous: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self.previous.append((_State.enabled, _State.check_nan))
        _switch(True, self.check_nan)

    def __exit__(self, *exc: object) -> None:
        _switch(*self.previous.pop())


def is_anomaly_enabled() -> bool:
    """Return whether anomaly detection is enabled."""
    return _State.enabled


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Enable or disable anomaly detection; ``check_nan`` is whether gradients are checked for NaN."""
    _switch(bool(mode), check_nan)


def is_anomaly_check_nan_enabled() -> bool:
    """Return whether anomaly detection checks gradients for NaN."""
    return _State.check_nan


def _switch(enabled: bool, check_nan: bool) -> None:
    if enabled and not _State.enabled:
        _State.first.clear()
        WATCHERS.add(_record_stack)
        SLOT.push(_FORWARD_CHECK)
    elif _State.enabled and not enabled:
        WATCHERS.remove(_record_stack)
        SLOT.pop(_FORWARD_CHECK)
        if "nan" in _State.first:
            warnings.warn(f"Anomaly detected in forward: {_State.first['nan']}.", TenonWarning, stacklevel=3)
    _State.enabled, _State.check_nan = enabled, check_nan
    WATCHERS.differentiated = _check_gradients if enabled else None
    if enabled and WATCHERS.around_visit is None:
        WATCHERS.around_visit = _with_traceback
    elif not enabled and WATCHERS.around_visit is _with_traceback:
        WATCHERS.around_visit = None


def _with_traceback(visit: Visit) -> Visit:
    """Wrap ``visit`` to warn with the traceback of the forward call whose gradient raised."""

    def reporting(node: Node, grad: Operand) -> None:
        outer, _VISITED.node = _VISITED.node, node
        try:
            visit(node, grad)
        except Exception:
            _warn(node)
            raise
        finally:
            _VISITED.node = outer

    return reporting


def _warn(node: Node) -> None:
    """Warn with the traceback of the forward call that created ``node``, and those of its parents."""
    text = _traceback_text(node, "Traceback of forward call that caused the error:")
    _report(f"Error detected in {node.name()}. {text}")
    parent: Node | None = node
    while parent is not None and (parent := user_metadata(parent).get("parent_")) is not None:
        text = _traceback_text(parent, "Traceback of forward call that induced the previous calculation:")
        _report(f"\n\nPrevious calculation was induced by {parent.name()}. {text}")


def _report(text: str) -> None:
    """Warn, or print if warnings are errors, which would replace the error being reported."""
    try:
        warnings.warn(text, TenonWarning, stacklevel=4)
    except TenonWarning as refused:
        print(f"{type(refused).__name__}: {refused}", file=sys.stderr)


def _traceback_text(node: Node, title: str) -> str:
    """Return ``title`` and the stack of the call that created ``node``."""
    stack = _stack_of(node)
    return f"{title}\n{stack}" if stack else _UNKNOWN


def _stack_of(node: Node) -> str:
    return "".join(user_metadata(node).get("traceback_", ()))


def _record_stack(node: Node) -> None:
    """Callback for new nodes: store the stack of the call, without tenon's own frames, in the metadata."""
    user_metadata(node)["traceback_"] = traceback.format_list(
        [f for f in traceback.extract_stack() if f.filename != __file__ and not f.filename.startswith(_CORE)]
    )
    if _VISITED.node is not None:
        user_metadata(node)["parent_"] = _VISITED.node


class _ForwardCheck:
    """The interceptor that checks forward results for non-finite values."""

    #: Not used inside backward passes and optimizers.
    only_casts = True

    def run(self, op: Op, args: Arguments, attrs: Attrs) -> Nested:
        """Call the op; record the first non-finite result computed from finite inputs."""
        result = SLOT.below(self)(op, args, attrs)
        if _State.check_nan and op.kind not in (Kind.CREATE, Kind.MEMORY, Kind.RANDOM):
            for output in result if isinstance(result, tuple) else (result,):
                kind = _not_finite(output.raw, output._backend) if isinstance(output, Value) else ""
                if kind and kind not in _State.first:
                    self._record(kind, op, args, output)
        return result

    def _record(self, kind: str, op: Op, args: tuple[object, ...], output: Value) -> None:
        """Record the non-finite ``output``, unless an input is not finite either."""
        inputs = [a for a in args if isinstance(a, Value)]
        if any(_not_finite(a.raw, a._backend) for a in inputs):
            return
        raw = output._backend.raw
        count = int(
            raw.sum(raw.isnan(output.raw) if kind == "nan" else raw.isinf(output.raw), axes=_axes(output.raw))
        )
        path = scopes.path_of(scopes.running.place)
        _State.first[kind] = (
            f"op {op.name}{f' in module {path}' if path else ''} computed {kind} from finite numbers: inputs"
            f" {', '.join(str(list(a.raw.shape)) for a in inputs) or 'none'},"
            f" output {list(output.raw.shape)}, {count} of {output.raw.size} values"
        )


_FORWARD_CHECK = _ForwardCheck()


def _axes(raw: Array) -> tuple[int, ...]:
    return tuple(range(raw.ndim))


def _not_finite(raw: Array, backend: Backend) -> str:
    """Return "nan" if ``raw`` contains NaN, "inf" if it contains an infinity, else ""."""
    if raw.dtype.kind not in "fcV" or backend.name == "meta" or not raw.size:
        return ""
    f = backend.raw
    if bool(f.all(f.isfinite(raw), axes=_axes(raw))):
        return ""
    return "nan" if bool(f.any(f.isnan(raw), axes=_axes(raw))) else "inf"


def _check_gradients(node: Node, grads: Iterable[Operand]) -> None:
    """Raise AnomalyError if a gradient that ``node`` computed for an input contains NaN."""
    if not _State.check_nan:
        return
    for position, g in enumerate(grads):
        if g is None:
            continue
        # The engine's protocol of a backend lacks members that ``_not_finite`` reads.
        backend: Any = g._backend if isinstance(g, Value) else node.backend
        raw = g.raw if isinstance(g, Value) else backend.as_array(g)
        kind = _not_finite(raw, backend)
        if kind == "nan":
            _raise(node, position, raw)
        elif kind:
            _State.first.setdefault(
                "inf gradient", f"{_described(node)}, gradient {position} {list(raw.shape)}"
            )


def _described(node: Node) -> str:
    """Describe a node in error messages: op, module and shapes of the inputs."""
    path = scopes.path_of(node.module)
    shapes = [str(list(a.shape)) for a in node.args or () if hasattr(a, "shape")]
    return (
        f"op {node.op.name}"
        + (f" in module {path}" if path else "")
        + (f", inputs {', '.join(shapes)}" if shapes else "")
    )


def _raise(node: Node, position: int, raw: Array) -> None:
    """Raise AnomalyError for a gradient with NaN, with the non-finite values that were recorded before."""
    first = _State.first
    before = [f"In forward, {first[kind]}." for kind in ("nan", "inf") if kind in first]
    if "inf gradient" in first:
        before.append(f"In backward, the first infinite gradient was that of {first['inf gradient']}.")
    first.clear()
    raise AnomalyError(
        f"Function '{node.name()}' returned nan values in its {position}th output"
        f" ({_described(node)}, gradient {list(raw.shape)}). {' '.join((*before, ''))}"
        f"{_traceback_text(node, 'Look at the operands of this call:')}"
    )


__all__ = [
    "detect_anomaly",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "set_anomaly_enabled",
    "set_detect_anomaly",
]

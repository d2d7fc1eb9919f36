"""Forward-mode differentiation under ``no_grad``, which stops gradients but not tangents, as in PyTorch.

Tangents are computed from the tape (``forward_ad.py``), so an op with an input that carries one is recorded
even under ``no_grad``; its other inputs count as constants.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite
from tenon.engine.running_pass import PASS
from tenon.engine.tape import CustomNode, StandIn
from tenon.engine.types import Attrs
from tenon.engine.watchers import WATCHERS
from tenon.tensors.inplace import inplace
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.engine.tape import Node
    from tenon.engine.types import Arguments, Nested
    from tenon.engine.value import Value


class TangentTaping:
    """Interceptor that tapes ops under ``no_grad`` if ``carries(input)`` is true for any input.

    ``then`` is called with each tensor that such an op returns.
    """

    #: Not used inside backward passes.
    only_casts = True

    def __init__(self, carries: Callable[[Tensor], bool], then: Callable[[Tensor], None]) -> None:
        self.carries = carries
        self.then = then
        #: The listener of ``WATCHERS.changes`` before this one.
        self.previous: Callable[[Op, Tensor, tuple[Any, ...], Attrs], bool] | None = None
        #: Tensors without history that an in-place op connected to the graph.
        self.connected: list[weakref.ref[Tensor]] = []

    def run(self, op: Op, args: Arguments, attrs: Attrs) -> Nested:
        """Run the op, taped if an input carries a tangent."""
        if MODE.enabled:
            return self._taped(op, args, attrs)
        operands = self._operands(args)
        if operands is None:
            return SLOT.below(self)(op, args, attrs)
        MODE.enabled = True
        try:
            result = self._taped(op, operands, attrs)
            for each in result if isinstance(result, tuple) else (result,):
                if isinstance(each, Tensor) and each._track:
                    self.then(each)
        finally:
            MODE.enabled = False
        return result

    def changes(self, op: Op, x: Tensor, args: Arguments, attrs: Attrs) -> bool:
        """Apply ``op`` to ``x`` in place, taped, and return True.

        If no input carries a tangent, do nothing and return False.
        """
        operands = self._operands((x, *args))
        if operands is None or (operands[0] is not x and x._track):  # a leaf cannot store a tangent
            return False
        base = x if x._view is None else x._view[0]
        self.connected += [weakref.ref(each) for each in (x, base) if not each._track]
        MODE.enabled = True
        try:
            inplace(op, x, *operands[1:], **attrs)
            self.then(base)
        finally:
            MODE.enabled = False
        return True

    def restore(self) -> None:
        """Remove the autograd history of tensors that had none before an in-place op, such as buffers."""
        for reference in self.connected:
            tensor = reference()
            if tensor is not None:
                tensor._node, tensor._index, tensor._track = None, 0, False
        self.connected.clear()

    def _operands(self, args: Arguments) -> Arguments | None:
        """Return ``args``, those without a tangent detached; None if no argument carries a tangent."""
        if MODE.inference or not MODE.forward or PASS.sweep is not None:
            return None
        carry = [isinstance(a, Tensor) and (a._track or a._stale()) and self.carries(a) for a in args]
        if not any(carry):
            return None
        return tuple(
            a if c or not isinstance(a, Tensor) else a.detach() for a, c in zip(args, carry, strict=True)
        )

    def _taped(self, op: Op, args: Arguments, attrs: Attrs) -> Nested:
        tracked = any(isinstance(a, Tensor) and (a._track or a._stale()) for a in args)
        if tracked and isinstance(op, Composite) and not op.differentiable:
            return SLOT.parts(op, args, attrs)  # its parts have the gradient rules
        return SLOT.below(self)(op, args, attrs)

    def __enter__(self) -> None:
        self.previous, WATCHERS.changes = WATCHERS.changes, self.changes
        SLOT.push(self)

    def __exit__(self, *exc: object) -> None:
        WATCHERS.changes = self.previous
        SLOT.pop(self)


@contextmanager
def taping_tangents(inputs: Sequence[Tensor]) -> Iterator[TangentTaping]:
    """Within the block, tape ops on ``inputs`` even under ``no_grad``, for passes in ``computing_tangents``.

    Call ``restore`` on the value yielded once those passes are done.
    """
    ends = {id(x) if x._node is None else id(x._node) for x in inputs}
    taping = TangentTaping(lambda value: _depends_on(value, ends), _gate)
    with taping:
        yield taping


@contextmanager
def computing_tangents() -> Iterator[None]:
    """Let the backward passes in the ``with`` block compute tangents, not gradients."""
    before, MODE.computes_tangents = MODE.computes_tangents, True
    try:
        yield
    finally:
        MODE.computes_tangents = before


class _Gate(CustomNode):
    """The node of tensors computed under ``no_grad``: blocks all passes but those in
    ``computing_tangents``."""

    __slots__ = ()

    def apply_tensors(self, grad: Tensor, create_graph: bool) -> list[Tensor | None]:
        """Return ``grad`` inside ``computing_tangents``, else None."""
        return [grad if MODE.computes_tangents else None]


_GATE = StandIn("onward", "OnwardBackward0")


def _gate(result: Tensor) -> None:
    """Insert a ``_Gate`` between ``result`` and its history."""
    source = Tensor._of(result.raw, result._backend)
    source._node, source._index, source._track = result._node, result._index, True
    node = _Gate(_GATE, result._backend, (source,))
    node.output_avals = (Aval(tuple(result.raw.shape), result.raw.dtype),)
    result._node, result._index = node, 0


def _depends_on(value: Tensor, ends: set[int]) -> bool:
    """Whether the history of ``value`` contains one of ``ends``, ids of nodes and leaves."""
    stack: list[Value | Node] = [value if value._node is None else value._node]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in ends:
            return True
        if id(node) not in seen:
            seen.add(id(node))
            stack.extend(e[0] for e in getattr(node, "edges", ()) if e is not None)
    return False

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
from tenon.engine.backward_end import PASS
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite
from tenon.engine.tape import CustomNode, StandIn
from tenon.engine.watchers import WATCHERS
from tenon.tensors.inplace import inplace
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.engine.op import Op


class Onward:
    """Interceptor that records ops under ``no_grad`` if ``carries(input)`` is true for any input.

    ``then`` is called with each tensor that such an op returns.
    """

    #: Not used inside backward passes.
    only_casts = True

    def __init__(self, carries: Callable[[Any], bool], then: Callable[[Any], None]) -> None:
        self.carries = carries
        self.then = then
        self.around: Any = None
        self.plain: list[weakref.ref[Any]] = []

    def run(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Run the op, recorded if an input carries a tangent."""
        if MODE.enabled:
            return self._taped(op, args, attrs)
        given = self._given(args)
        if given is None:
            return SLOT.below(self)(op, args, attrs)
        MODE.enabled = True
        try:
            made = self._taped(op, given, attrs)
            for each in made if isinstance(made, tuple) else (made,):
                if isinstance(each, Tensor) and each._track:
                    self.then(each)
        finally:
            MODE.enabled = False
        return made

    def changes(self, op: Any, x: Tensor, args: tuple[Any, ...], attrs: dict[str, Any]) -> bool:
        """Apply ``op`` to ``x`` in place, recorded; returns False, having done nothing, if no input carries a
        tangent."""
        given = self._given((x, *args))
        if given is None or (given[0] is not x and x._track):  # a leaf cannot store a tangent
            return False
        base = x if x._view is None else x._view[0]
        self.plain += [weakref.ref(each) for each in (x, base) if not each._track]
        MODE.enabled = True
        try:
            inplace(op, x, *given[1:], **attrs)
            self.then(base)
        finally:
            MODE.enabled = False
        return True

    def restore(self) -> None:
        """Remove the autograd history of tensors that had none before an in-place op, such as buffers."""
        for reference in self.plain:
            tensor = reference()
            if tensor is not None:
                tensor._node, tensor._index, tensor._track = None, 0, False
        self.plain.clear()

    def _given(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """``args`` with those that carry no tangent detached; None if no argument carries one."""
        if MODE.inference or not MODE.forward or PASS.sweep is not None:
            return None
        carry = [isinstance(a, Tensor) and (a._track or a._stale()) and self.carries(a) for a in args]
        if not any(carry):
            return None
        return tuple(
            a if c or not isinstance(a, Tensor) else a.detach() for a, c in zip(args, carry, strict=True)
        )

    def _taped(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        tracked = any(isinstance(a, Tensor) and (a._track or a._stale()) for a in args)
        if tracked and isinstance(op, Composite) and not op.differentiable:
            return SLOT.parts(op, args, attrs)  # its parts have the gradient rules
        return SLOT.below(self)(op, args, attrs)

    def __enter__(self) -> None:
        self.around, WATCHERS.changes = WATCHERS.changes, self.changes
        SLOT.push(self)

    def __exit__(self, *exc: object) -> None:
        WATCHERS.changes = self.around
        SLOT.pop(self)


@contextmanager
def going_on(inputs: Sequence[Any]) -> Iterator[Onward]:
    """Within the block, keep the graph to ``inputs`` even under ``no_grad``, for passes in ``pushing`` only.

    Call ``restore`` on the value yielded once those passes are done.
    """
    ends = {id(x) if x._node is None else id(x._node) for x in inputs}
    onward = Onward(lambda value: _leads(value, ends), _gate)
    with onward:
        yield onward


@contextmanager
def pushing() -> Iterator[None]:
    """Mark the backward passes of the block as computing tangents, not gradients."""
    before, MODE.pushing = MODE.pushing, True
    try:
        yield
    finally:
        MODE.pushing = before


class _Gate(CustomNode):
    """The node of tensors computed under ``no_grad``: blocks every pass except those inside ``pushing``."""

    __slots__ = ()

    def apply_tensors(self, grad: Tensor, create_graph: bool) -> list[Any]:
        """Return ``grad`` inside ``pushing``, else None."""
        return [grad if MODE.pushing else None]


_GATE = StandIn("onward", "OnwardBackward0")


def _gate(made: Tensor) -> None:
    behind = Tensor._of(made.raw, made._backend)
    behind._node, behind._index, behind._track = made._node, made._index, True
    node = _Gate(_GATE, made._backend, (behind,))
    node.output_avals = (Aval(tuple(made.raw.shape), made.raw.dtype),)
    made._node, made._index = node, 0


def _leads(value: Tensor, ends: set[int]) -> bool:
    """Whether the graph behind ``value`` contains one of ``ends``, ids of nodes and leaves."""
    stack: list[Any] = [value if value._node is None else value._node]
    seen: set[int] = set()
    while stack:
        here = stack.pop()
        if id(here) in ends:
            return True
        if id(here) not in seen:
            seen.add(id(here))
            stack.extend(e[0] for e in getattr(here, "edges", ()) if e is not None)
    return False

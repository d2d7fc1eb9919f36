"""Forward mode under ``no_grad``: gradients stop there, tangents do not, as in torch.

Tangents are found on the tape, so an op whose inputs have some is taped all the same. Nothing else about it
is: its other inputs count as constants.
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
    """Tapes ops under ``no_grad`` that get a tensor for which ``carries`` is true; ``then`` gets what they
    made."""

    #: Backward passes work as if this were not there.
    only_casts = True

    def __init__(self, carries: Callable[[Any], bool], then: Callable[[Any], None]) -> None:
        self.carries = carries
        self.then = then
        self.around: Any = None
        self.plain: list[weakref.ref[Any]] = []

    def run(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The op, taped where a tangent has to go on."""
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
        """Change ``x`` in place, taped where a tangent has to go on; False, and nothing done, if none has."""
        given = self._given((x, *args))
        if given is None or (given[0] is not x and x._track):  # a leaf has no place for one
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
        """Take from tensors that had no history before they were changed, buffers say, what they got here."""
        for reference in self.plain:
            tensor = reference()
            if tensor is not None:
                tensor._node, tensor._index, tensor._track = None, 0, False
        self.plain.clear()

    def _given(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """``args``, those without tangents as constants; None if no tangent has to go on."""
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
            return SLOT.parts(op, args, attrs)  # they have the gradients
        return SLOT.below(self)(op, args, attrs)

    def __enter__(self) -> None:
        self.around, WATCHERS.changes = WATCHERS.changes, self.changes
        SLOT.push(self)

    def __exit__(self, *exc: object) -> None:
        WATCHERS.changes = self.around
        SLOT.pop(self)


@contextmanager
def going_on(inputs: Sequence[Any]) -> Iterator[Onward]:
    """Inside, ``no_grad`` leaves a way to ``inputs`` that is open to the passes made in ``pushing`` alone; at
    their end, ``restore`` what was given."""
    ends = {id(x) if x._node is None else id(x._node) for x in inputs}
    onward = Onward(lambda value: _leads(value, ends), _gate)
    with onward:
        yield onward


@contextmanager
def pushing() -> Iterator[None]:
    """Inside, backward passes serve to find tangents."""
    before, MODE.pushing = MODE.pushing, True
    try:
        yield
    finally:
        MODE.pushing = before


class _Gate(CustomNode):
    """Behind what was made under ``no_grad``: only a pass that serves to find tangents comes through."""

    __slots__ = ()

    def apply_tensors(self, grad: Tensor, create_graph: bool) -> list[Any]:
        """The gradient as it is, or nothing."""
        return [grad if MODE.pushing else None]


_GATE = StandIn("onward", "OnwardBackward0")


def _gate(made: Tensor) -> None:
    behind = Tensor._of(made.raw, made._backend)
    behind._node, behind._index, behind._track = made._node, made._index, True
    node = _Gate(_GATE, made._backend, (behind,))
    node.output_avals = (Aval(tuple(made.raw.shape), made.raw.dtype),)
    made._node, made._index = node, 0


def _leads(value: Tensor, ends: set[int]) -> bool:
    """Whether a path from ``value`` comes to one of ``ends``, ids of nodes and leaves."""
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

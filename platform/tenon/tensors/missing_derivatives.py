"""Nodes of functions whose derivative is not implemented: ``backward`` through one raises an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tenon.engine.grad_mode import MODE
from tenon.engine.tape import CustomNode, StandIn
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import UnsupportedError

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


class Refusal(CustomNode):
    """A node that raises UnsupportedError instead of computing a gradient."""

    __slots__ = ()

    def apply_tensors(self, grad: Tensor, create_graph: bool) -> NoReturn:
        """Raise UnsupportedError."""
        raise UnsupportedError(
            f"the derivative for '{self.op.name}' is not implemented. Call detach() on its result if no"
            " gradient has to flow through it."
        )


def refuse_gradient(name: str, result: Tensor, *inputs: object) -> Tensor:
    """Set a ``Refusal`` node as the ``grad_fn`` of ``result``, which the function ``name`` computed, if one
    of ``inputs`` requires grad; return it."""
    if MODE.enabled and any(isinstance(i, Value) and (i._track or i._stale()) for i in inputs):
        op = StandIn(name, f"{name.title().replace('_', '')}Backward0")
        result._node, result._track = Refusal(op, result._backend, inputs), True
        if WATCHERS.taped is not None:
            WATCHERS.taped(result._node)
    return result

"""Nodes that stop a backward pass, with an error or with undefined gradients: PyTorch's ``_C._functions``."""

from __future__ import annotations

from typing import Any, NoReturn

from tenon.engine.aval import Aval
from tenon.engine.tape import CustomNode, StandIn
from tenon.errors import GradError
from tenon.tensors.tensor import Tensor

__all__ = ["DelayedError", "UndefinedGrad"]


def _aliases(
    node: CustomNode, title: StandIn, tensors: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...]:
    """Initialise ``node``; return aliases of ``tensors`` that have it as their ``grad_fn``."""
    # None only without a tensor: then nothing is differentiated.
    backend: Any = next((t._backend for t in tensors if t is not None), None)
    CustomNode.__init__(node, title, backend, tensors)
    node.output_avals = tuple(None if t is None else Aval(tuple(t.raw.shape), t.raw.dtype) for t in tensors)
    aliases = tuple(None if t is None else t.detach() for t in tensors)
    for index, (alias, tensor) in enumerate(zip(aliases, tensors, strict=True)):
        if alias is not None and tensor is not None and tensor.requires_grad:
            alias._node, alias._index, alias._track = node, index, True
    return aliases


class DelayedError(CustomNode):
    """``DelayedError(message, number)(*tensors)`` returns aliases whose gradient raises ``message``."""

    __slots__ = ()

    message: str

    def __init__(self, message: str, num_inputs: int) -> None:
        self.message, self.number = message, num_inputs

    def __call__(self, *tensors: Tensor | None) -> Tensor | tuple[Tensor | None, ...] | None:
        """Return aliases of ``tensors`` behind such a node: a tuple if there are several."""
        aliases = _aliases(DelayedError(self.message, self.number), _ERROR, tensors)
        return aliases if self.number != 1 else aliases[0]

    def apply_tensors(self, grad: object, create_graph: bool) -> NoReturn:
        """Raise the error."""
        raise GradError(self.message)


class UndefinedGrad(CustomNode):
    """``UndefinedGrad()(tensor)`` returns an alias that passes no gradient on."""

    __slots__ = ()

    def __init__(self) -> None:
        """Create the function; its inputs are passed in the call."""

    def __call__(self, *tensors: Tensor | None) -> Tensor | tuple[Tensor | None, ...] | None:
        """Return aliases of ``tensors`` behind such a node: a tuple if there are several."""
        aliases = _aliases(UndefinedGrad(), _UNDEFINED, tensors)
        return aliases if len(aliases) != 1 else aliases[0]

    def apply_tensors(self, grad: object, create_graph: bool) -> list[None]:
        """Return None for every input."""
        return [None] * len(self.edges)


_ERROR = StandIn("Error", "Error", 0, simple=False)
_UNDEFINED = StandIn("UndefinedGrad", "UndefinedGradBackward", 0, simple=False)

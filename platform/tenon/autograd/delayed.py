"""Nodes that stop a backward pass, with an error or with undefined gradients: torch's ``_C._functions``."""

from __future__ import annotations

from typing import Any, NoReturn

from tenon.engine.aval import Aval
from tenon.engine.tape import CustomNode, StandIn
from tenon.errors import GradError

__all__ = ["DelayedError", "UndefinedGrad"]


def _behind(node: Any, title: StandIn, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Aliases of ``tensors`` whose history is ``node``, which is filled in; None where there is none."""
    backend: Any = next((t._backend for t in tensors if t is not None), None)
    CustomNode.__init__(node, title, backend, tensors)
    node.output_avals = tuple(None if t is None else Aval(tuple(t.raw.shape), t.raw.dtype) for t in tensors)
    made = tuple(None if t is None else t.detach() for t in tensors)
    for index, (alias, tensor) in enumerate(zip(made, tensors, strict=True)):
        if alias is not None and tensor.requires_grad:
            alias._node, alias._index, alias._track = node, index, True
    return made


class DelayedError(CustomNode):
    """``DelayedError(message, number)(*tensors)`` are the tensors; a gradient at one of them is an error."""

    __slots__ = ()

    message: str

    def __init__(self, message: str, num_inputs: int) -> None:
        self.message, self.number = message, num_inputs

    def __call__(self, *tensors: Any) -> Any:
        """``tensors``, behind a node of this kind: a tuple if there are several."""
        made = _behind(DelayedError(self.message, self.number), _ERROR, tensors)
        return made if self.number != 1 else made[0]

    def apply_tensors(self, grad: Any, create_graph: bool) -> NoReturn:
        """Always the error."""
        raise GradError(self.message)


class UndefinedGrad(CustomNode):
    """``UndefinedGrad()(tensor)`` is the tensor; of a gradient that comes to it nothing goes on."""

    __slots__ = ()

    def __init__(self) -> None:
        """What it stands behind is known when it is called."""

    def __call__(self, *tensors: Any) -> Any:
        """``tensors``, behind a node of this kind: a tuple if there are several."""
        made = _behind(UndefinedGrad(), _UNDEFINED, tensors)
        return made if len(made) != 1 else made[0]

    def apply_tensors(self, grad: Any, create_graph: bool) -> list[Any]:
        """Nothing."""
        return [None] * len(self.edges)


_ERROR = StandIn("Error", "Error", 0, simple=False)
_UNDEFINED = StandIn("UndefinedGrad", "UndefinedGradBackward", 0, simple=False)

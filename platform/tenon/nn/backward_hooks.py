"""Full backward hooks: pass the gradients of a module's inputs and outputs to hooks, as tuples.

A call is surrounded by two boundary nodes in the autograd graph, one over all tensor inputs and one over all
tensor outputs. In backward the node of the outputs stores their gradients (after the pre-hooks), and the node
of the inputs calls the hooks with both and propagates what they return.

A boundary returns views, not copies, of its tensors. In-place changes on either side, such as
``ReLU(inplace=True)``, are therefore handled as in-place changes of views, and work; PyTorch raises
(pytorch#61519).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE
from tenon.engine.op import table
from tenon.engine.tape import CustomNode, StandIn
from tenon.engine.types import Gradient, Nested
from tenon.errors import GradError
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    import numpy as np

    from tenon.nn.module import Module

#: Shape and dtype of a tensor.
_Spec: TypeAlias = "tuple[tuple[int, ...], np.dtype[Any]]"

_NO_INPUT = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
    "require "
    "gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
    "#torch.nn.Module.register_full_backward_hook for more details."
)


_BOUNDARY = StandIn("module_boundary", "BackwardHookFunctionBackward", outputs=0, simple=False)


#: Gradients of some tensors, None for a tensor that got none.
Grads: TypeAlias = Sequence[Tensor | None]


class _Boundary(CustomNode):
    """Identity over several tensors; ``change`` receives all their gradients and may replace them."""

    __slots__ = ()

    def __init__(self, tensors: Sequence[Tensor], change: Callable[[Grads], Grads]) -> None:
        super().__init__(_BOUNDARY, tensors[0]._backend, tensors)
        self.output_avals = tuple(Aval(tensor.raw.shape, tensor.raw.dtype) for tensor in tensors)
        self.__dict__["change"] = change

    def apply_tensors(self, grads: Grads, create_graph: bool) -> list[Gradient]:
        """Return the gradients of the inputs: those of the outputs after ``change``."""
        return self.__dict__["change"](list(grads))


def _behind_boundary(tensors: Sequence[Tensor], change: Callable[[Grads], Grads]) -> list[Tensor]:
    """Return views of ``tensors`` behind a new boundary node."""
    node = _Boundary(tensors, change)
    crossed = []
    for index, tensor in enumerate(tensors):
        alias = Tensor.make(tensor.raw, tensor._backend)
        counter = alias._version_counter = tensor._counter()
        base = tensor if tensor._view is None else tensor._view[0]
        alias._view = [base, tensor, table.alias, {}, counter[0]]
        alias._node, alias._index, alias._track = node, index, True
        crossed.append(alias)
    return crossed


class BackwardHook:
    """One call of one module with full backward hooks or pre-hooks."""

    def __init__(
        self, module: Module, hooks: list[Callable[..., object]], pre_hooks: list[Callable[..., object]]
    ) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.inputs: list[_Spec | None] = []  # shape and dtype of each positional tensor
        self.input_index: list[int] = []  # which arguments have gradients
        self.output_index: list[int] = []
        self.output_count = 0
        self.grad_outputs: tuple[Tensor | None, ...] | None = None

    def wrap_inputs(self, args: tuple[Nested, ...]) -> tuple[Nested, ...]:
        """Return ``args`` with every tensor that requires a gradient behind a boundary node."""
        self.inputs = [(a.raw.shape, a.raw.dtype) if isinstance(a, Tensor) else None for a in args]
        self.input_index = [i for i, a in enumerate(args) if _needs_grad(a)]
        if not self.input_index or not self.hooks:
            return args
        crossed = _behind_boundary([args[i] for i in self.input_index], self._at_inputs)
        return _replaced(args, self.input_index, crossed)

    def wrap_outputs(self, result: object) -> Nested:
        """Return ``result``, a tensor or tuple, with tensors that require a gradient behind a boundary."""
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                f"but received {type(result)}",
                stacklevel=6,
            )
        outputs = result if isinstance(result, tuple) else (result,)
        self.output_count = len(outputs)
        self.output_index = [i for i, o in enumerate(outputs) if _needs_grad(o)]
        if not self.output_index:
            return result
        crossed = _behind_boundary([outputs[i] for i in self.output_index], self._at_outputs)
        wrapped = _replaced(outputs, self.output_index, crossed)
        return wrapped if isinstance(result, tuple) else wrapped[0]

    def _at_outputs(self, grads: Grads) -> Grads:
        """Store the gradients of the outputs after the pre-hooks; return those of the boundary's tensors."""
        all_grads: list[Tensor | None] = [None] * self.output_count
        for index, grad in zip(self.output_index, grads, strict=True):
            all_grads[index] = grad
        grad_outputs = tuple(all_grads)
        for hook in self.pre_hooks:
            grad_outputs = self._returned(
                "pre hook", "grad_output", hook(self.module, grad_outputs), grad_outputs
            )
        if self.hooks and not self.input_index:
            self._without_inputs(grad_outputs)
        else:
            self.grad_outputs = grad_outputs
        return [grad_outputs[index] for index in self.output_index]

    def _without_inputs(self, grad_outputs: tuple[Tensor | None, ...]) -> None:
        """Call the hooks of a module of which no input requires a gradient."""
        warnings.warn(_NO_INPUT, stacklevel=2)
        for hook in self.hooks:
            returned = hook(self.module, (None,) * len(self.inputs), grad_outputs)
            if returned is not None and not (
                isinstance(returned, tuple) and all(g is None for g in returned)
            ):
                raise GradError(
                    "Backward hook for Modules where no input requires gradient should always return None or "
                    "None for "
                    f"all gradients. ({type(self.module).__name__})"
                )

    def _at_inputs(self, grads: Grads) -> Grads:
        """Call the hooks with the gradients of inputs and outputs; return the input gradients after them."""
        grad_outputs, self.grad_outputs = self.grad_outputs, None
        if grad_outputs is None:
            # The gradient did not pass through the outputs, as in double backward: nothing to report.
            return grads
        # PyTorch passes zeros, not None, for a tensor input without a gradient.
        like = next(grad for grad in grads if grad is not None)
        arrived = dict(zip(self.input_index, grads, strict=True))
        grad_inputs = tuple(
            _zeros(like, spec) if arrived.get(index) is None else arrived[index]
            for index, spec in enumerate(self.inputs)
        )
        for hook in self.hooks:
            returned = hook(self.module, grad_inputs, grad_outputs)
            grad_inputs = self._returned("hook", "grad_input", returned, grad_inputs)
        return [self._checked(grad_inputs[index], index) for index in self.input_index]

    def _returned(
        self, kind: str, name: str, returned: object, before: tuple[Tensor | None, ...]
    ) -> tuple[Tensor | None, ...]:
        """Return a hook's result as a tuple of the length of ``before``."""
        if returned is None:
            return before
        if isinstance(returned, Tensor):
            returned = (returned,)
        if not isinstance(returned, (tuple, list)):
            raise GradError(
                f"Backward {kind} of {type(self.module).__name__} returned {type(returned).__name__}; return "
                "None or a "
                f"tuple of {len(before)} {name}."
            )
        if len(returned) != len(before):
            raise GradError(
                f"Backward {kind} returned an invalid number of {name}, got {len(returned)}, but expected "
                f"{len(before)}"
            )
        return tuple(returned)

    def _checked(self, grad: Tensor | None, index: int) -> Tensor | None:
        """Return ``grad``; raise GradError unless it has the shape of input ``index``."""
        spec = self.inputs[index]
        if grad is not None and spec is not None and tuple(grad.raw.shape) != tuple(spec[0]):
            raise GradError(
                f"Backward hook of {type(self.module).__name__} returned a gradient of shape "
                f"{list(grad.raw.shape)} for "
                f"input {index} of shape {list(spec[0])}. Return gradients of the shapes given in grad_input."
            )
        return grad


def _zeros(like: Tensor, spec: _Spec | None) -> Tensor | None:
    """Return zeros for a floating-point tensor argument; None for every other argument."""
    if spec is None or spec[1].kind in "iub":
        return None
    return table.new_full(like, shape=tuple(spec[0]), value=0, dtype=spec[1])


def _needs_grad(value: object) -> bool:
    """Return whether ``value`` is a tensor that backward will reach."""
    return MODE.enabled and isinstance(value, Tensor) and bool(value.requires_grad)


def _replaced(values: tuple[Nested, ...], index: list[int], new: Sequence[object]) -> tuple[Nested, ...]:
    """Return ``values``, a tuple or named tuple, with ``new`` at ``index``."""
    items = list(values)
    for position, value in zip(index, new, strict=True):
        items[position] = value
    return tuple(items) if type(values) is tuple else type(values)(*items)

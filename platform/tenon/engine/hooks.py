"""Run the hooks of tensors and leaves over a gradient. ``tensors/autograd/hooks.py`` registers them."""

from __future__ import annotations

from tenon.engine.plans import EngineBackend
from tenon.engine.tape import Hooks
from tenon.engine.types import Gradient
from tenon.engine.value import Value
from tenon.errors import GradError


def run_tensor_hooks(hooks: Hooks, grad: Gradient, backend: EngineBackend) -> Gradient:
    """Run ``hooks`` on ``grad`` and return the result: an array for an array, a tensor for a tensor. An
    undefined gradient is passed to hooks as None."""
    for hook in list(hooks.values()):
        argument = grad if grad is None or isinstance(grad, Value) else Value.make(grad, backend)
        result = hook(argument)
        if result is None:
            continue
        if not isinstance(result, Value):
            raise GradError(f"a tensor hook returned {type(result).__name__}; expected None or a Tensor.")
        if argument is not None and tuple(result.raw.shape) != tuple(argument.raw.shape):
            raise GradError(
                f"hook '{getattr(hook, '__name__', hook)}' has changed the size of value: "
                f"{list(argument.raw.shape)} became {list(result.raw.shape)}."
            )
        grad = result if isinstance(grad, Value) else result.raw
    return grad


def run_prehooks(leaf: Value, grad: Value | None, hooks: Hooks) -> Value | None:
    """Run the pre-hooks of ``leaf``'s ``AccumulateGrad`` on the tensor ``grad``; return the result."""
    for hook in list(hooks.values()):
        changed = hook((grad,))
        if changed is not None:
            grad = changed[0] if isinstance(changed, (tuple, list)) else changed
    return grad

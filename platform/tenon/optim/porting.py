"""Private names of ``torch.optim.optimizer`` that third-party optimizers import beside ``Optimizer``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tenon import dtypes
from tenon.engine.watchers import WATCHERS
from tenon.functions.creation import view_as_real
from tenon.functions.joining import stack
from tenon.nn.parameter import Parameter
from tenon.optim.grouping import (
    _get_foreach_kernels_supported_devices,
    _get_fused_kernels_supported_devices,
)
from tenon.tensors.autograd.grad_mode import set_grad_enabled
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer

F = TypeVar("F", bound=Callable[..., object])

_foreach_supported_types = [Tensor, Parameter]
_params_doc = "params (iterable): parameters, pairs of name and parameter, or groups of them as dicts"
_foreach_doc = "foreach (bool, optional): whether parameters are updated as lists; results are the same"
_fused_doc = "fused (bool, optional): whether a parameter's whole update is one loop"
_capturable_doc = "capturable (bool, optional): whether the step may be part of a CUDA graph"
_differentiable_doc = "differentiable (bool, optional): whether gradients flow through the step"
_maximize_doc = "maximize (bool, optional): go up the gradient instead of down"


def _use_grad_for_differentiable(func: F) -> F:
    """Wrap ``func``, a method of an optimizer, so that gradients are enabled iff it is ``differentiable``."""

    @functools.wraps(func)
    def with_grad_mode(self: Optimizer, *args: object, **kwargs: object) -> object:
        with set_grad_enabled(self.defaults["differentiable"]):
            return func(self, *args, **kwargs)

    return with_grad_mode  # type: ignore[return-value]


def _get_value(x: float | Tensor) -> float | Tensor:
    """Return a tensor's value as a number; the tensor itself while compiling, when it must not be read."""
    return x.item() if isinstance(x, Tensor) and WATCHERS.recorder is None else x


def _stack_if_compiling(x: Sequence[Tensor]) -> Sequence[Tensor] | Tensor:
    return x if WATCHERS.recorder is None else stack(x)


def _disable_dynamo_if_unsupported(single_tensor_fn: object = None) -> Callable[[F], F]:
    """Return a decorator without effect: here the compiler supports every update."""
    return lambda func: func


def _default_to_fused_or_foreach(
    params: Sequence[Tensor | None], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Return the ``(fused, foreach)`` defaults for ``params``, which may contain None."""
    if differentiable:
        return False, False
    present = [p for p in params if p is not None]
    plain = all(type(p) in _foreach_supported_types for p in present)
    lists, loops = _get_foreach_kernels_supported_devices(), _get_fused_kernels_supported_devices()
    fused = use_fused and plain
    fused = fused and all(p.device.type in loops and p.is_floating_point() for p in present)
    return fused, not fused and plain and all(p.device.type in lists for p in present)


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Replace complex tensors in the lists by their real views, wherever ``params`` is complex."""
    for i, p in enumerate(params):
        if p.is_complex():
            for each in (params, *state_and_grads):
                each[i] = view_as_real(each[i])


def _get_scalar_dtype(is_fused: bool | None = None) -> dtypes.dtype:
    """Return the dtype of step counts."""
    double = not is_fused and dtypes.get_default_dtype() is dtypes.float64
    return dtypes.float64 if double else dtypes.float32


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Return the device types on which PyTorch allows ``capturable`` steps."""
    return ["cuda", "xpu", "hpu", "privateuseone", *(["xla"] if supports_xla else [])]


def _to_scalar(x: float | Tensor) -> float | Tensor:
    """Return a one-element tensor as a 0-d tensor; numbers unchanged."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() else x

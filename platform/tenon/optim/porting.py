"""What optimizers that were written for PyTorch import of ``torch.optim.optimizer`` beside ``Optimizer``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tenon import dtypes
from tenon.engine.grad_mode import set_grad_enabled
from tenon.engine.watchers import WATCHERS
from tenon.functions.joining import stack
from tenon.functions.making import view_as_real
from tenon.nn.parameter import Parameter
from tenon.optim.grouping import (
    _get_foreach_kernels_supported_devices,
    _get_fused_kernels_supported_devices,
)
from tenon.tensors.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])

_foreach_supported_types = [Tensor, Parameter]
_params_doc = "params (iterable): parameters, pairs of name and parameter, or groups of them as dicts"
_foreach_doc = "foreach (bool, optional): whether parameters are updated as lists; results are the same"
_fused_doc = "fused (bool, optional): whether a parameter's whole update is one loop"
_capturable_doc = "capturable (bool, optional): whether the step may be part of a CUDA graph"
_differentiable_doc = "differentiable (bool, optional): whether gradients flow through the step"
_maximize_doc = "maximize (bool, optional): go up the gradient instead of down"


def _use_grad_for_differentiable(func: F) -> F:
    """``func``, a method of an optimizer, which records for gradients if the optimizer is differentiable."""

    @functools.wraps(func)
    def recording(self: Any, *args: Any, **kwargs: Any) -> bool | None:
        with set_grad_enabled(self.defaults["differentiable"]):
            return func(self, *args, **kwargs)

    return recording  # type: ignore[return-value]


def _get_value(x: Any) -> Any:
    """A tensor's number; the tensor while a function is compiled, which may not read it."""
    return x.item() if isinstance(x, Tensor) and WATCHERS.recorder is None else x


def _stack_if_compiling(x: Any) -> Any:
    return x if WATCHERS.recorder is None else stack(x)


def _disable_dynamo_if_unsupported(single_tensor_fn: Any = None) -> Callable[[F], F]:
    """A decorator that returns its function: no update is kept from the compiler here."""
    return lambda func: func


def _default_to_fused_or_foreach(
    params: Sequence[Any], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Whether ``(fused, foreach)`` updates suit some parameters, of which there may be None."""
    if differentiable:
        return False, False
    given = [p for p in params if p is not None]
    plain = all(type(p) in _foreach_supported_types for p in given)
    lists, loops = _get_foreach_kernels_supported_devices(), _get_fused_kernels_supported_devices()
    fused = use_fused and plain
    fused = fused and all(p.device.type in loops and p.is_floating_point() for p in given)
    return fused, not fused and plain and all(p.device.type in lists for p in given)


def _view_as_real(params: list[Any], *state_and_grads: list[Any]) -> None:
    """Put views as pairs of real numbers in place of complex tensors; lists go by ``params``."""
    for i, p in enumerate(params):
        if p.is_complex():
            for each in (params, *state_and_grads):
                each[i] = view_as_real(each[i])


def _get_scalar_dtype(is_fused: bool | None = None) -> dtypes.dtype:
    """The dtype of step counts."""
    double = not is_fused and dtypes.get_default_dtype() is dtypes.float64
    return dtypes.float64 if double else dtypes.float32


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Types of devices on which ``capturable`` steps are allowed, in PyTorch."""
    return ["cuda", "xpu", "hpu", "privateuseone", *(["xla"] if supports_xla else [])]


def _to_scalar(x: Any) -> Any:
    """A tensor of one element without axes; numbers as they are."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() else x

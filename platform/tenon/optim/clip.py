"""Limiting gradients: by norm or by value (torch.nn.utils.clip_grad)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenon import ops
from tenon.core.create import full
from tenon.core.grad_mode import no_grad
from tenon.core.tensor import Tensor
from tenon.dtypes import get_default_dtype
from tenon.errors import GradError


def _grads(parameters: Any) -> list[Any]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


@no_grad()
def get_total_norm(
    tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Any:
    """Norm of all ``tensors`` taken as one vector: a 0-d tensor."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return full((), 0.0, get_default_dtype(), "cpu")
    order = float(norm_type)
    norms = [ops.vector_norm(t, order=order, axes=tuple(range(t.raw.ndim)), keepdims=False) for t in tensors]
    total: Any = norms[0]
    if len(norms) > 1:
        joined = ops.cat(*[ops.reshape(n.to(norms[0].device), shape=(1,)) for n in norms], axis=0)
        total = ops.vector_norm(joined, order=order, axes=(0,), keepdims=False)
    if error_if_nonfinite and not bool(ops.isfinite(total).item()):
        raise GradError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. To "
            "disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None
) -> None:
    """Scale gradients in place by ``max_norm / total_norm``, if that is below 1."""
    scale = ops.clamp(ops.div(float(max_norm), ops.add(total_norm, 1e-6)), None, 1.0)
    for g in _grads(parameters):
        g.mul_(scale.to(g.device, g.dtype))


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Scale gradients in place so that their joint norm is at most ``max_norm``; returns the norm before."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


@no_grad()
def clip_grad_value_(parameters: Iterable[Any] | Any, clip_value: float, foreach: bool | None = None) -> None:
    """Limit every gradient element to ``[-clip_value, clip_value]``, in place."""
    for g in _grads(parameters):
        g.clamp_(-float(clip_value), float(clip_value))

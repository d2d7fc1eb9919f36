"""Gradient clipping, by norm or by value (``torch.nn.utils.clip_grad``)."""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterable
from typing import TypeAlias

from tenon import ops
from tenon.dtypes import get_default_dtype
from tenon.engine.value import Value
from tenon.errors import GradError
from tenon.kernels.whole_arrays import gathered
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import full
from tenon.tensors.tensor import Tensor

#: One tensor or several.
Tensors: TypeAlias = Tensor | Iterable[Tensor]


def _as_list(parameters: Tensors) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def _grads(parameters: list[Tensor]) -> list[Tensor]:
    """Return the gradients of those ``parameters`` that have one."""
    return [p.grad for p in parameters if p.grad is not None]


@no_grad()
def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Return the norm of all ``tensors`` taken as one vector: a 0-d tensor on the device of the first.

    >>> import tenon
    >>> get_total_norm([tenon.tensor([3.0]), tenon.tensor([0.0, 4.0])])
    tensor(5.)

    ``foreach`` has no effect: it would only choose how PyTorch computes the same numbers.
    """
    listed = _as_list(tensors)
    order = float(norm_type)
    if not listed:
        return full((), 0.0, get_default_dtype(), "cpu")
    norms = _norms(listed, order)
    if len(norms) == 1:
        total = norms[0]
    else:
        parts = [n.to(norms[0].device).reshape(1) for n in norms]
        total = _norm(ops.cat(*parts, axis=0), order)
    if error_if_nonfinite and not ops.isfinite(total).item():
        raise GradError(
            f"The total norm of order {float(norm_type)} for gradients from `parameters` is non-finite, so"
            " it cannot be clipped. To disable this error and scale the gradients by the non-finite norm"
            " anyway, set `error_if_nonfinite=False`"
        )
    return total


def _norms(tensors: list[Tensor], order: float) -> list[Tensor]:
    """The norms of ``tensors``, or one for all that are sharded over one mesh; on one backend.

    If all are sharded over one mesh the only norm is replicated there.
    """
    groups: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(id(tensor._backend), []).append(tensor)
    norms: list[Tensor] = []
    for group in groups.values():
        backend = group[0]._backend
        joint = backend.joint_norm([t.raw for t in group], order)
        if joint is None:
            norms += [_norm(t, order) for t in group]
        elif len(groups) == 1:
            return [Value.make(backend.as_array(joint), backend)]
        else:
            norms.append(Value.make(joint, backend.own))
    return norms if len(groups) == 1 else [gathered(n) for n in norms]


def _norm(tensor: Tensor, order: float) -> Tensor:
    """Return the norm of ``tensor`` taken as a vector."""
    axes = tuple(range(tensor.raw.ndim))
    return ops.vector_norm(tensor, order=order, axes=axes, keepdims=False)


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients in place by ``max_norm / total_norm``, if that is below 1.

    ``foreach`` has no effect: it would only choose how PyTorch computes the same numbers.
    """
    scale = ops.clamp(ops.div(float(max_norm), ops.add(total_norm, 1e-6)), None, 1.0)
    for g in _grads(_as_list(parameters)):
        backend = g._backend
        if backend.own is backend:
            g.mul_(scale.to(g.device))
        else:  # each process scales what it has
            scale = gathered(scale)
            g._settle()
            Value.make(backend.own_part(g.raw, g.raw), backend.own).mul_(scale.to(g.device))
            g._counter()[0] += 1


def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale gradients in place so that their joint norm is at most ``max_norm``; returns the norm before."""
    listed = _as_list(parameters)
    if not listed and isinstance(parameters, types.GeneratorType):
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", UserWarning, stacklevel=2
        )
    total = get_total_norm(_grads(listed), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(listed, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Deprecated name of ``clip_grad_norm_``."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit every gradient element to ``[-clip_value, clip_value]``, in place.

    ``foreach`` has no effect: it would only choose how PyTorch computes the same numbers.
    """
    bound = float(clip_value)
    for g in _grads(_as_list(parameters)):
        g.clamp_(-bound, bound)

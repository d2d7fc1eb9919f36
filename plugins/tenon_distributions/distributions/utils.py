"""Functions that distributions share: broadcasting, probabilities and logits, triangular matrices.

PyTorch's ``torch.distributions.utils``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import ArgumentError

if TYPE_CHECKING:
    from tenon import Tensor, dtype
    from tenon.extend import Device

euler_constant = 0.57721566490153286060

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def _is_tensor(value: object) -> bool:
    return isinstance(value, tenon.Tensor) or hasattr(type(value), "__torch_function__")


def broadcast_all(*values: Tensor | float) -> tuple[Tensor, ...]:
    """Convert numbers and tensors to tensors of one shape.

    Numbers take the dtype and device of the first tensor, or the default ones.

    >>> [v.shape for v in broadcast_all(tenon.zeros(2, 1), 1.0, tenon.zeros(3))]
    [torch.Size([2, 3]), torch.Size([2, 3]), torch.Size([2, 3])]
    """
    for value in values:
        if not isinstance(value, Number) and not _is_tensor(value):
            raise ArgumentError(
                "Input arguments must all be instances of Number, torch.Tensor or objects implementing"
                f" __torch_function__. Got {type(value).__name__}: convert it with tenon.as_tensor()."
            )
    first: Any = next((v for v in values if _is_tensor(v)), None)  # or an object with __torch_function__
    options = {"dtype": tenon.get_default_dtype()}
    if first is not None:
        options = {"dtype": first.dtype, "device": first.device}
    tensors = (v if _is_tensor(v) else tenon.tensor(v, **options) for v in values)
    return tuple(tenon.broadcast_tensors(*tensors))


def _standard_normal(shape: Sequence[int], dtype: dtype, device: Device) -> Tensor:
    return tenon.randn(shape, dtype=dtype, device=device)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """Sum ``value`` over its last ``dim`` axes."""
    return value if dim == 0 else value.reshape(*value.shape[:-dim], -1).sum(-1)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Return the sigmoid if ``is_binary`` (of log-odds), else the softmax over the last axis."""
    return tenon.sigmoid(logits) if is_binary else tenon.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Clamp ``probs`` to ``[eps, 1 - eps]``, with the dtype's eps."""
    eps = tenon.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Return log-odds if ``is_binary``, else log-probabilities; probabilities 0 and 1 give finite values."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """An attribute that ``wrapped`` computes at its first use, with gradients even under ``no_grad``."""

    # ``wrapped`` is a method of the class that has the property.
    def __init__(self, wrapped: Callable[[Any], object]) -> None:
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: object, owner: type | None = None) -> Any:  # Any: what ``wrapped`` returns
        if instance is None:
            return self
        with tenon.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Return the lower triangles of ``mat[..., n, n]``, up to diagonal ``diag``, as vectors, row by row."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ArgumentError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = tenon.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Return square matrices with the lower triangles ``vec[..., d]``; inverts ``tril_matrix_to_vec``.

    >>> vec_to_tril_matrix(tenon.tensor([1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.0], [2.0, 3.0]]
    """
    d = vec.shape[-1]
    size = next((n for n in range(abs(diag) + 1, abs(diag) + d + 2) if _triangle_size(n, diag) == d), None)
    if size is None:
        raise ArgumentError(
            f"The size of last dimension is {d} which cannot be expressed as the lower triangular part of a"
            f" square D x D matrix up to diagonal {diag}."
        )
    rows, columns = tenon.tril_indices(size, size, diag, device=vec.device)
    mat = vec.new_zeros((*vec.shape[:-1], size, size))
    mat[..., rows, columns] = vec
    return mat


def _triangle_size(n: int, diag: int) -> int:
    """Return how many elements of an ``n x n`` matrix lie on or below diagonal ``diag``."""
    if diag > 0:
        return n * n - (n - diag) * (n - diag - 1) // 2
    return (n + diag) * (n + diag + 1) // 2

"""Spectral normalization: the weight divided by its largest singular value, from power iteration."""

from __future__ import annotations

import tenon
from tenon import Tensor
from tenon.errors import ModuleValueError
from tenon.nn import Module
from tenon.nn.functional import normalize
from tenon.nn.utils.parametrize import register_parametrization
from tenon.nn.utils.spectral_norm import as_matrix, iterate, over_norm, transposed


class SpectralNorm(Module):
    """Divide by the spectral norm, estimated by power iteration at each access in training mode."""

    #: The estimated left and right singular vectors.
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.ndim}, {weight.ndim - 1}] but "
                f"got {dim})"
            )
        if n_power_iterations <= 0:
            raise ModuleValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps, self.n_power_iterations = dim % weight.ndim, eps, n_power_iterations
        if weight.ndim > 1:
            matrix = as_matrix(weight, self.dim)
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                drawn = matrix.new_empty(size).normal_(0, 1)
                self.register_buffer(name, normalize(drawn, dim=0, eps=eps))
            iterate(matrix.mH, self._v, self._u, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        """Return ``weight`` over its spectral norm; in training mode, iterate first."""
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            iterate(matrix.mH, self._v, self._u, self.n_power_iterations, self.eps)
        return over_norm(weight, matrix, self._u, self._v)

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return ``value`` itself: a weight of norm 1 is its own normalization."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Parametrize ``module.<name>`` so that its largest singular value is 1; return ``module``.

    The tensor is reshaped to a matrix of axis ``dim`` by all others; by default ``dim`` is 1 for transposed
    convolutions and 0 for all other modules. A vector is divided by its Euclidean norm.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, tenon.Tensor):
        raise ModuleValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = int(transposed(module))
    return register_parametrization(module, name, SpectralNorm(weight, n_power_iterations, dim, eps))

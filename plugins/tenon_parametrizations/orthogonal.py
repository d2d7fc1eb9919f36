"""Orthogonal weights: matrices with orthonormal columns (rows, if there are more columns than rows).

Three maps from any matrix to an orthogonal one. ``matrix_exp`` and ``cayley`` build a skew-symmetric matrix
from the lower triangle and map it to a rotation; ``householder`` multiplies one reflection per column. With
``use_trivialization`` the rotation is applied to a fixed matrix ``base`` instead of the identity, so that any
orthogonal weight can be assigned (Lezcano-Casado, 2019).
"""

from __future__ import annotations

import tenon
from tenon import Tensor
from tenon.errors import ModuleValueError
from tenon.nn import Module
from tenon.nn.utils.parametrize import is_parametrized, register_parametrization

MAPS = ("matrix_exp", "cayley", "householder")


def _is_orthogonal(q: Tensor) -> bool:
    n, k = q.shape[-2:]
    identity = tenon.eye(k, dtype=q.dtype, device=q.device)
    return bool(tenon.allclose(q.mH @ q, identity, atol=10 * n * tenon.finfo(q.dtype).eps))


def _nearest_factor(a: Tensor) -> Tensor:
    """Return the unique ``Q`` of ``a = Q R`` for which the diagonal of ``R`` is positive."""
    q, r = tenon.linalg.qr(a)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _reflectors(a: Tensor) -> Tensor:
    """Return the stored form from which ``householder`` computes the ``Q`` of ``a = Q R``.

    Each column holds a reflector below the diagonal, and on the diagonal the sign of that column of ``Q``.
    """
    work, result = a.clone(), tenon.zeros_like(a)
    for j in range(a.shape[-1]):
        x = work[..., j:, j]
        alpha, below = x[..., :1], x[..., 1:]
        norm = x.norm(dim=-1, keepdim=True)
        done = below.norm(dim=-1, keepdim=True) == 0
        # The reflection that takes x to beta e1, with the sign that subtracts nothing close to it.
        beta = tenon.where(alpha >= 0, -norm, norm)
        v = tenon.where(done, tenon.zeros_like(below), below / tenon.where(done, -1.0, alpha - beta))
        tau = 2 / (1 + (v * v).sum(-1, keepdim=True))
        full = tenon.cat([tenon.ones_like(alpha), v], dim=-1).unsqueeze(-1)
        rest = work[..., j:, j:]
        work[..., j:, j:] = rest - tau.unsqueeze(-1) * full * (full.mT @ rest)
        result[..., j + 1 :, j] = v
        result[..., j, j] = work[..., j, j].sign()
    return result


class Orthogonal(Module):
    """Map the last two axes to an orthogonal matrix by ``orthogonal_map``."""

    #: The matrix that the rotation is applied to, with ``use_trivialization``.
    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ModuleValueError(
                "The householder parametrization does not support complex tensors. Use matrix_exp or cayley."
            )
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        """Return the orthogonal matrix computed from one triangle of ``X``."""
        wide = X.size(-2) < X.size(-1)
        x = X.mT if wide else X
        q = self._reflected(x) if self.orthogonal_map == "householder" else self._rotated(x)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _rotated(self, x: Tensor) -> Tensor:
        """Return the first columns of a rotation: the matrix exponential or Cayley map of a skew matrix."""
        n, k = x.size(-2), x.size(-1)
        x = x.tril()
        if n != k:
            x = tenon.cat([x, x.new_zeros(n, n - k).expand(*x.shape[:-2], -1, -1)], dim=-1)
        skew = x - x.mH
        if self.orthogonal_map == "matrix_exp":
            q = tenon.linalg.matrix_exp(skew)
        else:
            identity = tenon.eye(n, dtype=skew.dtype, device=skew.device)
            q = tenon.linalg.solve(identity - skew / 2, identity + skew / 2)
        return q if n == k else q[..., :k]

    def _reflected(self, x: Tensor) -> Tensor:
        """Return a product of one Householder reflection per column."""
        a = x.tril(-1)
        q = tenon.linalg.householder_product(a, 2.0 / (1.0 + (a * a).sum(dim=-2)))
        # The diagonal is not learned: it holds the signs of the columns.
        return q * x.diagonal(dim1=-2, dim2=-1).detach().sign().unsqueeze(-2)

    def right_inverse(self, Q: Tensor) -> Tensor:
        """Return the tensor to store for ``Q``; if ``Q`` is not orthogonal, for its QR factor."""
        if Q.shape != self.shape:
            raise ModuleValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape"
                f" {Q.shape}."
            )
        with tenon.no_grad():
            wide = Q.size(-2) < Q.size(-1)
            q = Q.mT if wide else Q
            if hasattr(self, "base"):
                return self._based_on(q, Q)
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations"
                    " when use_trivialization=False. Register them with use_trivialization=True."
                )
            stored = _reflectors(q)
            return stored.mT if wide else stored

    def _based_on(self, q: Tensor, like: Tensor) -> Tensor:
        """Set ``base`` to ``q``; return the stored tensor of the zero rotation."""
        n, k = q.size(-2), q.size(-1)
        if n != k:
            # Extend the columns to an orthonormal basis of the whole space.
            rest = tenon.randn(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            q = _nearest_factor(tenon.cat([q, rest], dim=-1))
        else:
            q = q.clone() if _is_orthogonal(q) else _nearest_factor(q)
        self.base = q
        # The zero rotation; householder needs the sign of each column, which its reflection at zero flips.
        stored = tenon.zeros_like(like)
        stored.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return stored


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Parametrize ``module.<name>`` as an orthogonal matrix, or a batch of them; return ``module``.

    ``orthogonal_map`` is ``"matrix_exp"``, ``"cayley"`` or ``"householder"``; by default the first for square
    and complex matrices and the last for others. Without ``use_trivialization`` less is stored, but only a
    ``householder`` weight can be assigned to.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, tenon.Tensor):
        raise ModuleValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ModuleValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in MAPS:
        raise ModuleValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    parametrization = Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    if use_trivialization and is_parametrized(module, name):
        parametrization.right_inverse(weight)  # sets the base; registration does not call it after others
    return register_parametrization(module, name, parametrization, unsafe=True)

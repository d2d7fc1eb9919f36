"""How a tensor lies on one dimension of a device mesh: sharded, replicated, or as partial results.

PyTorch's names and semantics (``torch.distributed.tensor.placement_types``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from tenon.distributed.communication.reduction import ReduceOp
from tenon.errors import ArgumentError

__all__ = ["Partial", "Placement", "Replicate", "Shard"]

#: The reduction that each kind of partial result needs.
_OPERATIONS = {
    "sum": ReduceOp.SUM,
    "avg": ReduceOp.AVG,
    "product": ReduceOp.PRODUCT,
    "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
}


class Placement:
    """Base of the three placements."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is a ``Shard``, of axis ``dim`` if that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether it is ``Replicate``."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether it is a ``Partial``, of ``reduce_op`` if that is given."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Axis ``dim`` is split over the mesh dimension, as ``chunk`` splits it: the last ranks may get less.

    With 5 rows on 4 ranks these have 2, 2, 1 and 0 rows.
    """

    dim: int

    def __post_init__(self) -> None:
        if isinstance(self.dim, bool) or not isinstance(self.dim, int):
            raise ArgumentError(f"Shard(dim={self.dim!r}): dim has to be an int, the axis to split.")

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class StridedShard(Shard):
    """Axis ``dim`` is split after the mesh dimensions to the right have split it.

    ``fully_shard`` on a tensor-parallel parameter splits each rank's part again: on a mesh of data x tensor
    the placements are ``(StridedShard(0), Shard(0))``, and a rank's rows are a chunk of its tensor-parallel
    chunk. Where nothing to the right splits the axis it is as ``Shard``. Source: PyTorch's ``_StridedShard``,
    whose ``split_factor`` the mesh determines.
    """

    def __str__(self) -> str:
        return f"SS({self.dim})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Every rank of the mesh dimension has the whole tensor."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, repr=False)
class Partial(Placement):
    """Every rank has a partial result of the whole shape; ``reduce_op`` combines them into the value.

    ``reduce_op`` is "sum", "avg", "product", "max" or "min".
    """

    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        if self.reduce_op not in _OPERATIONS:
            raise ArgumentError(
                f"Partial({self.reduce_op!r}): that is not a reduction. Use one of"
                f" {', '.join(map(repr, _OPERATIONS))}."
            )

    @property
    def operation(self) -> ReduceOp:
        """The reduction as collectives name it."""
        return _OPERATIONS[self.reduce_op]

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


def split_order(placements: Sequence[Placement]) -> list[int]:
    """The mesh dimensions in the order in which they split: left to right, then strided ones right to left.

    >>> split_order([StridedShard(0), Replicate(), Shard(0)])
    [1, 2, 0]
    """
    strided = [d for d, p in enumerate(placements) if isinstance(p, StridedShard)]
    return [d for d in range(len(placements)) if d not in strided] + strided[::-1]


def normalized(placements: object, mesh_ndim: int, ndim: int, what: str) -> tuple[Placement, ...]:
    """``placements`` as a tuple with non-negative axes, one for each mesh dimension; replicated if None.

    They may be of any type, as users pass them. Raises ArgumentError, which names ``what``.
    """
    if placements is None:
        return (Replicate(),) * mesh_ndim
    if isinstance(placements, Placement) or not hasattr(placements, "__iter__"):
        raise ArgumentError(
            f"{what}: placements={placements!r} has to be a list with one placement per mesh dimension."
        )
    given = tuple(cast("Iterable[object]", placements))
    if len(given) != mesh_ndim:
        raise ArgumentError(
            f"{what}: `placements` must have the same length as `device_mesh.ndim`! Found placements length:"
            f" {len(given)}, and device_mesh.ndim: {mesh_ndim}. Pass one placement per mesh dimension."
        )
    result: list[Placement] = []
    for placement in given:
        if not isinstance(placement, Placement):
            raise ArgumentError(
                f"{what}: {placement!r} is not a placement. Use Shard(dim), Replicate() or Partial()."
            )
        if isinstance(placement, Shard):
            if not -ndim <= placement.dim < ndim:
                raise ArgumentError(
                    f"{what}: {placement!r} is out of range for a tensor with {ndim} axes (from {-ndim} to"
                    f" {ndim - 1})."
                )
            placement = type(placement)(placement.dim % ndim)
        result.append(placement)
    return tuple(result)

"""``ShardedArray``: the array of a ``DTensor``, of which each rank stores its own part.

To the engine it is an array as NumPy's are: it has a shape and a dtype, both those of the whole, and is added
to and assigned. What ops do with it is in ``mesh_backend.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tenon.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from tenon.engine.aval import Aval, Shape, contiguous_strides
from tenon.engine.types import Array, NumpyDType, Operand
from tenon.errors import ShapeError, UnsupportedError, ViewError

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh
    from tenon.distributed.tensor.mesh_backend import MeshBackend

Placements = tuple[Placement, ...]


class ShardedArray:
    """A part, ``local``, of an array of ``shape`` that lies on a mesh by ``placements``."""

    __slots__ = (
        "__weakref__",
        "backend",
        "base",
        "copy_of_axis",
        "dtype",
        "local",
        "placements",
        "shape",
    )

    def __init__(
        self,
        local: Array,
        shape: Shape,
        placements: Placements,
        backend: MeshBackend,
        base: ShardedArray | None = None,
    ) -> None:
        self.local = local
        self.shape = shape
        self.placements = placements
        self.backend = backend
        self.dtype: NumpyDType = local.dtype
        #: The array whose memory this one shares, as NumPy's ``base``.
        self.base = base
        #: Whether a view op had to communicate, so that this is a copy: the name of that op.
        self.copy_of_axis = ""

    # --- what engine and methods read of an array ---

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh over which it is sharded."""
        return self.backend.mesh

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the whole."""
        return math.prod(self.shape)

    @property
    def flags(self) -> Operand:
        """The memory flags of the local part."""
        return self.local.flags

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole."""
        return self.size * self.itemsize

    @property
    def strides(self) -> Shape:
        """The byte strides of a contiguous array of the whole shape."""
        return tuple(s * self.itemsize for s in contiguous_strides(self.shape))

    def like(self, local: Array, base: ShardedArray | None = None) -> ShardedArray:
        """An array with another ``local`` part and the same placements."""
        return ShardedArray(local, self.shape, self.placements, self.backend, base)

    def copy(self, order: str = "C") -> ShardedArray:
        """A copy of the local part."""
        return self.like(self.local.copy(order))

    def astype(self, dtype: npt.DTypeLike, copy: bool = True) -> ShardedArray:
        """The same numbers in ``dtype``."""
        array: ShardedArray = self.backend.raw.cast(self, dtype=dtype)
        return array

    def view(self, dtype: npt.DTypeLike) -> ShardedArray:
        """The same bytes as another dtype of the same size; UnsupportedError for another size."""
        if np.dtype(dtype).itemsize != self.itemsize:
            raise UnsupportedError(
                f"view({dtype}) of a sharded tensor of {self.dtype}: the dtypes have different sizes, so that"
                " the last axis would change. View to_local() instead."
            )
        return self.like(self.local.view(dtype), self)

    def redistributed(self, placements: Placements, name: str = "redistribute") -> ShardedArray:
        """The same value by other placements; itself if they are the same. Collective."""
        if placements == self.placements:
            return self
        local = self.backend.redistribute(self, placements, name)
        return ShardedArray(local, self.shape, placements, self.backend)

    @property
    def replicated(self) -> Placements:
        """The placements of an array that is whole on every rank."""
        return (Replicate(),) * len(self.placements)

    # --- changes in place ---

    def __setitem__(self, key: object, value: Operand) -> None:
        if key is not Ellipsis and key != slice(None):
            raise ViewError(
                f"assignment to a part of a sharded array (key {key!r}) is not supported. Write into"
                " to_local(), or compute a new tensor with where()."
            )
        self._refuse_copy()
        if isinstance(self.local, Aval):
            return
        whole = value if isinstance(value, ShardedArray) else self.backend.replicate(value, self.dtype)
        if tuple(whole.shape) != self.shape:
            whole = self.backend.raw.expand(whole, shape=self.shape)
        if whole.shape != self.shape:
            raise ShapeError(f"cannot assign an array of {list(whole.shape)} to one of {list(self.shape)}.")
        self.local[...] = whole.redistributed(self.placements, "assignment").local

    def __iadd__(self, other: Operand) -> ShardedArray:
        self._refuse_copy()
        total = self + other
        self.local[...] = total.redistributed(self.placements, "sum in place").local
        return self

    def _refuse_copy(self) -> None:
        if self.copy_of_axis:
            raise ViewError(
                f"{self.copy_of_axis} of a sharded axis gathers it, so that the result is a copy: a change of"
                " it in place would be lost. Redistribute the tensor first, or write into to_local()."
            )

    # --- arithmetic of gradient rules ---

    def __add__(self, other: Operand) -> Operand:
        return self.backend.raw.add(self, other)

    def __sub__(self, other: Operand) -> Operand:
        return self.backend.raw.sub(self, other)

    def __mul__(self, other: Operand) -> Operand:
        return self.backend.raw.mul(self, other)

    def __truediv__(self, other: Operand) -> Operand:
        return self.backend.raw.div(self, other)

    def __neg__(self) -> Operand:
        return self.backend.raw.neg(self)

    def __radd__(self, other: Operand) -> Operand:
        return self.backend.raw.add(other, self)

    def __rsub__(self, other: Operand) -> Operand:
        return self.backend.raw.sub(other, self)

    def __rmul__(self, other: Operand) -> Operand:
        return self.backend.raw.mul(other, self)

    def __rtruediv__(self, other: Operand) -> Operand:
        return self.backend.raw.div(other, self)

    def __ne__(self, other: object) -> Operand:
        return self.backend.raw.ne(self, other)

    def __eq__(self, other: object) -> Operand:
        return self.backend.raw.eq(self, other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        placed = ", ".join(map(str, self.placements))
        return f"ShardedArray({self.dtype}{list(self.shape)}, [{placed}], local {list(self.local.shape)})"


def of_gradient(placements: Placements) -> Placements:
    """The placements of the gradient of a tensor with ``placements``: whole where that is partial."""
    return tuple(Replicate() if isinstance(p, Partial) else p for p in placements)


def sharded_axes(placements: Placements) -> set[int]:
    """The axes that are split over some mesh dimension."""
    return {p.dim for p in placements if isinstance(p, Shard)}

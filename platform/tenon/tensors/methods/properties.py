"""Properties of a tensor: its dtype's and device's kind, layout, bytes, and comparisons of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon import dtypes
from tenon.errors import ArgumentError
from tenon.tensors.layout import layout, strided
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.storage.untyped import address

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


class Properties(Family):
    """Questions about dtype, device and memory."""

    __slots__ = ()

    def sparse_dim(self) -> int:
        """Number of sparse axes: 0."""
        return 0

    def dense_dim(self) -> int:
        """Number of dense axes: all."""
        return int(self.raw.ndim)

    @as_function(out="none")
    def is_nonzero(self) -> bool:
        """Whether the only element is not zero."""
        if self.raw.size != 1:
            count = "no values" if self.raw.size == 0 else "more than one value"
            raise ArgumentError(
                f"Boolean value of Tensor with {count} is ambiguous. Use .any() or .all() (shape"
                f" {list(self.raw.shape)})."
            )
        return bool(self.item() != 0)

    @as_function(out="none")
    def is_floating_point(self) -> bool:
        """Whether the dtype is floating point."""
        return dtypes.FROM_NUMPY[self.raw.dtype].is_floating_point

    @as_function(out="none")
    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return bool(self.raw.dtype.kind == "c")

    @as_function("is_neg", out="none")
    def is_conj(self) -> bool:
        """Always False: ``conj()`` computes the values instead of setting a flag."""
        return False

    is_neg = is_conj

    @as_function(out="none")
    def is_signed(self) -> bool:
        """Whether the dtype has negative values."""
        return bool(dtypes.FROM_NUMPY[self.raw.dtype].is_signed)

    def element_size(self) -> int:
        """Bytes of one element."""
        return int(self.raw.dtype.itemsize)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.raw.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.raw.size * self.raw.dtype.itemsize)

    @property
    def is_cuda(self) -> bool:
        """Whether it lives on a CUDA device."""
        return bool(self.device.type == "cuda")

    @property
    def is_cpu(self) -> bool:
        """Whether it lives on the CPU."""
        return bool(self.device.type == "cpu")

    @property
    def is_meta(self) -> bool:
        """Whether it has no data."""
        return bool(self.device.type == "meta")

    @property
    def is_sparse(self) -> bool:
        """Always False: tenon's tensors are dense."""
        return False

    @property
    def is_quantized(self) -> bool:
        """Always False: quantized weights are stages of a module, not a tensor type."""
        return False

    @property
    def layout(self) -> layout:
        """Always ``strided``."""
        return strided

    @property
    def names(self) -> tuple[None, ...]:
        """A None for every axis: axes have no names here."""
        return (None,) * int(self.raw.ndim)

    def get_device(self) -> int:
        """Index of the CUDA device, -1 on the CPU."""
        index = self.device.index
        return -1 if index is None else int(index)

    @as_function(out="none")
    def is_same_size(self, other: Tensor) -> bool:
        """Whether both shapes are equal."""
        return tuple(self.raw.shape) == tuple(other.raw.shape)

    def is_set_to(self, other: Tensor) -> bool:
        """Whether both have the same memory, shape and strides."""
        own, theirs = self.raw, other.raw
        return bool(
            address(own) == address(theirs) and own.shape == theirs.shape and own.strides == theirs.strides
        )

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
    """Methods and properties that describe a tensor's dtype, device and memory."""

    __slots__ = ()

    def sparse_dim(self) -> int:
        """Return the number of sparse axes, which is always 0: tenon's tensors are dense."""
        return 0

    def dense_dim(self) -> int:
        """Return the number of dense axes, which is always the number of all axes."""
        return int(self.raw.ndim)

    @as_function(out="none")
    def is_nonzero(self) -> bool:
        """Return whether the only element is not zero; ArgumentError unless there is exactly one."""
        if self.raw.size != 1:
            count = "no values" if self.raw.size == 0 else "more than one value"
            raise ArgumentError(
                f"Boolean value of Tensor with {count} is ambiguous. Use .any() or .all() (shape"
                f" {list(self.raw.shape)})."
            )
        return bool(self.item() != 0)

    @as_function(out="none")
    def is_floating_point(self) -> bool:
        """Return whether the dtype is a floating-point one."""
        return dtypes.FROM_NUMPY[self.raw.dtype].is_floating_point

    @as_function(out="none")
    def is_complex(self) -> bool:
        """Return whether the dtype is a complex one."""
        return bool(self.raw.dtype.kind == "c")

    @as_function("is_neg", out="none")
    def is_conj(self) -> bool:
        """Return False: ``conj()`` and ``neg()`` compute their values instead of setting a flag."""
        return False

    is_neg = is_conj

    @as_function(out="none")
    def is_signed(self) -> bool:
        """Return whether the dtype has negative values."""
        return bool(dtypes.FROM_NUMPY[self.raw.dtype].is_signed)

    def element_size(self) -> int:
        """Return the number of bytes of one element."""
        return int(self.raw.dtype.itemsize)

    @property
    def itemsize(self) -> int:
        """The number of bytes of one element."""
        return int(self.raw.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements; the storage may be larger."""
        return int(self.raw.size * self.raw.dtype.itemsize)

    @property
    def is_cuda(self) -> bool:
        """Whether the tensor is on a CUDA device."""
        return bool(self.device.type == "cuda")

    @property
    def is_cpu(self) -> bool:
        """Whether the tensor is on the CPU."""
        return bool(self.device.type == "cpu")

    @property
    def is_meta(self) -> bool:
        """Whether the tensor is on the device "meta", and so has a shape and dtype but no data."""
        return bool(self.device.type == "meta")

    @property
    def is_sparse(self) -> bool:
        """Always False: tenon's tensors are dense."""
        return False

    @property
    def is_quantized(self) -> bool:
        """Always False: tenon has no quantized dtypes; quantized modules store integers and scales."""
        return False

    @property
    def layout(self) -> layout:
        """The memory layout, as PyTorch calls it: always ``tenon.strided``."""
        return strided

    @property
    def names(self) -> tuple[None, ...]:
        """PyTorch's names of the axes: always None for each, since tenon does not name axes."""
        return (None,) * int(self.raw.ndim)

    def get_device(self) -> int:
        """Return the index of the tensor's device, such as 1 for "cuda:1"; -1 on the CPU."""
        index = self.device.index
        return -1 if index is None else int(index)

    @as_function(out="none")
    def is_same_size(self, other: Tensor) -> bool:
        """Return whether this tensor and ``other`` have the same shape."""
        return tuple(self.raw.shape) == tuple(other.raw.shape)

    def is_set_to(self, other: Tensor) -> bool:
        """Return whether this tensor and ``other`` start at the same address, with equal shapes and
        strides."""
        own, theirs = self.raw, other.raw
        return bool(
            address(own) == address(theirs) and own.shape == theirs.shape and own.strides == theirs.strides
        )

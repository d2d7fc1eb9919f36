"""Layouts that tensors keep between the ops of a compiled program, which saves copies in between.

A layout is the order of an array's elements in memory; the array object is always a contiguous NumPy array of
the logical shape. ``PLAIN`` is C order. A blocked layout divides the channels (axis 1) into blocks whose
members are adjacent: ``[N, C / b, *S, b]``. ``LAST`` is channels-last: ``[N, *S, C]``. A blocked array has a
multiple of ``b`` channels, so it needs no padding, and elementwise ops on arrays of one layout need not know
it.

A packed layout is a weight's: opaque, chosen by one primitive, and of the same size as the plain array.

Next: ``preferred_layouts.py`` chooses the layouts of an op; the op's prepare function accepts them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tenon.extend import errors
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.descriptors import Descriptor, contiguous_strides, dims, element_strides, representable
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.onednn.runtime import runtime

Array = np.ndarray

#: ``dnnl_format_tag_t`` of ``aBc{b}b``, ``aBcd{b}b``, ``aBcde{b}b`` by block and number of axes.
_TAGS = {(16, 3): 56, (16, 4): 78, (16, 5): 121, (8, 3): 69, (8, 4): 102, (8, 5): 142}


@dataclass(frozen=True, eq=False)
class Layout:
    """A name, the block size (0 if not blocked), and the descriptor of a packed layout."""

    name: str
    block: int = 0
    packed: Descriptor | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return (self.name, self.block) == (other.name, other.block) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash((self.name, self.block))

    def descriptor(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Descriptor:
        """Return the descriptor of an array of ``shape`` in this layout."""
        if self.packed is not None:
            return self.packed
        if self.block:
            return _blocked(tuple(shape), np.dtype(dtype), self.block)
        if self.name == "last":
            order = contiguous_strides((shape[0], *shape[2:], shape[1]))
            return Descriptor.strided(shape, (order[0], order[-1], *order[1:-1]), dtype)
        return Descriptor.rows(shape, dtype)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether arrays of this shape can have the layout without padding."""
        if not self.block:
            return len(shape) > 2 or self.name != "last"
        return (self.block, len(shape)) in _TAGS and shape[1] > 0 and shape[1] % self.block == 0

    def __repr__(self) -> str:
        return f"<{self.name}{self.block or ''}>"


PLAIN, LAST = Layout("plain"), Layout("last")


@dataclass(frozen=True)
class Assigned:
    """The layouts of an op's inputs and outputs; ``PLAIN`` for operands that are not arrays."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]

    @classmethod
    def plain(cls, ins: Sequence[object], outs: Sequence[object]) -> Assigned:
        """Return plain layouts for all inputs and outputs."""
        return cls((PLAIN,) * len(ins), (PLAIN,) * len(outs))

    @property
    def all_plain(self) -> bool:
        """Whether all layouts are plain."""
        return all(layout == PLAIN for layout in (*self.inputs, *self.outputs))


def named(descriptor: Descriptor, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Layout | None:
    """Return the layout with this descriptor, for an activation; None if it is none of this module's."""
    block_layout = blocked()
    for layout in (PLAIN, block_layout, LAST):
        if layout.fits(shape) and layout.descriptor(shape, dtype) == descriptor:
            return layout
    return None


def packing(descriptor: Descriptor, plain: Descriptor) -> Layout:
    """Return the packed layout of a weight; ``PLAIN`` if it equals the plain one or has another size."""
    if descriptor == plain or descriptor.size != plain.size:
        return PLAIN
    return Layout("packed", packed=descriptor)


def _blocked(shape: tuple[int, ...], dtype: npt.DTypeLike, block: int) -> Descriptor:
    tag = _TAGS.get((block, len(shape)))
    if tag is None or shape[1] % block:
        raise errors.BackendError(
            f"no layout of {list(shape)} in blocks of {block} channels: it needs 3 to 5 axes and a multiple"
            f" of {block} channels. Check Layout.fits first."
        )
    handle = ctypes.c_void_p()
    runtime().call(
        "dnnl_memory_desc_create_with_tag",
        ctypes.byref(handle), len(shape), dims(shape), c.DTYPES[str(np.dtype(dtype))], tag,
    )  # fmt: skip
    return Descriptor(handle, f"{dtype}{list(shape)} in blocks of {block} channels")


def preferred_block() -> int:
    """Return the block size that convolutions prefer on this processor; 0 if they prefer no blocks."""
    global _preferred_block
    if _preferred_block is None:
        shape, dtype = (2, 32, 8, 8), np.dtype(np.float32)
        probe = Primitive(
            "convolution_forward", c.FORWARD_TRAINING, c.ALGORITHMS["convolution_direct"],
            Descriptor.any(shape, dtype), Descriptor.any((32, 32, 3, 3), dtype), None,
            Descriptor.any(shape, dtype), (1, 1), (0, 0), (1, 1), (1, 1),
        )  # fmt: skip
        layout = probe.layout(c.SRC)
        _preferred_block = next((b for b in (16, 8) if layout == _blocked(shape, dtype, b)), 0)
    return _preferred_block


_preferred_block: int | None = None


def blocked() -> Layout:
    """Return the blocked layout of this processor; ``PLAIN`` where it has none."""
    block = preferred_block()
    return Layout("blocked", block) if block else PLAIN


def reorder(src: Array, src_layout: Layout, dst: Array, dst_layout: Layout) -> Callable[[], None]:
    """Return a function that copies ``src`` to ``dst``, each in its layout; plain arrays may have any
    strides."""
    if src_layout == PLAIN and not representable(src):  # broadcast or reversed
        contiguous = np.empty(src.shape, src.dtype)
        copy = reorder(contiguous, PLAIN, dst, dst_layout)

        def run() -> None:
            np.copyto(contiguous, src)
            copy()

        return run
    packed = src_layout.packed or dst_layout.packed
    descriptors = []
    for array, layout in ((src, src_layout), (dst, dst_layout)):
        if packed is not None and layout.packed is None:
            descriptors.append(_window(array, packed.shape))
        elif layout == PLAIN:
            descriptors.append(Descriptor.of(array))
        else:
            descriptors.append(layout.descriptor(array.shape, array.dtype))
    primitive = Primitive("reorder", *descriptors)
    return primitive.execution({c.SRC: src, c.DST: dst}, own_scratch=True)


def _window(weight: Array, shape: tuple[int, ...]) -> Descriptor:
    """Return the descriptor of a plain weight in the axes of a packed one, where the groups may be an
    axis."""
    if len(shape) == weight.ndim:
        return Descriptor.of(weight)
    o, *strides = element_strides(weight)
    return Descriptor.strided(shape, (o * shape[1], o, *strides), weight.dtype)

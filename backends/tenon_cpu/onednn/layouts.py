"""Layouts that tensors keep between the ops of a compiled program, so that no op has to copy.

A layout says in which order the elements of an array lie in its memory; the array itself is always a contiguous
NumPy array of the logical shape, and of its size. ``PLAIN`` is that order as NumPy sees it. In ``BLOCKED`` the
channels (axis 1) are cut into blocks whose members lie side by side: ``[N, C / b, *S, b]``. ``LAST`` has them
all side by side: ``[N, *S, C]``. A blocked array has a multiple of ``b`` channels, so that nothing is padded,
and elementwise ops on arrays of one layout run over the memory without knowing it.

``PACKED`` is a weight's: opaque, known to one primitive only, in memory of ``nbytes`` bytes.

Next: ``wanted.py`` says which layouts an op wants; its prepare functions take them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon.extend import errors
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.descriptors import Descriptor, contiguous_strides, dims
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.onednn.runtime import Buffer, runtime

Array = np.ndarray[Any, Any]

#: ``dnnl_format_tag_t`` of ``aBc{b}b``, ``aBcd{b}b``, ``aBcde{b}b`` by block and number of axes.
_TAGS = {(16, 3): 56, (16, 4): 78, (16, 5): 121, (8, 3): 69, (8, 4): 102, (8, 5): 142}


@dataclass(frozen=True, eq=False)
class Layout:
    """A name, the size of a block where there are blocks, the descriptor where the layout is a primitive's."""

    name: str
    block: int = 0
    packed: Descriptor | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return (self.name, self.block) == (other.name, other.block) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash((self.name, self.block))

    def descriptor(self, shape: tuple[int, ...], dtype: Any) -> Descriptor:
        """Of an array of this layout."""
        if self.packed is not None:
            return self.packed
        if self.block:
            return _blocked(tuple(shape), np.dtype(dtype), self.block)
        if self.name == "last":
            order = contiguous_strides((shape[0], *shape[2:], shape[1]))
            return Descriptor.strided(shape, (order[0], order[-1], *order[1:-1]), dtype)
        return Descriptor.rows(shape, dtype)

    def nbytes(self, shape: tuple[int, ...], dtype: Any) -> int:
        """Bytes of memory for an array of this layout; those of a plain array, unless it is packed."""
        if self.packed is not None:
            return self.packed.size
        return math.prod(shape) * np.dtype(dtype).itemsize

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether arrays of this shape can have it without padding."""
        if self.packed is not None:
            return tuple(shape) == self.packed.shape
        if not self.block:
            return self.name == "plain" or len(shape) > 2
        return (self.block, len(shape)) in _TAGS and shape[1] > 0 and shape[1] % self.block == 0

    def __repr__(self) -> str:
        return f"<{self.name}{self.block or ''}>"


PLAIN, LAST = Layout("plain"), Layout("last")


def _blocked(shape: tuple[int, ...], dtype: Any, block: int) -> Descriptor:
    tag = _TAGS.get((block, len(shape)))
    if tag is None or shape[1] % block:
        raise errors.BackendError(
            f"no layout of {list(shape)} in blocks of {block} channels: it needs 3 to 5 axes and a multiple"
            f" of {block} channels. Ask Layout.fits first."
        )
    made = ctypes.c_void_p()
    runtime().call(
        "dnnl_memory_desc_create_with_tag",
        ctypes.byref(made), len(shape), dims(shape), c.DTYPES[str(np.dtype(dtype))], tag,
    )  # fmt: skip
    return Descriptor(made, f"{dtype}{list(shape)} in blocks of {block} channels")


def own_block() -> int:
    """The block that this processor's convolutions want; 0 where they want none."""
    global _own_block
    if _own_block is None:
        shape, dtype = (2, 32, 8, 8), np.dtype(np.float32)
        probe = Primitive(
            "convolution_forward", c.FORWARD_TRAINING, c.ALGORITHMS["convolution_direct"],
            Descriptor.any(shape, dtype), Descriptor.any((32, 32, 3, 3), dtype), None,
            Descriptor.any(shape, dtype), (1, 1), (0, 0), (1, 1), (1, 1),
        )  # fmt: skip
        wanted = probe.layout(c.SRC)
        _own_block = next((b for b in (16, 8) if wanted == _blocked(shape, dtype, b)), 0)
    return _own_block


_own_block: int | None = None


def blocked() -> Layout:
    """The blocked layout of this processor; ``PLAIN`` where it has none."""
    block = own_block()
    return Layout("blocked", block) if block else PLAIN


def reorder(
    src: Array | Buffer,
    src_layout: Layout,
    dst: Array | Buffer,
    dst_layout: Layout,
    shape: Any = None,
    dtype: Any = None,
) -> Callable[[], None]:
    """A function that copies ``src`` to ``dst``, each in its layout; shape and dtype are those of the arrays,
    of which one may be a ``Buffer`` in a packed layout."""
    known = next((a for a in (src, dst) if isinstance(a, np.ndarray)), None)
    shape = known.shape if shape is None and known is not None else shape
    dtype = known.dtype if dtype is None and known is not None else dtype
    made = Primitive("reorder", src_layout.descriptor(shape, dtype), dst_layout.descriptor(shape, dtype))
    return made.execution({c.SRC: src, c.DST: dst}, own_scratch=True)

"""The primitives of one convolution: forward, input's gradient, weight's gradient.

A ``Problem`` has the shapes and the geometry. Its methods take the layouts of the two activations, ``None``
for the primitive's own choice, and return None where oneDNN has no fast kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import Attributes, PostOp
from tenon_cpu.onednn.descriptors import Descriptor, element_strides
from tenon_cpu.onednn.layouts import PLAIN, Layout, blocked
from tenon_cpu.onednn.primitives import Parameter, Primitive

#: Stride, padding, dilation, groups.
Geometry = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]
#: Layouts of input and result; None for the primitive's own choice.
Layouts = tuple[Layout | None, Layout | None]
_DIRECT = c.ALGORITHMS["convolution_direct"]


@dataclass(frozen=True)
class Problem:
    """``x[N, C, *S]``, ``weight[O, C / groups, *K]``, ``y[N, O, *S']``."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    y: tuple[int, ...]
    dtype: np.dtype
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def geometry(self) -> tuple[tuple[int, ...], ...]:
        """Strides, dilations (0 for none), padding before, padding after: oneDNN's order.

        Rows and columns that no window reaches count as negative padding after the input.
        """
        after = tuple(
            (n - 1) * t + d * (k - 1) + 1 - s - p
            for n, t, d, k, s, p in zip(
                self.y[2:], self.stride, self.dilation, self.weight[2:], self.x[2:], self.padding, strict=True
            )
        )
        return self.stride, tuple(d - 1 for d in self.dilation), self.padding, after

    @property
    def window(self) -> tuple[int, ...]:
        """The weight's shape for oneDNN, where the groups are an axis."""
        o, i, *kernel = self.weight
        return (o, i, *kernel) if self.groups == 1 else (self.groups, o // self.groups, i, *kernel)

    def weight_like(self, array: np.ndarray) -> Descriptor:
        """Return the descriptor of a weight with the strides of ``array``."""
        o, *rest = element_strides(array)
        strides = (o, *rest) if self.groups == 1 else (o * (self.weight[0] // self.groups), o, *rest)
        return Descriptor.strided(self.window, strides, array.dtype)

    def any_weight(self) -> Descriptor:
        """Return the descriptor of a weight whose layout the primitive chooses."""
        return Descriptor.any(self.window, self.dtype)

    def activations(self, layouts: Layouts) -> tuple[Descriptor, Descriptor]:
        """Return the descriptors of ``x`` and ``y`` in their layouts."""
        x, y = (
            Descriptor.any(shape, self.dtype) if layout is None else layout.descriptor(shape, self.dtype)
            for shape, layout in zip((self.x, self.y), layouts, strict=True)
        )
        return x, y

    def forward(
        self, layouts: Layouts, bias: bool, post_ops: tuple[PostOp, ...] = (), training: bool = True
    ) -> Primitive | None:
        """Return the primitive ``SRC``, ``WEIGHTS``, ``BIAS`` -> ``DST``."""
        x, y = self.activations(layouts)
        shift = Descriptor.rows(self.weight[:1], self.dtype) if bias else None
        kind = c.FORWARD_TRAINING if training else c.FORWARD_INFERENCE
        return _create(
            "convolution_forward", kind, _DIRECT, x, self.any_weight(), shift, y, *self.geometry,
            attributes=Attributes(post_ops) if post_ops else None,
        )  # fmt: skip

    def input_grad(self, layouts: Layouts) -> Primitive | None:
        """Return the primitive ``DIFF_DST``, ``WEIGHTS`` -> ``DIFF_SRC``."""
        hint, (x, y) = self._hint(layouts), self.activations(layouts)
        return hint and _create(
            "convolution_backward_data", _DIRECT, x, self.any_weight(), y, *self.geometry, hint
        )

    def weight_grad(self, layouts: Layouts, bias: bool = False) -> Primitive | None:
        """Return the primitive ``SRC``, ``DIFF_DST`` -> ``DIFF_WEIGHTS``, ``DIFF_BIAS``."""
        hint, (x, y) = self._hint(layouts), self.activations(layouts)
        shift = Descriptor.rows(self.weight[:1], self.dtype) if bias else None
        return hint and _create(
            "convolution_backward_weights", _DIRECT, x, self.any_weight(), shift, y, *self.geometry, hint
        )

    def _hint(self, layouts: Layouts) -> Primitive | None:
        """Return a forward primitive as the hint that oneDNN's gradient primitives need."""
        x, y = self.activations(layouts)
        arguments = (c.FORWARD_TRAINING, _DIRECT, x, self.any_weight(), None, y, *self.geometry)
        return _create("convolution_forward", *arguments, any_kernel=True)

    def blocks(self) -> Layouts | None:
        """Return blocked layouts, if both activations have a multiple of the block size in channels."""
        layout = blocked()
        divides = layout is not PLAIN and layout.fits(self.x) and layout.fits(self.y)
        return (layout, layout) if divides else None

    def plain_is_better(self, kind: str) -> bool:
        """Whether matrix products of plain arrays take less time than reorders and a blocked kernel.

        Measured on one core with AVX-512, in ms, reorders included: convolutions of 1 x 1 windows are matrix
        products anyway (64 to 256 channels of 32 x 32, 32 images: 11.0 against 16); in the gradient of few
        channels a block is mostly padding (3 channels of 32 x 32: 2.3 against 6.7); for few output positions
        the weight's reorder takes longer than the product.
        """
        if self.groups != 1:
            return False
        single = math.prod(self.weight[2:]) == 1 and not any(self.padding)
        if kind == "forward" and single and set(self.stride) == {1}:
            return True
        if kind == "input" and (single or self.x[1] < 8):
            return True
        return self.y[0] * math.prod(self.y[2:]) < FEW_POSITIONS


#: Output positions below which a weight's reorder takes longer than blocks save.
FEW_POSITIONS = 200


def _create(
    kind: str, *parameters: Parameter, attributes: Attributes | None = None, any_kernel: bool = False
) -> Primitive | None:
    """Create a primitive; None where oneDNN has none, or only its reference, which is hundreds of times
    slower."""
    primitive = Primitive.if_implemented(kind, *parameters, attributes=attributes)
    return None if primitive is None or (primitive.reference and not any_kernel) else primitive

"""Kernels that replace reference forwards on the CPU, by op name.

``KERNELS`` take the op's arguments. ``COMPOSITES`` take the namespace of raw ops before them, so that they
can leave
what they are not made for to the parts.
"""

from __future__ import annotations

from tenon.extend import Kernel
from tenon_cpu.kernels import (
    activation,
    contraction,
    convolution,
    direct,
    factoring,
    ordering,
    piecewise,
    pointwise,
    pooling,
    products,
    selection,
)

KERNELS: dict[str, Kernel] = {
    **direct.KERNELS,
    **contraction.KERNELS,
    **convolution.KERNELS,
    **factoring.KERNELS,
    **ordering.KERNELS,
    **piecewise.KERNELS,
    **pointwise.KERNELS,
    **pooling.KERNELS,
    **selection.KERNELS,
}
COMPOSITES: dict[str, Kernel] = {
    **activation.COMPOSITES,
    **contraction.COMPOSITES,
    **pointwise.COMPOSITES,
    **products.COMPOSITES,
}

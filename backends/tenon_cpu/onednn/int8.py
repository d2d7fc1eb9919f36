"""Which oneDNN kernels of 8-bit integers compute exact sums, and up to which length."""

from __future__ import annotations

import re
from collections.abc import Callable

from tenon.extend import Availability
from tenon_cpu.jit import integer
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.primitives import Parameter, Primitive
from tenon_cpu.onednn.runtime import available

#: Scale and zero point of the input, scale and zero point of the result (None and 0 for a float result), and
#: whether relu is applied to the result.
Steps = tuple[float, int, float | None, int, bool]
#: Shapes of the input, the weight and the result.
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
#: Names of implementations whose sums are exact.
_EXACT = re.compile("vnni|amx")
#: The largest number of products, of at most 255 * 128 each, whose sum certainly fits 32 bits.
LONGEST = (2**31 - 1) // (255 * 128)


def exact(kind: str, *parameters: Parameter, attributes: Attributes) -> Primitive | None:
    """Create a primitive; None where oneDNN has no fast kernel with exact sums.

    Without VNNI or AMX it adds pairs of products in 16 bits, with saturation.
    """
    primitive = Primitive.if_implemented(kind, *parameters, attributes=attributes)
    if primitive is None or primitive.reference or not _EXACT.search(primitive.implementation):
        return None
    return primitive


def has_exact_kernel(probe: Callable[[], object]) -> Availability:
    """Whether oneDNN is in use and has exact kernels for this processor: ``probe`` creates one, or returns
    None."""
    availability = available()
    if availability and probe() is None:
        return Availability(False, "oneDNN has no exact kernel of 8 bits for this processor")
    return availability


def generated() -> Availability:
    """Whether exact products are computed by generated code; it uses oneDNN's descriptors, so oneDNN must be
    in use."""
    availability = available()
    if not availability or integer.usable():
        return availability
    return Availability(False, "exact products of 8 bits are generated for AVX2, with numba")


__all__ = ["LONGEST", "exact", "generated", "has_exact_kernel"]

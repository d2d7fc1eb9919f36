"""What products of 8-bit integers have in common: which of oneDNN's kernels have exact sums, and how long."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tenon.extend import Availability
from tenon_cpu.jit import integer
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.library import OneDnnError
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.onednn.runtime import available

#: Step and zero point of the input, those of the result (None and 0 if that is of floats), and whether the
#: result is rectified.
Steps = tuple[float, int, float | None, int, bool]
#: Shapes of the input, the weight and the result.
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
#: Kernels by their names.
_EXACT = re.compile("vnni|amx")
#: The largest count of products whose sum certainly fits 32 bits: 255 * 128 each.
LONGEST = (2**31 - 1) // (255 * 128)


def exact(kind: str, *parameters: Any, attributes: Attributes) -> Primitive | None:
    """The primitive, or None where oneDNN has no fast one whose sums are exact.

    Without VNNI or AMX it adds two products in 16 bits, and takes what does not fit for the largest number.
    """
    try:
        primitive = Primitive(kind, *parameters, attributes=attributes)
    except OneDnnError as error:
        if error.unimplemented:
            return None
        raise
    return primitive if not primitive.reference and _EXACT.search(primitive.implementation) else None


def offered(probe: Callable[[], object]) -> Availability:
    """Whether oneDNN is in use and has exact kernels for this processor: ``probe`` returns one, or None."""
    availability = available()
    if availability and probe() is None:
        return Availability(False, "oneDNN has no exact kernel of 8 bits for this processor")
    return availability


def generated() -> Availability:
    """Whether oneDNN, whose descriptors it needs, is in use, and code is generated for exact products."""
    availability = available()
    if not availability or integer.usable():
        return availability
    return Availability(False, "exact products of 8 bits are generated for AVX2, with numba")


__all__ = ["LONGEST", "exact", "generated", "offered"]

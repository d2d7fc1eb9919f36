"""Kernels for 16-bit floats, which are tried before the kernels of the table.

A ``ShortKernel`` computes a call, or passes it on to the next kernel, perhaps with arguments in float32.
``passed_on`` determines which, by calling it with a next kernel that only reports its arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenon.engine.types import Attrs, Operand
from tenon.kernels.kernel_table import Kernel


@dataclass(frozen=True, slots=True)
class ShortKernel:
    """A kernel of an op that is tried first where the first array holds 16-bit floats.

    It is called as ``kernel(following, *args, **attrs)`` and computes the call, or returns the result of the
    next kernel, ``following``, on the arguments or on arguments converted to float32. ``accepts`` describes
    the calls that it does not pass on unchanged.
    """

    name: str
    kernel: Kernel
    accepts: str


def composed(kernels: Sequence[ShortKernel], kernel: Kernel) -> Kernel:
    """Return the function that tries ``kernels`` in order, the last of which passes calls on to
    ``kernel``."""
    for short in reversed(kernels):
        kernel = functools.partial(short.kernel, kernel)
    return kernel


class _PassedOn(Exception):
    """Raised in place of the next kernel, with its arguments."""

    def __init__(self, args: tuple[Operand, ...], attrs: Attrs) -> None:
        super().__init__()
        self.passed = args, attrs


def passed_on(
    kernel: Kernel, args: Sequence[Operand], attrs: Mapping[str, object]
) -> tuple[tuple[Operand, ...], Attrs] | None:
    """Return the arguments that ``kernel``, of a ``ShortKernel``, passes on; None if it computes the call."""

    def following(*args: Operand, **attrs: object) -> Operand:
        raise _PassedOn(args, attrs)

    try:
        kernel(following, *args, **attrs)
    except _PassedOn as stopped:
        return stopped.passed
    return None


__all__ = ["ShortKernel", "composed", "passed_on"]

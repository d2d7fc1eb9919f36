"""``Tracing``: notes what Python decides by numbers that are computed from sizes.

``traced_numbers.py`` has the numbers.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from fractions import Fraction
from types import FrameType
from typing import Protocol

from tenon.export.sizes import Expression
from tenon.export.symbolic.escapes import decides_by_result, tests_membership
from tenon.export.symbolic.size_guards import (
    Decisions,
    Opaque,
    Refused,
    SizeGuard,
    Traced,
    computed,
    symbols_of,
)
from tenon.graph.scalars import QUESTIONS
from tenon.tensors.call_site import OURS, user_line
from tenon.tensors.tensor import Tensor

#: Code that branches by sizes between computations of the same values, or to raise an error.
_BELOW = tuple(
    f"{OURS[0]}/{path}"
    for path in (
        "engine/",
        "graph/",
        "kernels/",
        "ops/",
        "tensors/",
        "nn/functional/interpolation.py",
        "nn/functional/normalization.py",
    )
)


class Dependent(Protocol):
    """A number that depends on sizes."""

    size: Traced


class Tracing:
    """The numbers of one capture: where their decisions go, and whether the capture still runs."""

    def __init__(self, decisions: Decisions, recording: Callable[[], bool]) -> None:
        self.decisions, self.recording = decisions, recording
        #: Whether the captured function runs; afterwards the numbers are plain ones.
        self.runs = True

    def listens(self) -> bool:
        """Whether decisions of the present thread are noted."""
        return self.runs and self.recording()

    def compare(self, question: str, left: Number, right: Number) -> bool:
        """Answer a comparison of two numbers, one of which is traced, and note it."""
        answer = bool(QUESTIONS[question](left.plain, right.plain))
        below = sys._getframe(2).f_code.co_filename.startswith(_BELOW)
        if not below and self.listens() and math.isfinite(left.plain) and math.isfinite(right.plain):
            where = user_line()
            if isinstance(left.size, Opaque) or isinstance(right.size, Opaque):
                self.refuse(
                    symbols_of(left.size) | symbols_of(right.size),
                    f"Python compares {left.plain!r} with {right.plain!r}, one of which is computed from "
                    "{sizes} in another way than by +, -, *, // and % of integers, so that no guard states "
                    "for which sizes the graph holds. Compare integers, or leave that size out of dynamic=",
                )
            else:
                one = computed("mul", left.size, right.denominator)
                other = computed("mul", right.size, left.denominator)
                assert not isinstance(one, Opaque) and not isinstance(other, Opaque)
                self.decisions.add(SizeGuard(one, question, other, answer, where))
        return answer

    def refuse(self, symbols: set[str], problem: str) -> None:
        """Note a decision that no guard can state."""
        self.decisions.refused.append(Refused(frozenset(symbols), problem, user_line()))

    def converted(self, number: Dependent, function: str, frame: FrameType | None = None) -> None:
        """Note that ``frame``, by default the caller's caller, gets a plain number, and may decide by it."""
        frame = frame or sys._getframe(2)
        if not self.listens() or frame.f_code.co_filename.startswith(OURS):
            return
        line = decides_by_result(frame)
        if line is not None:
            self.refuse(
                symbols_of(number.size),
                f"Python decides, in line {line}, by a plain number made of {{sizes}} by {function}, so that "
                "no guard states for which sizes the graph holds. Compare the size itself (x.shape[0], "
                "x.shape[0] // 2), or leave that size out of dynamic=",
            )

    def looked_up(self, number: Dependent) -> None:
        """Note that a size is searched in a set or dict."""
        frame = sys._getframe(2)
        if self.listens() and not frame.f_code.co_filename.startswith(OURS) and tests_membership(frame):
            self.refuse(
                symbols_of(number.size),
                "Python decides by whether {sizes} is in a set or dict, so that no guard states for which "
                "sizes the graph holds. Search in a list or tuple, or leave that size out of dynamic=",
            )

    def divided(self, size: Expression, value: int) -> None:
        """Note a quotient or rest, by which Python may decide unseen as long as it is the same."""
        self.decisions.quotients.setdefault(size, (value, user_line()))


class Number:
    """An operand: its plain number, and the expression divided by a positive integer that gives it."""

    __slots__ = ("denominator", "plain", "size", "tracing")

    def __init__(
        self, plain: float, size: Traced, denominator: int = 1, tracing: Tracing | None = None
    ) -> None:
        self.plain, self.size, self.denominator, self.tracing = plain, size, denominator, tracing


def number(value: object) -> Number | None:
    """Return a Python number as an operand; None for any other object."""
    if hasattr(type(value), "operand"):
        operand: Number = value.operand()  # type: ignore[attr-defined]
        return operand
    if isinstance(value, float):
        if not math.isfinite(value):
            return Number(float(value), Opaque(frozenset()))
        fraction = Fraction(value)
        return Number(float(value), fraction.numerator, fraction.denominator)
    if isinstance(value, Tensor):  # an op: reading its value would be an error
        return None
    try:
        plain = operator.index(value)  # type: ignore[arg-type]  # NumPy's integers and booleans too
    except TypeError:
        return None
    return Number(plain, plain)

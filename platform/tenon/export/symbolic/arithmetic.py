"""Arithmetic on expressions of sizes: functions of them, substitution, and the range of a difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tenon.export.sizes import FUNCTIONS, Expression, Size, plus, times

#: A product of symbols, quotients and rests -> its factor; () is the number.
Terms: TypeAlias = "dict[tuple[Expression, ...], int]"


def combine(function: str, left: Size, right: Size) -> Size:
    """Return ``function`` of two sizes, as short as it can be written without reordering.

    >>> combine("sub", combine("add", Expression("symbol", ("batch",)), 2), 3)
    batch - 1
    """
    if isinstance(left, int) and isinstance(right, int):
        return FUNCTIONS[function][0](left, right)
    if function in ("floordiv", "mod"):
        if right == 1:
            return left if function == "floordiv" else 0
        return Expression(function, (left, right))
    if function == "mul":
        if isinstance(right, int):
            left, right = right, left
        if isinstance(left, int) and isinstance(right, Expression):
            if right.function == "mul" and isinstance(right.args[0], int):
                inner = right.args[1]
                assert not isinstance(inner, str)
                return combine("mul", left * right.args[0], inner)
            return times(left, right) if left else 0
        return Expression("mul", (left, right))
    if isinstance(right, int):
        number = right if function == "add" else -right
        assert isinstance(left, Expression)
        if left.function in ("add", "sub") and isinstance(left.args[1], int):
            inner, added = left.args[0], left.args[1] if left.function == "add" else -left.args[1]
            assert not isinstance(inner, str)
            return combine("add", inner, added + number)
        return plus(left, number)
    if function == "add" and isinstance(left, int):
        return combine("add", right, left)
    return Expression(function, (left, right))


def substituted(size: Size, known: Mapping[str, Size]) -> Size:
    """Return ``size`` with sizes in place of its symbols."""
    if not isinstance(size, Expression):
        return size
    if size.function == "symbol":
        return known[str(size.args[0])]
    left, right = (substituted(arg, known) for arg in size.args if not isinstance(arg, str))
    return combine(size.function, left, right)


def difference_range(left: Size, right: Size) -> tuple[int | None, int | None]:
    """Return the least and largest value of ``left - right`` for sizes of 0 and more, None for no limit."""
    terms = _terms(left)
    for atoms, factor in _terms(right).items():
        terms[atoms] = terms.get(atoms, 0) - factor
    number = terms.pop((), 0)
    least: int | None = number
    most: int | None = number
    for atoms, factor in terms.items():
        if not factor:
            continue
        low, high = (0, _limit(atoms)) if all(map(_is_natural, atoms)) else (None, None)
        if factor < 0:
            low, high = high, low
        least = None if least is None or low is None else least + factor * low
        most = None if most is None or high is None else most + factor * high
    return least, most


def _is_natural(size: Size) -> bool:
    """Whether a size is 0 or more, as far as that is simple to see."""
    if not isinstance(size, Expression):
        return size >= 0
    if size.function in ("symbol", "mod"):
        return True
    return size.function != "sub" and all(_is_natural(arg) for arg in size.args if not isinstance(arg, str))


def _limit(atoms: tuple[Expression, ...]) -> int | None:
    """Return the largest value of a rest; None for other atoms."""
    if len(atoms) == 1 and atoms[0].function == "mod" and isinstance(atoms[0].args[1], int):
        return atoms[0].args[1] - 1
    return None


def _terms(size: Size) -> Terms:
    """Return a size as a sum of products."""
    if not isinstance(size, Expression):
        return {(): size} if size else {}
    if size.function in ("symbol", "floordiv", "mod"):
        return {(size,): 1}
    left, right = (_terms(arg) for arg in size.args if not isinstance(arg, str))
    result: Terms = dict(left)
    if size.function == "mul":
        result = {}
        for one, first in left.items():
            for other, second in right.items():
                atoms = tuple(sorted((*one, *other), key=str))
                result[atoms] = result.get(atoms, 0) + first * second
        return result
    sign = 1 if size.function == "add" else -1
    for atoms, factor in right.items():
        result[atoms] = result.get(atoms, 0) + sign * factor
    return result

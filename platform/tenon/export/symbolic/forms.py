"""Expressions that an integer of a node may have, from the sizes of what it reads and of earlier values.

``forms`` yields them, the nearest first: the sizes that a strided window, a merge of axes or a concatenation
has are found among those of the arguments, so that chains of them need no deeper search. The caller takes the
first that gives all observed values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from tenon.export import sizes
from tenon.export.sizes import Expression, Size, Sizes, at, plus, times

#: Divisors of which the rests are tried: what images and texts are padded to.
_MULTIPLES = (2, 4, 8, 16, 32, 64, 3, 5, 6, 7, 10, 12, 14)
#: The most of the latest sizes that are combined with each other.
_COMBINED = 20


class Observed:
    """Integers observed at several sizes of the symbols, and the sizes that are known there."""

    def __init__(self, values: Sequence[int], samples: Sequence[Sizes], known: Iterable[Expression]) -> None:
        self.values, self.samples = tuple(values), samples
        #: The known sizes with their values; of equal ones the first.
        self.known: dict[tuple[int, ...], Expression] = {}
        for size in known:
            self.known.setdefault(self.of(size), size)

    def of(self, size: Size) -> tuple[int, ...]:
        """Return the values of an expression."""
        return tuple(at(size, each) for each in self.samples)

    def fits(self, size: Size) -> bool:
        """Whether an expression gives the observed values."""
        return all(at(size, s) == v for v, s in zip(self.values, self.samples, strict=True))


def forms(observed: Observed, shapes: Sequence[Sequence[Size]], divisors: Sequence[int]) -> Iterator[Size]:
    """Yield expressions that may give the observed values, for a node that reads values of ``shapes``.

    ``divisors`` are numbers by which the node may divide, such as its strides.
    """
    read = list(dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, Expression)))
    yield from (size for size in read if observed.of(size) == observed.values)
    for shape in shapes:
        for first, last in itertools.combinations(range(len(shape) + 1), 2):
            yield product(shape[first:last])
    # Before known sizes: of even sizes only, 2*(height//2) is what a transposed convolution gives.
    for size in read:
        yield from windows(observed, size, divisors)
    if observed.values in observed.known:
        yield observed.known[observed.values]
    yield from sizes.candidates(observed.values, observed.samples)
    latest = dict(list(observed.known.items())[-_COMBINED:])
    yield from _products(observed, latest)
    yield from _differences(observed, latest)
    for size in latest.values():
        yield from _rests(observed, size)


def argument_forms(
    observed: Observed, shapes: Sequence[Sequence[Size]], divisors: Sequence[int]
) -> Iterator[Size]:
    """Yield the same for arguments and attrs, first those to which no number is added.

    They are observed in captures only, which are few, so that a free number would fit by chance.
    """
    read = list(dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, Expression)))
    yield from (size for size in read if observed.of(size) == observed.values)
    for size in read:
        yield from (each for each in windows(observed, size, (2,)) if not _adds(each))
    if observed.values in observed.known:
        yield observed.known[observed.values]
    for size in read:
        yield from _rests(observed, size)
    latest = dict(list(observed.known.items())[-_COMBINED:])
    yield from _differences(observed, latest, (0,))
    yield from forms(observed, shapes, divisors)


def _adds(size: Size) -> bool:
    return isinstance(size, Expression) and size.function in ("add", "sub")


def product(factors: Sequence[Size]) -> Size:
    """Return the product as it is written: ``12*batch*(height//2)``."""
    number, rest = 1, []
    for factor in factors:
        while isinstance(factor, Expression) and factor.function == "mul" and isinstance(factor.args[0], int):
            number, factor = number * factor.args[0], _size(factor.args[1])
        if isinstance(factor, Expression):
            rest.append(factor)
        else:
            number *= factor
    if not rest or not number:
        return number
    total = rest[0]
    for factor in rest[1:]:
        total = Expression("mul", (total, factor))
    return times(number, total)


def _size(arg: int | str | Expression) -> Size:
    assert not isinstance(arg, str)
    return arg


def windows(observed: Observed, size: Expression, divisors: Sequence[int]) -> Iterator[Size]:
    """Yield ``c*size + e``, and ``c*((size + s)//d) + e`` for the ``divisors``."""
    inside = observed.of(size)
    for divisor in (1, *divisors):
        for shift in range(divisor):
            quotients = [(each + shift) // divisor for each in inside]
            low, high = quotients.index(min(quotients)), quotients.index(max(quotients))
            span, seen = quotients[high] - quotients[low], observed.values[high] - observed.values[low]
            if not span or not seen or seen % span:
                continue
            scale = seen // span
            offset = observed.values[low] - scale * quotients[low]
            if any(scale * q + offset != v for q, v in zip(quotients, observed.values, strict=True)):
                continue
            if scale == 1:
                yield quotient(size, shift + offset * divisor, divisor)
            else:
                yield plus(times(scale, quotient(size, shift, divisor)), offset)


def quotient(size: Expression, shift: int, divisor: int) -> Expression:
    """Return ``(size + shift)//divisor``; if ``size`` is a quotient plus a number itself, as one quotient.

    >>> quotient(sizes.parse("(width + 3)//4 - 1", ["width"]), 2, 2)
    (width + 7)//8
    >>> quotient(sizes.parse("4*width", ["width"]), 2, 4)
    width
    """
    inner, added = size, 0
    if (
        size.function in ("add", "sub")
        and isinstance(size.args[1], int)
        and isinstance(size.args[0], Expression)
    ):
        inner, added = size.args[0], size.args[1] if size.function == "add" else -size.args[1]
    if divisor > 1 and inner.function == "floordiv" and isinstance(inner.args[0], Expression):
        within = inner.args[1]
        assert isinstance(within, int)
        return quotient(inner.args[0], (added + shift) * within, within * divisor)
    if divisor > 1 and inner.function == "mul" and isinstance(inner.args[0], int):
        factor, rest = divmod(inner.args[0], divisor)
        if not rest:
            whole = plus(times(factor, _size(inner.args[1])), (added + shift) // divisor)
            assert isinstance(whole, Expression)
            return whole
    total = plus(inner, added + shift)
    assert isinstance(total, Expression)
    return total if divisor == 1 else Expression("floordiv", (total, divisor))


def _products(observed: Observed, known: dict[tuple[int, ...], Expression]) -> Iterator[Size]:
    """Yield multiples of products of two or three known sizes."""
    values = observed.values
    for count in (2, 3):
        for chosen in itertools.combinations(known.items(), count):
            total = 1
            for each, _ in chosen:
                total *= each[0]
            if total and values[0] and values[0] % total == 0:
                yield product([values[0] // total, *(size for _, size in chosen)])


def _differences(
    observed: Observed, known: dict[tuple[int, ...], Expression], numbers: Sequence[int] | None = None
) -> Iterator[Size]:
    """Yield sums and differences of two known sizes, and their halves, plus one of ``numbers``, or any."""
    for (one, first), (other, second) in itertools.permutations(known.items(), 2):
        joined: list[tuple[str, int]] = [("sub", 1), ("sub", 2)]
        if one <= other:
            joined.append(("add", 1))
        for function, divisor in joined:
            sign = 1 if function == "add" else -1
            total = Expression(function, (first, second))
            for shift in range(divisor):
                results = [(a + sign * b + shift) // divisor for a, b in zip(one, other, strict=True)]
                offsets = {v - r for v, r in zip(observed.values, results, strict=True)}
                if len(offsets) != 1 or len(set(results)) == 1:
                    continue
                number = offsets.pop()
                if numbers is None or number in numbers:
                    yield quotient(total, shift + divisor * number, divisor)


def _rests(observed: Observed, size: Expression) -> Iterator[Size]:
    """Yield ``size % d`` and ``-size % d``, of which padding to multiples consists, and their halves."""
    inside = observed.of(size)
    for divisor in _MULTIPLES:
        if min(inside) < divisor:
            continue  # the rest of a small size is the size
        below = times(divisor, quotient(size, 0, divisor))
        above = times(divisor, quotient(size, divisor - 1, divisor))
        for rests, whole in (
            ([each % divisor for each in inside], Expression("sub", (size, below))),
            ([-each % divisor for each in inside], Expression("sub", (above, size))),
        ):
            halves = [each // 2 for each in rests]
            if tuple(rests) == observed.values:
                yield whole
            elif tuple(halves) == observed.values:
                yield quotient(whole, 0, 2)
            elif tuple(r - h for r, h in zip(rests, halves, strict=True)) == observed.values:
                yield quotient(whole, 1, 2)

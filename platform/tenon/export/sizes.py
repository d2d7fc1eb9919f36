"""Symbolic sizes: integer expressions of symbols such as ``4*batch`` and ``(width + 1)//2``.

``fit`` finds an expression for integers observed at several sizes; ``parse`` reads one from text.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import TypeAlias
from unicodedata import normalize

from tenon.errors import BundleError

#: An integer, or an expression of symbols.
Size: TypeAlias = "int | Expression"
#: Sizes of the symbols, by name.
Sizes: TypeAlias = Mapping[str, int]
#: Divisors that are tried, and the largest text that is read.
_DIVISORS, _LONGEST = (2, 4, 8, 16, 32, 64, 3, 5, 6, 7, 12, 14, 24, 28), 200

#: The functions of an expression: the implementation, the text, and its precedence.
FUNCTIONS: dict[str, tuple[Callable[[int, int], int], str, int]] = {
    "add": (operator.add, "{} + {}", 1),
    "sub": (operator.sub, "{} - {}", 1),
    "mul": (operator.mul, "{}*{}", 2),
    "floordiv": (operator.floordiv, "{}//{}", 2),
    "mod": (operator.mod, "{} % {}", 2),
}


@dataclass(frozen=True, slots=True)
class Expression:
    """``Expression("symbol", ("batch",))``, or a function of two sizes: see ``FUNCTIONS``.

    >>> batch = Expression("symbol", ("batch",))
    >>> size = Expression("floordiv", (Expression("add", (batch, 1)), 2))
    >>> print(size, size.at({"batch": 5}))
    (batch + 1)//2 3
    """

    function: str
    args: tuple[int | str | Expression, ...]

    def at(self, sizes: Sizes) -> int:
        """Return the integer at these sizes of the symbols."""
        if self.function == "symbol":
            return sizes[str(self.args[0])]
        left, right = (a.at(sizes) if isinstance(a, Expression) else int(a) for a in self.args)
        return FUNCTIONS[self.function][0](left, right)

    @property
    def symbols(self) -> set[str]:
        """The names of the symbols."""
        if self.function == "symbol":
            return {str(self.args[0])}
        return set().union(*(a.symbols for a in self.args if isinstance(a, Expression)))

    def __str__(self) -> str:
        if self.function == "symbol":
            return str(self.args[0])
        _, text, level = FUNCTIONS[self.function]
        parts = []
        for position, arg in enumerate(self.args):
            parenthesised = False
            if isinstance(arg, Expression) and arg.function != "symbol":
                own = FUNCTIONS[arg.function][2]
                parenthesised = own < level or (
                    own == level and (position == 1 or arg.function != self.function)
                )
            parts.append(f"({arg})" if parenthesised else str(arg))
        return text.format(*parts)

    __repr__ = __str__


def is_name(text: object) -> bool:
    """Whether ``text`` can name a size, so that ``parse`` reads it: an identifier, no keyword of Python.

    >>> is_name("batch"), is_name("class"), is_name("\ufb01")  # a ligature, which Python reads as "fi"
    (True, False, False)
    """
    return (
        isinstance(text, str)
        and text.isidentifier()
        and not iskeyword(text)
        and normalize("NFKC", text) == text
    )


def symbol(name: str) -> Expression:
    """Return the size with that name."""
    return Expression("symbol", (name,))


def at(size: Size, sizes: Sizes) -> int:
    """Return a size at these sizes of the symbols."""
    return size.at(sizes) if isinstance(size, Expression) else size


def parse(text: str, symbols: Sequence[str]) -> Size:
    """Return the expression that ``text`` writes; BundleError unless it is one of ``symbols``.

    >>> parse("4*batch + 1", ["batch"]).at({"batch": 2})
    9
    """
    if type(text) is not str or len(text) > _LONGEST:
        raise BundleError(f"a size is written {text!r:.80}.")
    try:
        return _parsed(ast.parse(text, mode="eval").body, symbols)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BundleError(f"a size is written {text!r:.80}: {error}.") from None


_NODES: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
}


def _parsed(node: ast.expr, symbols: Sequence[str]) -> Size:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and node.id in symbols:
        return symbol(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _NODES:
        right = _parsed(node.right, symbols)
        if isinstance(node.op, ast.FloorDiv | ast.Mod) and (not isinstance(right, int) or right < 1):
            raise ValueError("a size is divided by a positive number only")
        return Expression(_NODES[type(node.op)], (_parsed(node.left, symbols), right))
    raise ValueError("it is not a sum, difference, product, quotient or rest of known symbols and integers")


def affine(name: str, factor: int, shift: int) -> Size:
    """Return the expression ``factor*name + shift``, as short as it can be written."""
    return plus(times(factor, symbol(name)), shift)


def names_in(text: str) -> list[str]:
    """Return the names in the text of an expression, in order; SyntaxError if it is not an expression."""
    nodes = ast.walk(ast.parse(text, mode="eval"))
    return list(dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name)))


def linear(size: Expression) -> tuple[str, int, int] | None:
    """Return ``("batch", 2, 1)`` for ``2*batch + 1``; None for other than increasing forms of one symbol.

    >>> linear(parse("2*(batch + 3) - 1", ["batch"]))
    ('batch', 2, 5)
    """
    names = size.symbols
    if len(names) != 1 or not _is_linear(size):
        return None
    (name,) = names
    shift = size.at({name: 0})
    factor = size.at({name: 1}) - shift
    return (name, factor, shift) if factor > 0 else None


def _is_linear(size: Size) -> bool:
    if not isinstance(size, Expression) or size.function == "symbol":
        return True
    left, right = (arg for arg in size.args if not isinstance(arg, str))
    if size.function == "mul":
        return _is_linear(left) and _is_linear(right) and (_constant(left) or _constant(right))
    return size.function in ("add", "sub") and _is_linear(left) and _is_linear(right)


def _constant(size: Size) -> bool:
    return not isinstance(size, Expression) or not size.symbols


def fit(values: Sequence[int], samples: Sequence[Sizes]) -> Size | None:
    """Return the simplest expression with ``values`` at the sizes ``samples``; None if none is found.

    >>> fit([9, 13, 21], [{"batch": 2}, {"batch": 3}, {"batch": 5}])
    4*batch + 1
    """
    if len(set(values)) == 1:
        return values[0]
    for candidate in candidates(values, samples):
        if all(at(candidate, sizes) == value for value, sizes in zip(values, samples, strict=True)):
            return candidate
    return None


def fit_sum(values: Sequence[int], samples: Sequence[Sizes]) -> Size | None:
    """Return the sum of multiples of symbols and a number with ``values`` at ``samples``; None if there is
    none."""
    for candidate in _sums(values, samples, list(samples[0])):
        if all(at(candidate, sizes) == value for value, sizes in zip(values, samples, strict=True)):
            return candidate
    return None


def candidates(values: Sequence[int], samples: Sequence[Sizes]) -> Iterator[Size]:
    """Yield expressions of the symbols that may give ``values`` at the sizes ``samples``, simplest first."""
    names = list(samples[0])
    for count in range(1, min(len(names), 4) + 1):  # products: 4*batch*length
        for chosen in itertools.combinations(names, count):
            product: Size = symbol(chosen[0])
            for name in chosen[1:]:
                product = Expression("mul", (product, symbol(name)))
            factor, rest = divmod(values[0], at(product, samples[0]))
            if not rest:
                yield times(factor, product)
    yield from _sums(values, samples, names)
    for name in names:
        yield from _quotients(values, samples, name)
        others = [other for other in names if other != name]
        for other in others:  # a quotient of one size times another: batch*(width//4)
            if all(v % s[other] == 0 for v, s in zip(values, samples, strict=True)):
                divided = [v // s[other] for v, s in zip(values, samples, strict=True)]
                inner = fit(divided, [{name: s[name]} for s in samples])
                if isinstance(inner, Expression):
                    yield Expression("mul", (symbol(other), inner))
        yield from _squares(values, samples, name)


def times(factor: int, size: Size) -> Size:
    """Return ``factor*size``, as short as it can be written."""
    return size if factor == 1 else Expression("mul", (factor, size))


def plus(size: Size, number: int) -> Size:
    """Return ``size + number``, as short as it can be written."""
    if number == 0:
        return size
    return Expression("add", (size, number)) if number > 0 else Expression("sub", (size, -number))


def _sums(values: Sequence[int], samples: Sequence[Sizes], names: Sequence[str]) -> Iterator[Size]:
    """Yield sums of multiples of the symbols and a number: the factors follow from consecutive samples."""
    for name in names:
        for i, j in itertools.combinations(range(len(samples)), 2):
            if any(samples[i][n] != samples[j][n] for n in names if n != name):
                continue
            step = samples[j][name] - samples[i][name]
            if step and (values[j] - values[i]) % step == 0:
                slope = (values[j] - values[i]) // step
                if slope:
                    term = times(slope, symbol(name))
                    yield plus(term, values[i] - at(term, samples[i]))
    slopes: dict[str, int] = {}
    for name in names:
        for i, j in itertools.combinations(range(len(samples)), 2):
            step = samples[j][name] - samples[i][name]
            same = all(samples[i][n] == samples[j][n] for n in names if n != name)
            if same and step and (values[j] - values[i]) % step == 0:
                slopes[name] = (values[j] - values[i]) // step
                break
    terms = [times(slope, symbol(name)) for name, slope in slopes.items() if slope]
    if len(terms) > 1:
        total: Size = terms[0]
        for term in terms[1:]:
            total = Expression("add", (total, term))
        yield plus(total, values[0] - at(total, samples[0]))


def _quotients(values: Sequence[int], samples: Sequence[Sizes], name: str) -> Iterator[Size]:
    """Yield ``c*((a*size + b)//d) + e``, the form of sizes after strided windows; those with e = 0 first."""
    sizes = [s[name] for s in samples]
    if len(set(zip(sizes, values, strict=True))) > len(set(sizes)):
        return  # other symbols count too
    others: list[Size] = []
    for divisor in _DIVISORS:
        for factor in (1, 3):
            for shift in sorted(range(1 - divisor, divisor), key=abs):
                results = [(factor * size + shift) // divisor for size in sizes]
                low, high = results.index(min(results)), results.index(max(results))
                span, seen = results[high] - results[low], values[high] - values[low]
                if not span or seen % span:
                    continue
                scale = seen // span
                offset = values[0] - scale * results[0]
                inner = plus(times(factor, symbol(name)), shift)
                quotient = Expression("floordiv", (inner, divisor))
                candidate = plus(times(scale, quotient), offset)
                if offset:
                    others.append(candidate)
                else:
                    yield candidate
    yield from others


def _squares(values: Sequence[int], samples: Sequence[Sizes], name: str) -> Iterator[Size]:
    """Yield multiples of the square of a size, as of attention scores."""
    square = Expression("mul", (symbol(name), symbol(name)))
    factor, rest = divmod(values[0], square.at(samples[0]))
    if factor and not rest:
        yield times(factor, square)

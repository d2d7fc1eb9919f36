"""``einsum``: sums of products by index letters, as transposes, reshapes and matrix products.

Two operands are contracted at a time, from the left or in the order that ``backends.opt_einsum`` finds:
letters of one operand that no later step needs are summed first, shared letters that are needed later become
the batch axes of a matrix product, the other shared letters its inner axis. All steps are ops, which have
gradients of any order.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tenon import ops
from tenon.engine.value import Value
from tenon.errors import ArgumentError, ShapeError
from tenon.functions import contraction_order

if TYPE_CHECKING:
    from tenon.engine.types import Arguments
    from tenon.tensors.tensor import Tensor

_ELLIPSIS = "..."
_LETTERS = string.ascii_uppercase + string.ascii_lowercase  # in the order of a sublist's numbers


#: A letter, or a number for an axis of an ellipsis.
Label: TypeAlias = str | int


class Term(NamedTuple):
    """A tensor and the labels of its axes; the axes of an ellipsis are numbered from the right."""

    tensor: Tensor
    labels: tuple[Label, ...]

    def size(self, label: Label) -> int:
        """Return the size of the axis ``label``."""
        return int(self.tensor.raw.shape[self.labels.index(label)])


def einsum(equation: str | Tensor, *operands: Tensor | Sequence[Tensor | int]) -> Tensor:
    """Return the sums of products over the letters that are not in the output (torch.einsum).

    ``einsum("bij,bjk->bik", x, y)`` is a product of batches of matrices.

    Letters may repeat within an operand (a diagonal); ``...`` stands for axes that broadcast; without ``->``
    the output has the letters that occur once, in alphabetical order. The letters may also be given as lists
    of numbers: ``einsum(x, [0, 1], y, [1, 2], [0, 2])``.
    """
    if not isinstance(equation, str):
        equation, operands = _from_sublists((equation, *operands))
    tensors: tuple[Any, ...] = operands  # of tensors, as ``_parse`` checks
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        tensors = tuple(operands[0])
    terms, output = _parse(equation, tensors)
    terms = [_diagonal(t) for t in terms]
    _check_sizes(terms, equation)
    result = _summed(_contracted(terms, output, contraction_order.path(equation, tensors)), set(output))
    order = tuple(result.labels.index(label) for label in output)
    return result.tensor if order == tuple(range(len(order))) else ops.permute(result.tensor, axes=order)


def _from_sublists(args: Arguments) -> tuple[str, tuple[Tensor, ...]]:
    """Return the equation and the operands of ``x, [0, 1], y, [1, 2], [0, 2]``."""
    operands, sublists = args[: len(args) // 2 * 2 : 2], args[1::2]
    if not sublists or not all(isinstance(s, (list, tuple)) for s in sublists):
        raise TypeError(
            'einsum(): takes an equation such as "ij,jk->ik", or operands that are each followed by a list of'
            " the numbers of their axes."
        )
    terms = ",".join(_subscripts(s) for s in sublists)
    return terms + (f"->{_subscripts(args[-1])}" if len(args) % 2 else ""), operands


def _subscripts(sublist: Sequence[Any]) -> str:  # of numbers and Ellipsis
    """Return the letters of a sublist."""
    wrong = [n for n in sublist if n is not Ellipsis and not (isinstance(n, int) and 0 <= n < 52)]
    if wrong:
        raise ArgumentError(f"einsum(): expected subscripts to be within [0, 52), but got {wrong[0]}")
    return "".join("..." if n is Ellipsis else _LETTERS[n] for n in sublist)


def _parse(equation: str, operands: Sequence[Tensor]) -> tuple[list[Term], tuple[Label, ...]]:
    """Return the terms of the inputs and the labels of the output."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if not operands:
        raise ArgumentError("einsum(): must provide at least one operand")
    if len(inputs) != len(operands):
        raise ArgumentError(
            f"einsum(): {'more' if len(operands) > len(inputs) else 'fewer'} operands were provided than "
            "specified in the "
            f"equation {equation!r}: {len(operands)} for {len(inputs)}"
        )
    for x in operands:
        if not isinstance(x, Value):
            raise TypeError(f"einsum(): operands must be Tensors, got {type(x).__name__}")
    terms = [Term(x, _labels(text, x.raw.ndim, equation)) for text, x in zip(inputs, operands, strict=True)]
    free = sorted({label for t in terms for label in t.labels if isinstance(label, int)}, reverse=True)
    if arrow:
        output = _output(right, free, equation, {label for t in terms for label in t.labels})
    else:
        counts = Counter(label for t in terms for label in t.labels if isinstance(label, str))
        output = (*free, *sorted(label for label, n in counts.items() if n == 1))
    return terms, output


def _letters(text: str, equation: str) -> list[str]:
    parts = text.split(_ELLIPSIS)
    if len(parts) > 2 or any(not c.isalpha() or not c.isascii() for p in parts for c in p):
        raise ArgumentError(
            f"einsum(): invalid subscript in {equation!r}: {text!r}. Use letters in [a-zA-Z] and at most one "
            "'...' per operand."
        )
    return parts


def _labels(text: str, rank: int, equation: str) -> tuple[Label, ...]:
    parts = _letters(text, equation)
    named = sum(map(len, parts))
    if named > rank or (len(parts) == 1 and named != rank):
        raise ShapeError(
            f"einsum(): the number of subscripts in the equation ({named}) does not match the number of "
            f"dimensions ({rank}) "
            f"for operand {text!r} of {equation!r}" + ("" if len(parts) > 1 else " and no ellipsis was given")
        )
    middle = tuple(range(rank - named - 1, -1, -1)) if len(parts) == 2 else ()
    return (*parts[0], *middle, *(parts[1] if len(parts) == 2 else ""))


def _output(text: str, free: list[int], equation: str, known: set[Label]) -> tuple[Label, ...]:
    parts = _letters(text, equation)
    output = (*parts[0], *(free if len(parts) == 2 else ()), *(parts[1] if len(parts) == 2 else ""))
    for label, count in Counter(output).items():
        if count > 1:
            raise ArgumentError(
                f"einsum(): output subscript {label} appears more than once in the output of {equation!r}"
            )
        if label not in known:
            raise ArgumentError(
                f"einsum(): output subscript {label} does not appear in the equation for any input operand: "
                f"{equation!r}"
            )
    return output


def _diagonal(term: Term) -> Term:
    """Replace the axes of a repeated letter by their diagonal."""
    tensor, labels = term
    while len(set(labels)) < len(labels):
        label = next(each for each, n in Counter(labels).items() if n > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        if tensor.raw.shape[first] != tensor.raw.shape[second]:
            raise ShapeError(
                f"einsum(): subscript {label} is repeated but the sizes don't match, "
                f"{tensor.raw.shape[second]} != "
                f"{tensor.raw.shape[first]} (shape {list(tensor.raw.shape)})"
            )
        tensor = tensor.diagonal(0, first, second)
        labels = (*(each for a, each in enumerate(labels) if a not in (first, second)), label)
    return Term(tensor, labels)


def _check_sizes(terms: list[Term], equation: str) -> None:
    sizes: dict[Label, int] = {}
    for position, term in enumerate(terms):
        for label, size in zip(term.labels, term.tensor.raw.shape, strict=True):
            known = sizes.get(label, 1)
            if size != known and size != 1 and known != 1:
                raise ShapeError(
                    f"einsum(): subscript {label} has size {size} for operand {position} which does not "
                    "broadcast with "
                    f"previously seen size {known} ({equation!r})"
                )
            sizes[label] = max(known, size) if size else 0


def _summed(term: Term, needed: set[Label]) -> Term:
    """Sum over the axes whose labels are not ``needed``."""
    axes = tuple(a for a, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    labels = tuple(label for label in term.labels if label in needed)
    if all(term.tensor.raw.shape[a] == 1 for a in axes):
        shape = tuple(s for a, s in enumerate(term.tensor.raw.shape) if a not in axes)
        return Term(ops.reshape(term.tensor, shape=shape), labels)
    return Term(term.tensor.sum(axes), labels)


def _contracted(terms: list[Term], output: tuple[Label, ...], path: list[tuple[int, ...]] | None) -> Term:
    """Contract all terms, two at a time: along ``path``, or from the left."""
    for step in path or [(0, 1)] * (len(terms) - 1):
        first, second = sorted(step)
        right, left = terms.pop(second), terms.pop(first)
        needed = {*output, *(label for t in terms for label in t.labels)}
        terms.insert(len(terms) if path else 0, _contract(left, right, needed))
    return terms[0]


def _contract(left: Term, right: Term, needed: set[Label]) -> Term:
    """Contract two terms by an elementwise or matrix product; later steps need the labels ``needed``."""
    shared = [label for label in left.labels if label in right.labels]
    # An axis of size 1 broadcasts: drop it, and keep the letter of the other operand's larger axis.
    left = _summed(
        left, {x for x in left.labels if not (x in shared and left.size(x) == 1 and right.size(x) != 1)}
    )
    right = _summed(
        right, {x for x in right.labels if not (x in shared and right.size(x) == 1 and x in left.labels)}
    )
    shared = [label for label in left.labels if label in right.labels]
    left = _summed(left, needed | set(shared))
    right = _summed(right, needed | set(shared))
    batch = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    rows = [label for label in left.labels if label not in shared]
    columns = [label for label in right.labels if label not in shared]
    labels = (*batch, *rows, *columns)
    sizes = {label: t.size(label) for t in (left, right) for label in t.labels}
    shape = tuple(sizes[label] for label in labels)
    if not inner:
        a = _arranged(left, [*batch, *rows], (*_of(sizes, batch), *_of(sizes, rows), *(1,) * len(columns)))
        b = _arranged(
            right, [*batch, *columns], (*_of(sizes, batch), *(1,) * len(rows), *_of(sizes, columns))
        )
        return Term(ops.mul(a, b), labels)
    n, m, k, p = (math.prod(_of(sizes, group)) for group in (batch, rows, inner, columns))
    lead = (n,) if batch else ()
    product = ops.matmul(
        _arranged(left, [*batch, *rows, *inner], (*lead, m, k)),
        _arranged(right, [*batch, *inner, *columns], (*lead, k, p)),
    )
    return Term(ops.reshape(product, shape=shape), labels)


def _of(sizes: Mapping[Label, int], labels: Sequence[Label]) -> tuple[int, ...]:
    return tuple(sizes[label] for label in labels)


def _arranged(term: Term, labels: Sequence[Label], shape: tuple[int, ...]) -> Tensor:
    order = tuple(term.labels.index(label) for label in labels)
    x = term.tensor if order == tuple(range(len(order))) else ops.permute(term.tensor, axes=order)
    return x if tuple(x.raw.shape) == shape else ops.reshape(x, shape=shape)

"""Sharding rules: how the axes of an op's results follow from those of its inputs.

An op states its rule once, in ``Op.sharding_rule``, as *factors* (the term is Shardy's): axes with the same
factor are split together. In ``matmul`` of ``(m, k)`` and ``(k, n)`` to ``(m, n)``, ``m`` and ``n`` go on
to the result, and ``k`` is summed over, so that splitting it leaves a partial sum on every rank.
``distributed/tensor/propagation.py`` reads the rules; nothing else of the engine does.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from tenon.engine.aval import Shape, shape_of
from tenon.engine.types import Operand, OpFunction

#: The factor of each axis of an array; None for an axis that has to be whole on every rank.
Factors: TypeAlias = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class ShardingRule:
    """The factors of the axes of one call's inputs and outputs, hidden outputs (residuals) included.

    A factor of inputs that an output does not have is reduced: ``reduction`` says how the results of the
    ranks are combined ("sum", "avg", "max", "min" or "product"), and "" that it cannot be split.
    """

    inputs: tuple[Factors, ...]
    outputs: tuple[Factors, ...]
    reduction: str = ""
    #: Factors that only split into equal parts, with the size that the number of parts has to divide.
    even: tuple[tuple[Hashable, int], ...] = ()
    #: A factor of an input whose slices the op looks up by index: a rank with a part calls ``Op.masked``. An
    #: output without the factor has zeros for the others' slices, so that the results of the ranks add up.
    looked_up: Hashable = None
    #: The kernel takes no empty arrays: every rank needs some elements.
    filled: bool = False
    #: In which of its inputs the op is linear, so that partial sums may be passed on: "" in none, "jointly"
    #: in all at once (add), "separately" in each while the others are fixed (mul), "first" in the first.
    linear: str = ""
    #: The op only moves elements, so that every kind of partial result may be passed on.
    moves: bool = False
    #: The attr that holds the shape of the first output, which each rank's call needs for its own part.
    shape_attr: str = ""


class ShardingFacts:
    """What an op states about sharded arrays beside its ``sharding_rule``; a base of ``Op``."""

    #: ``in_parts(f, *args, **attrs)`` computes an op by others, where it has no sharding rule.
    in_parts: ClassVar[OpFunction | None] = None
    #: A random op that reads the shape and dtype of its input only, so that nobody needs the values.
    draws_by_shape: ClassVar[bool] = False
    #: A loss of class scores, or its gradient: inside of ``loss_parallel`` a plain target is replicated.
    is_class_loss: ClassVar[bool] = False
    #: ``masked(f, *args, start, size, **attrs)`` is for ops whose rule has a factor that is ``looked_up``.
    masked: ClassVar[OpFunction | None] = None


def numbered(shape: Sequence[int], whole: Sequence[int] = ()) -> Factors:
    """The factors 0, 1, 2, ... of an array's axes, except for the ``whole`` ones.

    >>> numbered((5, 4, 3), whole=[1])
    (0, None, 2)
    """
    return tuple(None if axis in whole else axis for axis in range(len(shape)))


def pointwise(args: Sequence[Operand], shape: Shape, outputs: int = 1, **more: object) -> ShardingRule:
    """The rule of an op that broadcasts its arguments to ``shape`` and computes each element by itself."""
    inputs = []
    for a in args:
        own = shape_of(a)
        lead = len(shape) - len(own)
        inputs.append(
            tuple(
                axis + lead if size == shape[axis + lead] else None  # a broadcast axis is whole
                for axis, size in enumerate(own)
            )
        )
    return ShardingRule(tuple(inputs), (numbered(shape),) * outputs, **more)  # type: ignore[arg-type]


def along(
    shape: Sequence[int], axes: Sequence[int], outputs: int = 1, inputs: int = 1, **more: object
) -> ShardingRule:
    """The rule of an op that combines elements along ``axes``, and keeps the number of axes."""
    factors = numbered(shape, [a % len(shape) for a in axes] if shape else ())
    return ShardingRule((factors,) * inputs, (factors,) * outputs, **more)  # type: ignore[arg-type]


def reduced(
    shape: Sequence[int], axes: Sequence[int], keepdims: bool, reduction: str, **more: object
) -> ShardingRule:
    """The rule of a reduction of ``axes``."""
    axes = [a % len(shape) for a in axes] if shape else []
    source: Factors = tuple(range(len(shape)))
    if not reduction:
        source = numbered(shape, axes)
    result = tuple(None if a in axes else a for a in range(len(shape)) if keepdims or a not in axes)
    return ShardingRule((source,), (result,), reduction, **more)  # type: ignore[arg-type]


def reshaped(source: Sequence[int], target: Sequence[int], shape_attr: str = "shape") -> ShardingRule:
    """The rule of a reshape: of axes that are merged or split, the outermost one of each side corresponds.

    >>> reshaped((6, 4, 5), (24, 5)).inputs, reshaped((6, 4, 5), (24, 5)).outputs
    (((0, None, 2),), ((0, 2),))
    """
    before: list[Hashable] = [None] * len(source)
    after: list[Hashable] = [None] * len(target)
    even = []
    for left, right in _groups(source, target):
        if len(left) == len(right) == 1:
            before[left[0]] = after[right[0]] = left[0]
            continue
        big_left = [a for a in left if source[a] != 1]
        big_right = [a for a in right if target[a] != 1]
        if not big_left or not big_right:
            continue
        factor = big_left[0]
        before[factor] = after[big_right[0]] = factor
        if len(big_left) > 1 or len(big_right) > 1:
            even.append((factor, math.gcd(source[factor], target[big_right[0]])))
    return ShardingRule(
        (tuple(before),),
        (tuple(after),),
        even=tuple(even),
        linear="jointly",
        moves=True,
        shape_attr=shape_attr,
    )


def _groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes with the same number of elements on both sides."""
    if math.prod(source) == 0:
        return []
    groups, i, j = [], 0, 0
    while i < len(source) or j < len(target):
        left: list[int] = []
        right: list[int] = []
        size = other = 1
        while True:
            if size == other and left and right:
                break
            if i < len(source) and (not left or (size < other and right)):
                size, i = size * source[i], i + 1
                left.append(i - 1)
            elif j < len(target):
                other, j = other * target[j], j + 1
                right.append(j - 1)
            else:
                break
        groups.append((left, right))
        if not (left or right):
            break
    return groups

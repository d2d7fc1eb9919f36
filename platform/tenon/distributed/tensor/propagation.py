"""Choose how each op on sharded arrays is computed: which placements its inputs take, and its outputs have.

``choose`` reads the op's sharding rule (``engine/sharding_rule.py``) and takes, for one mesh dimension after
the other, the cheapest of the ways to compute it: on whole inputs, split along one factor, or on partial
results where the op is linear. The cost is what bringing the inputs there sends.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenon.distributed.tensor.chunks import chunk_of
from tenon.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, StridedShard
from tenon.engine.sharding_rule import Factors, ShardingRule

#: The cost of cutting a whole array, which sends nothing, by byte: it counts for very large ones only.
_CUT = 1e-4
#: What a collective costs beside its bytes, in bytes: some 10 us.
_CALL = 1 << 15
_LINEAR = ("sum", "avg")


class Spec(NamedTuple):
    """An input of a call: its shape, its bytes, and its placements."""

    shape: tuple[int, ...]
    nbytes: int
    placements: tuple[Placement, ...]


class Way(NamedTuple):
    """One way to compute an op over one mesh dimension: placements of inputs and outputs."""

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The placements that the inputs take (None for what is not an array), those of the outputs, and
    whether anything has to be sent to bring the inputs there."""

    inputs: tuple[tuple[Placement, ...] | None, ...]
    outputs: tuple[tuple[Placement, ...], ...]
    sends: bool


def choose(rule: ShardingRule, specs: Sequence[Spec | None], sizes: Sequence[int]) -> Choice:
    """The cheapest placements for a call whose arguments are ``specs`` on a mesh of ``sizes``."""
    arrays = [i for i, spec in enumerate(specs) if spec is not None]
    given = [spec for spec in specs if spec is not None]
    factors = [rule.inputs[i] if i < len(rule.inputs) else () for i in arrays]
    split = _Splits(rule, given, factors)
    taken: list[list[Placement]] = [[] for _ in given]
    made: list[list[Placement]] = [[] for _ in rule.outputs]
    for dim, count in enumerate(sizes):
        now = [spec.placements[dim] for spec in given]
        ways = _ways(rule, factors, now, split.possible(count), specs)
        way = _cheapest(ways, [spec.nbytes for spec in given], now, count)
        split.note(way, count)
        for row, placement in zip(taken, way.inputs, strict=True):
            row.append(placement)
        for row, placement in zip(made, way.outputs, strict=True):
            row.append(placement)
    rows = iter(taken)
    sends = any(
        not (isinstance(p, Replicate) or p == q)
        for spec, row in zip(given, taken, strict=True)
        for p, q in zip(spec.placements, row, strict=True)
    )
    return Choice(
        tuple(None if spec is None else tuple(next(rows)) for spec in specs),
        tuple(tuple(row) for row in made),
        sends,
    )


def _cheapest(ways: Iterator[Way], nbytes: Sequence[int], now: Sequence[Placement], count: int) -> Way:
    """The way with the lowest cost; of several the one with the fewest changes, of those the first.

    Bytes that cost less than a collective do not count: a small partial sum is better reduced once than
    scattered and gathered later.
    """

    def cost(way: Way) -> tuple[int, int]:
        changes = sum(p != q for p, q in zip(now, way.inputs, strict=True))
        total = sum(map(_cost, nbytes, now, way.inputs, [count] * len(now)))
        return round(total / _CALL) if total < math.inf else sys.maxsize, changes

    return min(ways, key=cost)


class _Splits:
    """Which factors can be split over one more mesh dimension."""

    def __init__(self, rule: ShardingRule, given: Sequence[Spec], factors: Sequence[Factors]) -> None:
        self.rule, self.factors = rule, factors
        self.sizes: dict[Hashable, set[int]] = {}
        """The sizes that the parts of ranks have so far."""
        for spec, own in zip(given, factors, strict=True):
            for size, factor in zip(spec.shape, own, strict=True):
                if factor is not None:
                    self.sizes.setdefault(factor, set()).add(size)
        self.outputs = {f for own in rule.outputs for f in own}
        self.even = dict(rule.even)

    def possible(self, count: int) -> list[Hashable]:
        """The factors that ``count`` ranks can split."""
        return [
            factor
            for factor, sizes in self.sizes.items()
            if (factor in self.outputs or self.rule.reduction)
            and factor != self.rule.looked_up
            and self.even.get(factor, 0) % count == 0
            and not (self.rule.filled and any(chunk_of(size, count, count - 1)[1] == 0 for size in sizes))
        ]

    def note(self, way: Way, count: int) -> None:
        """The next mesh dimension splits what this way leaves of a factor."""
        for own, placement in zip(self.factors, way.inputs, strict=True):
            if isinstance(placement, Shard):
                factor = own[placement.dim]
                self.even[factor] = self.even.get(factor, 0) // count
                chunks = (chunk_of(size, count, i)[1] for size in self.sizes[factor] for i in range(count))
                self.sizes[factor] = set(chunks)
                return


def _ways(
    rule: ShardingRule,
    factors: Sequence[Factors],
    now: Sequence[Placement],
    possible: Sequence[Hashable],
    specs: Sequence[Spec | None],
) -> Iterator[Way]:
    """All ways to compute the op over one mesh dimension; of equally cheap ones the first is taken."""
    whole: Placement = Replicate()
    yield Way((whole,) * len(factors), (whole,) * len(rule.outputs))
    for factor in possible:
        reduced = Partial(rule.reduction) if rule.reduction else None
        if reduced is None and not all(factor in own for own in rule.outputs):
            continue
        for kind in _kinds_of_split(factor, factors, now):
            inputs = tuple(kind(own.index(factor)) if factor in own else whole for own in factors)
            yield Way(
                inputs,
                tuple(kind(own.index(factor)) if factor in own else reduced or whole for own in rule.outputs),
            )
    if rule.looked_up is not None:
        for kind in _kinds_of_split(rule.looked_up, factors, now):
            inputs = tuple(
                kind(own.index(rule.looked_up)) if rule.looked_up in own else whole for own in factors
            )
            outputs = tuple(
                kind(own.index(rule.looked_up)) if rule.looked_up in own else Partial()
                for own in rule.outputs
            )
            yield Way(inputs, outputs)
    for partial in dict.fromkeys(p for p in now if isinstance(p, Partial)):
        yield from _partial_ways(rule, partial, len(factors), specs)


def _kinds_of_split(
    factor: Hashable, factors: Sequence[Factors], now: Sequence[Placement]
) -> list[type[Shard]]:
    """``Shard``, and ``StridedShard`` if an input's axis of this factor is split so."""
    strided = any(
        isinstance(p, StridedShard) and own[p.dim] == factor for own, p in zip(factors, now, strict=True)
    )
    return [Shard, StridedShard] if strided else [Shard]


def _partial_ways(
    rule: ShardingRule, kind: Partial, count: int, specs: Sequence[Spec | None]
) -> Iterator[Way]:
    """The ways that pass partial results on."""
    outputs: tuple[Placement, ...] = (kind,) * len(rule.outputs)
    whole: Placement = Replicate()
    if (rule.moves or rule.reduction == kind.reduce_op) and count == 1 and None not in specs:
        yield Way((kind,), outputs)
    elif kind.reduce_op not in _LINEAR or not rule.linear:
        return
    elif rule.linear == "jointly":
        if None not in specs:  # x + 1 of parts would add 1 several times
            yield Way((kind,) * count, outputs)
    elif rule.linear == "separately" or specs[0] is not None:  # a number divided by x is not linear in x
        for i in range(1 if rule.linear == "first" else count):
            yield Way(tuple(kind if i == j else whole for j in range(count)), outputs)


def _cost(nbytes: int, now: Placement, then: Placement, count: int) -> float:
    """The bytes that a rank sends to get from ``now`` to ``then``, plus ``_CALL``; 0 without a call."""
    if now == then or count == 1:
        return 0.0
    sent = nbytes * (count - 1) / count
    if isinstance(now, Replicate):
        return _CUT * nbytes
    if isinstance(now, Shard):
        return _CALL + (sent / count if isinstance(then, Shard) and then.dim != now.dim else sent)
    if isinstance(then, Partial):
        return math.inf
    return _CALL + (sent if isinstance(then, Shard) else 2 * sent)

"""Rules that correct sizes which code computes, such as ``width // self.heads``, after channels were removed.

No attribute holds such a size, so none can be set. Instead ``ShapeRules`` are a forward pre-hook of the
module: its code calls ``reshape``, ``view``, ``unflatten``, ``split``, ``chunk``, ``narrow`` and ``x[a:b]``
with the same arguments as before, and the rules replace these (``tenon.extend.shape_requests``).
``size_inference.py`` and ``slice_inference.py`` infer the rules, which are saved with the structure.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from tenon.errors import CheckpointError, PruningError
from tenon.extend import shape_requests
from tenon.nn.module import Module
from tenon_compress.structure_buffer import JsonValue

#: Rules of one kind as a structure saves them: nested lists of numbers and None.
Rules: TypeAlias = tuple[Any, ...]
#: A requested size, a tuple of sizes, or a slice, depending on the kind of the request.
Requested: TypeAlias = Any
#: The names of rules in a structure.
NAMES = ("shapes", "cuts", "chunks", "slices")


class _RunningRules(threading.local):
    """The rules of the modules that this thread is running, by the module's id.

    Each with the call that it is for, the numbers of the call's requests for chunks, and how often each rule
    for slices was applied in it.
    """

    def __init__(self) -> None:
        self.rules: dict[int, tuple[object, ShapeRules, Iterator[int], dict[int, int]]] = {}


_running = _RunningRules()


def replaced_sizes(kind: str, shape: tuple[int, ...], sizes: Requested) -> Requested:
    """Return what replaces the requested ``sizes``, for a tensor of ``shape``, or an axis of it.

    The handler of shape requests: see ``tenon.extend.shape_requests`` for the kinds.
    """
    call = shape_requests.running_call()
    entry = None if call is None else _running.rules.get(call[1])
    if entry is None or entry[0] is not call:
        return shape_requests.even_chunks(shape[0], sizes) if kind == "chunks" else sizes
    _, rules, numbers, counts = entry
    if kind == "slice":
        return rules.part(shape, sizes, counts)
    if kind == "chunks":
        return rules.chunk(shape[0], sizes, next(numbers))
    return rules.shape(shape, sizes) if kind == "shape" else rules.cut(shape[0], sizes)


@dataclass(frozen=True)
class ShapeRules:
    """A forward pre-hook that replaces the sizes which the module's code requests.

    - ``shapes``: for each axis of a shape None if the requested size is right, else the requested size, its
      replacement, and a third number if multiples may be requested too, such as the heads of a batch;
    - ``cuts``: the requested sizes of pieces and their replacements;
    - ``chunks``: for each request of a call in order, the requested number of chunks and the sizes to return;
    - ``slices``: the axis (size, number, rank of the tensor), the requested slice, and its replacements:
      one, or one for each request of a call in order.
    """

    shapes: Rules = ()
    cuts: Rules = ()
    chunks: Rules = ()
    slices: Rules = ()

    def __call__(self, module: Module, args: object) -> None:
        """Begin a call of ``module``."""
        shape_requests.install(replaced_sizes)
        _running.rules[id(module)] = (shape_requests.running_call(), self, count(), {})

    def shape(self, shape: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return ``sizes`` if they fit ``shape``, else their replacement by the first rule that matches."""
        if -1 not in sizes and math.prod(sizes) == math.prod(shape):
            return sizes
        for rule in self.shapes:
            if len(rule) == len(sizes) and all(map(_matches, rule, sizes)):
                return tuple(
                    size if r is None or size == -1 else size // r[0] * r[1]
                    for r, size in zip(rule, sizes, strict=True)
                )
        return sizes

    def cut(self, size: int, pieces: Requested) -> Requested:
        """Return the replacement of ``pieces``, sizes or the size of each, for an axis of ``size``."""
        for before, after in self.cuts:
            same = list(pieces) == before if isinstance(pieces, (list, tuple)) else _pieces(before) == pieces
            if same and sum(after) == size:
                return after
        return pieces

    def chunk(self, size: int, pieces: int, number: int) -> list[int]:
        """Return the sizes of ``pieces`` chunks of an axis of ``size``, at request ``number`` of the call."""
        for requested, sizes in (*self.chunks[number : number + 1], *self.chunks):
            if requested == pieces and sum(sizes) == size:
                return list(sizes)
        return shape_requests.even_chunks(size, pieces)

    def part(self, axis: tuple[int, ...], requested: slice, counts: dict[int, int]) -> slice:
        """Return the replacement of the slice ``requested``; ``counts``: how often each rule was applied."""
        bounds = [requested.start, requested.stop, requested.step]
        for number, (rule_axis, before, answers) in enumerate(self.slices):
            if before != bounds or rule_axis != list(axis):
                continue
            index = counts[number] = counts.get(number, -1) + 1
            if len(answers) == 1:
                return slice(*answers[0])
            if index < len(answers):
                return slice(*answers[index])
            raise PruningError(
                f"[{bounds[0]}:{bounds[1]}] of {rule_axis[0]} channels selected different ones each of"
                f" {len(answers)} times when the model was compacted, and is requested once more. Compact it"
                " with a longer example."
            )
        return requested


Sizes = ShapeRules  # what pickles of version 0.1 name


def _matches(rule: list[int] | None, size: int) -> bool:
    if rule is None or size == -1:
        return True
    return size == rule[0] if len(rule) == 2 else size > 0 and size % rule[0] == 0


def _pieces(sizes: list[int]) -> int | None:
    """Return the size of all pieces but the last, which may be smaller; None if they differ."""
    first = sizes[0]
    return first if all(s == first for s in sizes[:-1]) and sizes[-1] <= first else None


def shape_rules_from(path: str, structure: dict[str, JsonValue]) -> ShapeRules | None:
    """Return the rules in the structure of a module, or None; CheckpointError if they are invalid."""

    def are_numbers(values: object, *counts: int) -> bool:
        if not isinstance(values, list) or (counts and len(values) not in counts):
            return False
        return all(type(v) is int and v >= 0 for v in values)

    def are_slice_rules(values: object) -> bool:
        return isinstance(values, list) and all(
            isinstance(rule, list)
            and len(rule) == 3
            and all(isinstance(part, list) and len(part) == 3 for part in (*rule[:2], *rule[2]))
            and all(type(v) is int for part in (rule[0], *rule[2]) for v in part)
            and all(v is None or type(v) is int for v in rule[1])
            for rule in values
        )

    shapes, cuts, chunks, slices = (structure.get(name, []) for name in NAMES)
    if not (
        isinstance(shapes, list)
        and all(isinstance(rule, list) for rule in shapes)
        and all(each is None or (are_numbers(each, 2, 3) and each[0]) for rule in shapes for each in rule)
        and isinstance(cuts, list)
        and all(isinstance(rule, list) and len(rule) == 2 and all(map(are_numbers, rule)) for rule in cuts)
        and isinstance(chunks, list)
        and all(isinstance(rule, list) and len(rule) == 2 for rule in chunks)
        and all(are_numbers([pieces]) and pieces and are_numbers(sizes) for pieces, sizes in chunks)
        and are_slice_rules(slices)
    ):
        raise CheckpointError(f"the rules for sizes saved for '{path}' are invalid: {structure}.")
    rules = tuple(map(tuple, (shapes, cuts, chunks, slices)))
    return ShapeRules(*rules) if any(rules) else None


def set_shape_rules(module: Module, sizes: ShapeRules | None) -> None:
    """Replace the rules of ``module`` by ``sizes``."""
    hooks = module._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if isinstance(hook, ShapeRules)]:
        del hooks[key]
    if sizes is not None:
        module.register_forward_pre_hook(sizes)

"""Rules that correct sizes which code computes, such as ``width // self.heads``, after channels were removed.

No attribute holds such a size, so none can be set. ``ShapeRules`` are a forward pre-hook of the module
instead: its code asks ``reshape``, ``view``, ``unflatten``, ``split``, ``chunk``, ``narrow`` and ``x[a:b]``
for the same as before, and the rules say what that has become (``tenon.extend.shape_requests``).
``size_inference.py`` and ``slice_inference.py`` find them; they are saved with the structure.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from tenon.errors import CheckpointError, PruningError
from tenon.extend import shape_requests
from tenon.nn.module import Module

#: The names of the rules in a structure.
NAMES = ("shapes", "cuts", "chunks", "slices")


class _Running(threading.local):
    """The rules of the modules that this thread called last, by id, each with the call that they are for, and
    with numbers for the chunks that it asks for and how often it asked by which rule for slices."""

    def __init__(self) -> None:
        self.rules: dict[int, tuple[Any, ShapeRules, Iterator[int], dict[int, int]]] = {}


_running = _Running()


def asked(kind: str, shape: tuple[int, ...], sizes: Any) -> Any:
    """What the code that runs means by ``sizes``, for a tensor of ``shape`` (an axis of it, for a cut)."""
    place = shape_requests.running_call()
    found = None if place is None else _running.rules.get(place[1])
    if found is None or found[0] is not place:
        return shape_requests.even_chunks(shape[0], sizes) if kind == "chunks" else sizes
    _, rules, numbers, counts = found
    if kind == "slice":
        return rules.part(shape, sizes, counts)
    if kind == "chunks":
        return rules.chunk(shape[0], sizes, next(numbers))
    return rules.shape(shape, sizes) if kind == "shape" else rules.cut(shape[0], sizes)


@dataclass(frozen=True)
class ShapeRules:
    """A forward pre-hook. In ``shapes`` None stands for a size that is right as it is asked for, else there
    is what is asked for and what that has become, and a third number where it may be asked for several times
    over, as the heads of a batch are; in ``cuts`` the pieces asked for and those there are; in ``chunks``, of
    one call after the other, how many are asked for and the sizes of those there are; in ``slices`` the axis
    (its size, which it is, of how many), the slice asked for, and those there are: one, or one after the
    other of a call."""

    shapes: tuple[Any, ...] = ()
    cuts: tuple[Any, ...] = ()
    chunks: tuple[Any, ...] = ()
    slices: tuple[Any, ...] = ()

    def __call__(self, module: Module, args: Any) -> None:
        """A call of ``module`` begins."""
        shape_requests.install(asked)
        _running.rules[id(module)] = (shape_requests.running_call(), self, count(), {})

    def shape(self, shape: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
        """``sizes`` as they are if they fit ``shape``, else by the first rule that knows them."""
        if -1 not in sizes and math.prod(sizes) == math.prod(shape):
            return sizes
        for rule in self.shapes:
            if len(rule) == len(sizes) and all(map(_knows, rule, sizes)):
                return tuple(
                    size if r is None or size == -1 else size // r[0] * r[1]
                    for r, size in zip(rule, sizes, strict=True)
                )
        return sizes

    def cut(self, size: int, pieces: Any) -> Any:
        """``pieces``, sizes or the size of each, for an axis of ``size``."""
        for before, after in self.cuts:
            same = list(pieces) == before if isinstance(pieces, (list, tuple)) else _pieces(before) == pieces
            if same and sum(after) == size:
                return after
        return pieces

    def chunk(self, size: int, pieces: int, number: int) -> list[int]:
        """The sizes of so many ``pieces`` of an axis of ``size``, asked for ``number`` times before."""
        for asked_for, sizes in (*self.chunks[number : number + 1], *self.chunks):
            if asked_for == pieces and sum(sizes) == size:
                return list(sizes)
        return shape_requests.even_chunks(size, pieces)

    def part(self, axis: tuple[int, ...], asked_for: slice, counts: dict[int, int]) -> slice:
        """What ``asked_for`` of an ``axis`` is; ``counts`` says how often each rule was applied."""
        said = [asked_for.start, asked_for.stop, asked_for.step]
        for number, (place, before, answers) in enumerate(self.slices):
            if before != said or place != list(axis):
                continue
            index = counts[number] = counts.get(number, -1) + 1
            if len(answers) == 1:
                return slice(*answers[0])
            if index < len(answers):
                return slice(*answers[index])
            raise PruningError(
                f"[{said[0]}:{said[1]}] of {place[0]} channels meant other ones each of {len(answers)} times"
                " when the model was compacted, and is asked for once more. Compact it with a longer example."
            )
        return asked_for


Sizes = ShapeRules  # what pickles of version 0.1 name


def _knows(rule: Any, size: int) -> bool:
    if rule is None or size == -1:
        return True
    return size == rule[0] if len(rule) == 2 else size > 0 and size % rule[0] == 0


def _pieces(sizes: list[int]) -> int | None:
    """The size of all pieces but the last, which may be smaller."""
    first = sizes[0]
    return first if all(s == first for s in sizes[:-1]) and sizes[-1] <= first else None


def shape_rules_from(path: str, said: dict[str, Any]) -> ShapeRules | None:
    """The rules in the structure of a module; None without any; CheckpointError where they are none."""

    def numbers(values: Any, *counts: int) -> bool:
        right = isinstance(values, list) and (not counts or len(values) in counts)
        return right and all(type(v) is int and v >= 0 for v in values)

    def slices_too(values: Any) -> bool:
        return isinstance(values, list) and all(
            isinstance(rule, list)
            and len(rule) == 3
            and all(isinstance(part, list) and len(part) == 3 for part in (*rule[:2], *rule[2]))
            and all(type(v) is int for part in (rule[0], *rule[2]) for v in part)
            and all(v is None or type(v) is int for v in rule[1])
            for rule in values
        )

    shapes, cuts, chunks, slices = (said.get(name, []) for name in NAMES)
    if not (
        isinstance(shapes, list)
        and all(isinstance(rule, list) for rule in shapes)
        and all(each is None or (numbers(each, 2, 3) and each[0]) for rule in shapes for each in rule)
        and isinstance(cuts, list)
        and all(isinstance(rule, list) and len(rule) == 2 and all(map(numbers, rule)) for rule in cuts)
        and isinstance(chunks, list)
        and all(isinstance(rule, list) and len(rule) == 2 for rule in chunks)
        and all(numbers([pieces]) and pieces and numbers(sizes) for pieces, sizes in chunks)
        and slices_too(slices)
    ):
        raise CheckpointError(f"the sizes saved for '{path}' are none: {said}.")
    rules = tuple(map(tuple, (shapes, cuts, chunks, slices)))
    return ShapeRules(*rules) if any(rules) else None


def set_shape_rules(module: Module, sizes: ShapeRules | None) -> None:
    """Let ``sizes`` be the rules of ``module``, alone."""
    hooks = module._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if isinstance(hook, ShapeRules)]:
        del hooks[key]
    if sizes is not None:
        module.register_forward_pre_hook(sizes)

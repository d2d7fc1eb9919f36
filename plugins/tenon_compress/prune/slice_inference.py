"""Find what has become of the slices that code asks for, ``x[..., i * d : (i + 1) * d]``.

Which positions a slice of the recording had, and which of them are left, is known. The smaller model runs
once with every slice answered by that, one after the other; what its code asked for meanwhile, and the
answers, are the rules. So code may take the places from attributes, or from the sizes that there are now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenon.errors import PruningError
from tenon.extend import Node, Ref, ShapeRequest, Trace, shape_requests
from tenon_compress.prune.dependencies import AbstractValue, varying
from tenon_compress.prune.shape_rules import asked

#: The start, stop and step of a slice of which all are known.
_Bounds: TypeAlias = list[int]
#: A slice that code asks for: the axis (size, number, rank of the tensor) and the slice's start, stop and
#: step.
_Request: TypeAlias = tuple[tuple[int, ...], tuple[int | None, int | None, int | None]]
#: A request, its two parts as lists, and the slices that answer it.
SliceRule: TypeAlias = list[list[int] | list[int | None] | list[_Bounds]]


def slices_left(
    trace: Trace, abstract_values: dict[Ref, AbstractValue], gone: np.ndarray
) -> list[tuple[slice, bool]]:
    """What every slice that was asked for has become, in that order, and whether its axis is one of channels;
    empty if none has to become another.

    PruningError where what is left of one is no slice.
    """
    made, moved = [], False
    for each in trace.shape_requests:
        if each.kind != "slice":
            continue
        size, axis, _ = each.shape
        abstract = _sliced(trace, abstract_values, each)
        chosen = np.arange(size)[each.asked]
        channel_maps = [channel_map for channel_map in abstract.channel_maps if axis in varying(channel_map)]
        others = tuple(i for i in range(len(abstract.shape)) if i != axis)
        kept = np.logical_and.reduce([~gone[a].all(others) for a in channel_maps] or [np.ones(size, bool)])
        moved = moved or not kept.all()
        left = (np.cumsum(kept) - 1)[chosen[kept[chosen]]]
        steps = np.unique(np.diff(left)).tolist() or [1]
        if len(steps) > 1:
            raise PruningError(f"what is left of every {each.asked.step}th channel is no slice")
        answer = slice(int(left[0]), int(left[-1]) + 1, steps[0]) if left.size else slice(0, 0, 1)
        made.append((answer, bool(channel_maps)))
    return made if moved else []


def _sliced(trace: Trace, abstract_values: dict[Ref, AbstractValue], each: ShapeRequest) -> AbstractValue:
    """The value of which the slice was asked; PruningError where no op says so."""
    size, axis, rank = each.shape
    meant = range(size)[each.asked]
    for node in trace.graph.nodes[each.position :]:
        if node.kind == "call" and node.name in ("index", "slice_axis"):
            abstract, cut = abstract_values[node.args[0]], _cut(node, axis)
            if len(abstract.shape) == rank and abstract.shape[axis] == size and range(size)[cut] == meant:
                return abstract
    raise PruningError(f"the slice {each.asked} was not recorded")


def _cut(node: Node, axis: int) -> slice:
    """The slice that ``node`` takes of ``axis``."""
    if node.name == "slice_axis":
        own = node.attrs["axis"] == axis
        return slice(node.attrs["start"], node.attrs["stop"]) if own else slice(None)
    keys = [key for key in node.attrs["key"] if key is not None and key is not Ellipsis]
    return keys[axis] if axis < len(keys) and isinstance(keys[axis], slice) else slice(None)


def slice_rules(
    run: Callable[[], object], answers: Sequence[tuple[slice, bool]]
) -> dict[int, list[SliceRule]]:
    """The rules of every module, by its id, by which a ``run`` of the smaller model gets ``answers``.

    PruningError if it asks for other slices than were recorded, or by them for several things at a time: also
    where that would be so for an axis of another length, such as time.
    """
    left = iter(answers)
    calls: dict[tuple[int, int], dict[_Request, list[_Bounds]]] = {}
    others: set[tuple[int, _Request]] = set()
    held = []  # places, so that no two have one id

    def replay(kind: str, shape: tuple[int, ...], sizes: Any) -> Any:
        place = shape_requests.running_call()
        if kind != "slice" or place is None:
            return asked(kind, shape, sizes)
        answer, channels = next(left, (None, False))
        if answer is None or len(range(*answer.indices(shape[0]))) != len(range(answer.stop)[answer]):
            raise PruningError("the model asks for other slices than when it was recorded")
        held.append(place)
        said = (shape, (sizes.start, sizes.stop, sizes.step))
        if not channels:
            others.add((place[1], (shape[1:], said[1])))
        calls.setdefault((place[1], id(place)), {}).setdefault(said, []).append(
            [answer.start, answer.stop, answer.step]
        )
        return answer

    with shape_requests.handled_by(replay):
        run()
    if next(left, None) is not None:
        raise PruningError("the model asks for fewer slices than when it was recorded")
    rules: dict[int, dict[_Request, list[_Bounds]]] = {}
    for (module, _), asks in calls.items():
        for said, found in asks.items():
            several = found if any(f != found[0] for f in found) else found[:1]
            if rules.setdefault(module, {}).setdefault(said, several) != several:
                raise PruningError("the same slice means other channels in another call of a module")
    made: dict[int, list[SliceRule]] = {}
    for module, asks in rules.items():
        made[module] = []
        for (axis, bounds), found in asks.items():
            if _means_other(axis[0], bounds, found):
                if (module, (axis[1:], bounds)) in others:
                    raise PruningError("the same slice is asked of what has no channels")
                made[module].append([list(axis), list(bounds), found])
    return made


def _means_other(size: int, said: tuple[int | None, ...], found: list[_Bounds]) -> bool:
    beyond = max(said[0] or 0, said[1] or 0) > size  # cut off by ``x[a:b]``, an error of ``narrow``
    return beyond or any(range(size)[slice(*said)] != range(size)[slice(*answer)] for answer in found)

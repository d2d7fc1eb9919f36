"""Infer rules for the slices that code requests, ``x[..., i * d : (i + 1) * d]``.

The positions of each slice in the recording, and which of them are left, are known. The smaller model runs
once with every request for a slice answered accordingly, in order; its requests in that run and the answers
are the rules. So code may take positions from attributes as well as from the present sizes of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tenon.errors import PruningError
from tenon.extend import CapturedGraph, Node, Ref, ShapeRequest, shape_requests
from tenon_compress.prune.dependencies import AbstractValue, varying
from tenon_compress.prune.shape_rules import Requested, replaced_sizes

#: The start, stop and step of a slice of which all are known.
_Bounds: TypeAlias = list[int]
#: A slice that code requests: the axis (size, number, rank of the tensor) and the slice's start, stop and
#: step.
_Request: TypeAlias = tuple[tuple[int, ...], tuple[int | None, int | None, int | None]]
#: A request, its two parts as lists, and the slices that answer it.
SliceRule: TypeAlias = list[list[int] | list[int | None] | list[_Bounds]]


def slices_left(
    graph: CapturedGraph, abstract_values: dict[Ref, AbstractValue], is_removed: np.ndarray
) -> list[tuple[slice, bool]]:
    """Return the replacement of every requested slice, in order, and whether its axis has channels.

    Empty if no slice has to change. PruningError if what is left of one is not a slice.
    """
    answers, changed = [], False
    for each in graph.shape_requests:
        if each.kind != "slice":
            continue
        size, axis, _ = each.shape
        abstract = _sliced(graph, abstract_values, each)
        chosen = np.arange(size)[each.asked]
        channel_maps = [channel_map for channel_map in abstract.channel_maps if axis in varying(channel_map)]
        others = tuple(i for i in range(len(abstract.shape)) if i != axis)
        stays = np.logical_and.reduce(
            [~is_removed[a].all(others) for a in channel_maps] or [np.ones(size, bool)]
        )
        changed = changed or not stays.all()
        left = (np.cumsum(stays) - 1)[chosen[stays[chosen]]]
        steps = np.unique(np.diff(left)).tolist() or [1]
        if len(steps) > 1:
            raise PruningError(
                f"the remaining channels of a slice with step {each.asked.step} are not evenly spaced"
            )
        answer = slice(int(left[0]), int(left[-1]) + 1, steps[0]) if left.size else slice(0, 0, 1)
        answers.append((answer, bool(channel_maps)))
    return answers if changed else []


def _sliced(
    graph: CapturedGraph, abstract_values: dict[Ref, AbstractValue], each: ShapeRequest
) -> AbstractValue:
    """Return the value that the slice was requested of; PruningError if no op of the recording takes it."""
    size, axis, rank = each.shape
    requested: slice = each.asked
    positions = range(size)[requested]
    for node in graph.nodes[each.position :]:
        if node.kind == "call" and node.name in ("index", "slice_axis"):
            abstract, cut = abstract_values[node.args[0]], _cut(node, axis)
            if len(abstract.shape) == rank and abstract.shape[axis] == size and range(size)[cut] == positions:
                return abstract
    raise PruningError(f"the slice {each.asked} was not recorded")


def _cut(node: Node, axis: int) -> slice:
    """Return the slice that ``node`` takes of ``axis``."""
    if node.name == "slice_axis":
        matches = node.attrs["axis"] == axis
        return slice(node.attrs["start"], node.attrs["stop"]) if matches else slice(None)
    keys = [key for key in node.attrs["key"] if key is not None and key is not Ellipsis]
    return keys[axis] if axis < len(keys) and isinstance(keys[axis], slice) else slice(None)


def slice_rules(
    run: Callable[[], object], answers: Sequence[tuple[slice, bool]]
) -> dict[int, list[SliceRule]]:
    """Return rules by module id with which a ``run`` of the smaller model gets ``answers``.

    PruningError if it requests other slices than were recorded, or if one request would need several answers,
    also on an axis of another length, such as time.
    """
    remaining = iter(answers)
    calls: dict[tuple[int, int], dict[_Request, list[_Bounds]]] = {}
    others: set[tuple[int, _Request]] = set()
    calls_alive = []  # so that no two calls have one id

    def replay(kind: str, shape: tuple[int, ...], sizes: Requested) -> Requested:
        call = shape_requests.running_call()
        if kind != "slice" or call is None:
            return replaced_sizes(kind, shape, sizes)
        answer, channels = next(remaining, (None, False))
        if answer is None or len(range(*answer.indices(shape[0]))) != len(range(answer.stop)[answer]):
            raise PruningError("the model requests other slices than when it was recorded")
        calls_alive.append(call)
        request = (shape, (sizes.start, sizes.stop, sizes.step))
        if not channels:
            others.add((call[1], (shape[1:], request[1])))
        calls.setdefault((call[1], id(call)), {}).setdefault(request, []).append(
            [answer.start, answer.stop, answer.step]
        )
        return answer

    with shape_requests.handled_by(replay):
        run()
    if next(remaining, None) is not None:
        raise PruningError("the model requests fewer slices than when it was recorded")
    rules: dict[int, dict[_Request, list[_Bounds]]] = {}
    for (module, _), requests in calls.items():
        for request, replacements in requests.items():
            distinct = replacements if any(f != replacements[0] for f in replacements) else replacements[:1]
            if rules.setdefault(module, {}).setdefault(request, distinct) != distinct:
                raise PruningError("the same slice means other channels in another call of a module")
    result: dict[int, list[SliceRule]] = {}
    for module, requests in rules.items():
        result[module] = []
        for (axis, bounds), replacements in requests.items():
            if _differs(axis[0], bounds, replacements):
                if (module, (axis[1:], bounds)) in others:
                    raise PruningError("the same slice is requested of an axis without channels")
                result[module].append([list(axis), list(bounds), replacements])
    return result


def _differs(size: int, bounds: tuple[int | None, ...], replacements: list[_Bounds]) -> bool:
    beyond = max(bounds[0] or 0, bounds[1] or 0) > size  # ``x[a:b]`` clips it, ``narrow`` raises an error
    return beyond or any(
        range(size)[slice(*bounds)] != range(size)[slice(*answer)] for answer in replacements
    )

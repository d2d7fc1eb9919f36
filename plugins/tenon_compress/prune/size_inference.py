"""Infer rules for the sizes that code requests, by comparing them with the shapes after removal."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tenon.extend import CapturedGraph, Ref, shape_requests
from tenon_compress.prune.dependencies import AbstractValue, varying

#: A rule of ``ShapeRules``: nested lists of numbers and None.
Rule: TypeAlias = list[Any]


def sizes_in_code(
    graph: CapturedGraph, abstract_values: dict[Ref, AbstractValue], left: dict[Ref, tuple[int, ...]]
) -> dict[int, dict[str, list[Rule]]]:
    """Return rules by module id that replace requested sizes by the new shapes, ``left``."""
    rules: dict[int, dict[str, list[Rule]]] = {}
    chunks: dict[int, list[Rule]] = {}
    for each in graph.shape_requests:
        node = next((n for n in graph.nodes[each.position :] if n.kind == "call"), None)
        if node is None or node.name not in ("reshape", "view", "split"):
            continue
        outputs = [node.out(i) for i in range(len(node.avals))]
        after = [left.get(ref, abstract_values[ref].shape) for ref in outputs]
        if each.kind == "chunks":
            axis = node.attrs["axis"]
            chunks.setdefault(each.module, []).append([each.asked, [shape[axis] for shape in after]])
            continue
        if each.kind == "shape":
            name, rule = "shapes", _shape_rule(each.asked, abstract_values[outputs[0]], after[0])
        else:
            axis = node.attrs["axis"]
            requested = (
                list(each.asked) if isinstance(each.asked, (list, tuple)) else [each.asked] * len(outputs)
            )
            name, rule = "cuts", [requested, [shape[axis] for shape in after]]
            rule = [] if rule[0] == rule[1] else rule
        known = rules.setdefault(each.module, {}).setdefault(name, [])
        if any(rule) and rule not in known:
            known.append(rule)
    for key, calls in chunks.items():
        if any(sizes != shape_requests.even_chunks(sum(sizes), pieces) for pieces, sizes in calls):
            rules.setdefault(key, {})["chunks"] = calls
    return {key: {n: r for n, r in named.items() if r} for key, named in rules.items() if any(named.values())}


def _shape_rule(sizes: tuple[int, ...], abstract: AbstractValue, after: tuple[int, ...]) -> Rule:
    rule: Rule = [None] * len(sizes)
    for axis, (size, now) in enumerate(zip(sizes, after, strict=True)):
        if size in (-1, now):
            continue
        period = _period(abstract, axis)
        several = size == abstract.shape[axis] and period < size
        rule[axis] = [period, now * period // size, 1] if several else [size, now]
    return rule


def _period(abstract: AbstractValue, axis: int) -> int:
    """Return the period of the channels along ``axis``: its size if they do not repeat."""
    size = abstract.shape[axis]
    channel_maps = [
        np.moveaxis(a, axis, 0).reshape(size, -1) for a in abstract.channel_maps if axis in varying(a)
    ]
    for count in range(1, size):
        if channel_maps and not size % count and all((a[count:] == a[:-count]).all() for a in channel_maps):
            return count
    return size

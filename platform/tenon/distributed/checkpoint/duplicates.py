"""Which of the ranks that have the same chunk writes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tenon.distributed.checkpoint.metadata import MetadataIndex
from tenon.distributed.checkpoint.planner import SavePlan, WriteItem


def dedup_save_plans(all_plans: Sequence[SavePlan], save_to_lowest_rank: bool = False) -> list[SavePlan]:
    """The plans without duplicates: each item stays with the rank that has the fewest bytes to write so far,
    or with ``save_to_lowest_rank`` with the first."""
    owners: dict[MetadataIndex, list[int]] = {}
    items: dict[MetadataIndex, WriteItem] = {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            owners.setdefault(item.index, []).append(rank)
            items.setdefault(item.index, item)
    load = [0] * len(all_plans)
    chosen: dict[MetadataIndex, int] = {}
    # What only one rank has comes first, then the largest, so that the others even it out.
    order = sorted(owners, key=lambda index: (len(owners[index]) > 1, -_nbytes(items[index])))
    for index in order:
        ranks = owners[index]
        rank = ranks[0] if save_to_lowest_rank else min(ranks, key=lambda r: (load[r], r))
        load[rank] += _nbytes(items[index])
        chosen[index] = rank
    return [
        dataclasses.replace(plan, items=_once([i for i in plan.items if chosen[i.index] == rank]))
        for rank, plan in enumerate(all_plans)
    ]


def _once(items: list[WriteItem]) -> list[WriteItem]:
    return list({item.index: item for item in items}.values())


def _nbytes(item: WriteItem) -> int:
    """The bytes that an item writes; 1 for what is no tensor."""
    if item.tensor_data is None:
        return 1
    size = item.tensor_data.properties.dtype.itemsize
    for length in item.tensor_data.chunk.sizes:
        size *= length
    return size

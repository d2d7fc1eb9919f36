"""The planners that ``save`` and ``load`` use if none is given. Names are PyTorch's."""

from __future__ import annotations

import dataclasses
import io
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

from tenon import serialize
from tenon.distributed.checkpoint.chunks import problem_of
from tenon.distributed.checkpoint.duplicates import dedup_save_plans
from tenon.distributed.checkpoint.flattening import Leaf, flatten_state_dict, set_element
from tenon.distributed.checkpoint.materializing import materialize
from tenon.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    STORAGE_TYPES,
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    Path,
    StorageMeta,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from tenon.distributed.checkpoint.planner_helpers import (
    create_read_items,
    create_write_items,
    find_state_dict_object,
    is_here,
    narrowed,
)
from tenon.errors import ArgumentError, CheckpointError
from tenon.tensors.creation import factories
from tenon.tensors.pytree import tree_map, tree_map_only
from tenon.tensors.tensor import Tensor

__all__ = [
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "create_default_global_load_plan",
    "create_default_global_save_plan",
    "create_default_local_load_plan",
    "create_default_local_save_plan",
]


class DefaultSavePlanner(SavePlanner):
    """Each chunk and each value is written once; what several ranks have, by the one with the least to write,
    or by the first of them with ``dedup_save_to_lowest_rank``.

    ``flatten_state_dict`` gives the values of nested dicts names of their own. ``flatten_sharded_tensors``,
    ``dedup_replicated_tensors`` and ``enable_plan_caching`` have no effect: there are no sharded tensors but
    DTensors, duplicates are always left out, and plans are kept anyway (``saving.py``).
    """

    state_dict: STATE_DICT_TYPE
    is_coordinator: bool

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings: dict[str, Path] = {}

    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Flatten ``state_dict``. ``storage_meta`` has no effect."""
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        """An item for every value, and for this rank's chunk of every tensor."""
        self.plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            self.plan = dataclasses.replace(self.plan, planner_data=self.mappings)
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Leave out duplicates. CheckpointError if the chunks of a tensor do not fill it."""
        plans = dedup_save_plans(all_plans, self.dedup_save_to_lowest_rank)
        self.global_plan, self.metadata = create_default_global_save_plan(plans)
        if self.flatten_state_dict:
            merged = dict(ChainMap(*(plan.planner_data for plan in self.global_plan)))
            self.metadata = dataclasses.replace(self.metadata, planner_data=merged)
        _check_chunks(self.metadata)
        return self.global_plan, self.metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Accept the plan."""
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The value of an item: a tensor, or what ``tenon.save`` writes of another value."""
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:  # of any type
        """The value at ``index``, for planners that derive from this one."""
        return find_state_dict_object(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:  # a tensor or BytesIO
        """What is written of a value, for planners that derive from this one."""
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        data = io.BytesIO()
        value = object.value if isinstance(object, Leaf) else object
        serialize.save(tree_map_only(io.BytesIO, lambda each: {_RAW: each.getvalue()}, value), data)
        return data


#: The key of the content of a BytesIO, which is saved as such.
_RAW = "tenon.BytesIO"


def _is_raw(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {_RAW}


class DefaultLoadPlanner(LoadPlanner):
    """Each rank reads what its part of the state dict needs, in place.

    With ``allow_partial_load``, values that the checkpoint lacks stay as they are.
    ``flatten_sharded_tensors`` has no effect.
    """

    state_dict: STATE_DICT_TYPE
    metadata: Metadata | None
    is_coordinator: bool

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.allow_partial_load = allow_partial_load
        self.original_state_dict: STATE_DICT_TYPE = {}
        self.mappings: dict[str, Path] = {}

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Flatten ``state_dict``; its meta tensors get memory."""
        materialize(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """The chunks that this rank needs."""
        assert self.metadata is not None  # ``load`` passes it
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Accept the plan."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put a value in the state dict. No code in it is run: ``tenon.load`` reads it."""
        loaded = tree_map(
            lambda each: io.BytesIO(each[_RAW]) if _is_raw(each) else each,
            serialize.load(value),
            is_leaf=_is_raw,
        )
        name = read_item.dest_index.fqn
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], loaded)
        else:
            self.state_dict[name] = loaded

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The part of a tensor of the state dict that an item fills."""
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Nothing to do: tensors are filled in place."""

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """The tensor at ``index``, for planners that derive from this one."""
        tensor: Tensor = find_state_dict_object(self.state_dict, index)
        return tensor

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """What is written to of a tensor, for planners that derive from this one."""
        return narrowed(tensor, read_item.dest_offsets, read_item.lengths)


class EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Loads all, or the values called ``keys`` and what is in them, into an empty dict, as whole tensors."""

    def __init__(self, keys: set[str] | None = None, **options: bool) -> None:
        super().__init__(**options)
        self.keys = keys

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Fill ``state_dict``, which has to be empty, with tensors of the shapes in ``metadata``."""
        assert metadata is not None  # ``load`` passes it
        if state_dict:
            raise ArgumentError(f"the state dict to load all into has the keys {sorted(state_dict)[:10]}.")
        paths: Mapping[str, Path] = metadata.planner_data or {}
        for name, described in metadata.state_dict_metadata.items():
            path = paths.get(name, (name,))
            if self.keys is None or any(".".join(map(str, path[:n])) in self.keys for n in _prefixes(path)):
                set_element(state_dict, path, _empty(described))
        super().set_up_planner(state_dict, metadata, is_coordinator)


def _prefixes(path: Path) -> range:
    return range(1, len(path) + 1)


def _empty(described: STORAGE_TYPES) -> Tensor | None:
    if isinstance(described, BytesStorageMetadata):
        return None
    return factories.empty(described.size, dtype=described.properties.dtype)


def create_default_local_load_plan(
    state_dict: Mapping[str, object], metadata: Metadata, strict: bool = True
) -> LoadPlan:
    """What a rank reads for the flat ``state_dict``. CheckpointError for values that the checkpoint lacks,
    if ``strict``, and for tensors of another shape."""
    items: list[ReadItem] = []
    saved = metadata.state_dict_metadata
    missing = [name for name in state_dict if name not in saved]
    if missing and strict:
        raise CheckpointError(
            f"Missing key in checkpoint state_dict: {', '.join(missing[:10])}"
            f"{f' and {len(missing) - 10} more' if len(missing) > 10 else ''}. The checkpoint has"
            f" {', '.join([*saved][:5]) or 'nothing'}{' ...' if len(saved) > 5 else ''}. Load what it has, or"
            " pass planner=DefaultLoadPlanner(allow_partial_load=True)."
        )
    for name, value in state_dict.items():
        described = saved.get(name)
        if described is None:
            continue
        if isinstance(described, TensorStorageMetadata) and isinstance(value, Tensor):
            check_size(name, described.size, value.shape)
        if is_here(value):
            items += create_read_items(name, described, value)
    return LoadPlan(items)


def check_size(name: str, saved: Sequence[int], own: Sequence[int]) -> None:
    """Raise CheckpointError unless the saved shape and that of the state dict's tensor are equal."""
    if tuple(saved) != tuple(own):
        raise CheckpointError(
            f"Size mismatch between saved {list(saved)} and current: {list(own)} for {name}. Load into a"
            " tensor of the saved shape."
        )


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """The plans as they are: ranks read independently."""
    return all_plans


def create_default_local_save_plan(state_dict: Mapping[str, object], is_coordinator: bool) -> SavePlan:
    """What a rank could write of the flat ``state_dict``. ``is_coordinator`` has no effect: what several
    ranks have is left out later."""
    return SavePlan(
        [
            item
            for name, value in state_dict.items()
            if is_here(value)
            for item in create_write_items(name, value)
        ]
    )


def create_default_global_save_plan(
    all_plans: Sequence[SavePlan], rewrite_index_hints: bool = True
) -> tuple[list[SavePlan], Metadata]:
    """The plans, whose indices tell the position of a chunk among those of its tensor, and the description
    of what they write."""
    described: dict[str, STORAGE_TYPES] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            name = item.index.fqn
            if item.type is not WriteItemType.SHARD and name in described:
                raise CheckpointError(
                    f"{name} is written by two ranks, and is not a DTensor. Save it on one of them."
                )
            if item.tensor_data is None:
                described[name] = BytesStorageMetadata()
                items.append(item)
                continue
            data = item.tensor_data
            tensor = described.setdefault(name, TensorStorageMetadata(data.properties, data.size, []))
            if not isinstance(tensor, TensorStorageMetadata) or tensor.size != data.size:
                raise CheckpointError(f"{name} is of different shapes or kinds on different ranks.")
            if rewrite_index_hints:
                item = dataclasses.replace(
                    item, index=MetadataIndex(name, item.index.offset, len(tensor.chunks))
                )
            items.append(item)
            tensor.chunks.append(data.chunk)
        plans.append(dataclasses.replace(plan, items=items))
    return plans, Metadata(described)


def create_default_local_metadata(state_dict: Mapping[str, object]) -> Metadata:
    """The description of what this rank has of the flat ``state_dict``."""
    return create_default_global_save_plan([create_default_local_save_plan(state_dict, True)])[1]


def _check_chunks(metadata: Metadata) -> None:
    for name, described in metadata.state_dict_metadata.items():
        if isinstance(described, TensorStorageMetadata):
            problem = problem_of(described.size, described.chunks)
            if problem is not None:
                raise CheckpointError(
                    f"Failed to validate global plan: {name} of {list(described.size)}: {problem}. All ranks"
                    " that have a part of it must save it, with equal placements."
                )


_create_default_local_metadata = create_default_local_metadata

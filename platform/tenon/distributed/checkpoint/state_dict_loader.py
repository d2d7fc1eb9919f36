"""``load``: every rank reads what its part of a state dict needs. Names are PyTorch's."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from tenon.distributed.checkpoint.default_planner import DefaultLoadPlanner, EmptyStateDictLoadPlanner
from tenon.distributed.checkpoint.filesystem import FileSystemReader, storage_of
from tenon.distributed.checkpoint.flattening import flatten_state_dict
from tenon.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    STORAGE_TYPES,
    BytesStorageMetadata,
    Metadata,
)
from tenon.distributed.checkpoint.optimizer_states import initialized
from tenon.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from tenon.distributed.checkpoint.ranks import Ranks
from tenon.distributed.checkpoint.saving import set_up
from tenon.distributed.checkpoint.state_dict_saver import communicator_of
from tenon.distributed.checkpoint.stateful import Stateful
from tenon.distributed.checkpoint.storage import StorageReader
from tenon.distributed.messages.process_group import Group
from tenon.errors import CheckpointError, CheckpointWarning
from tenon.optim.optimizer import Optimizer

__all__ = ["load", "load_state_dict", "load_whole"]


def load(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: Group = None,
    no_dist: bool = False,
) -> None:
    """Load the checkpoint in the folder ``checkpoint_id`` into ``state_dict``; collective.

    Tensors are filled in place, from any number of ranks and any mesh that it was saved by: each rank reads
    what its part needs. Objects with ``state_dict()`` and ``load_state_dict()`` get the state back;
    optimizers without a state get one first. Other values are replaced.

    All that will be read is checked first, on all ranks: if a file is missing, torn or foreign, or a value or
    a shape differs, CheckpointException is raised everywhere and nothing has changed.
    Source: torch.distributed.checkpoint.load.
    """
    reader = storage_of(storage_reader, checkpoint_id, FileSystemReader)
    ranks = Ranks(communicator_of(process_group, no_dist))
    metadata = _metadata(reader, ranks)
    saved = metadata.state_dict_metadata
    optimizers = [
        value
        for name, value in state_dict.items()
        if isinstance(value, Optimizer) and any(each.startswith(f"{name}.state.") for each in saved)
    ]
    with initialized(optimizers):
        states = {name: _target(state_dict[name], saved.get(name)) for name in sorted(state_dict)}
        if ranks.is_coordinator:
            _warn_of_more(state_dict, states, saved)
        _load(states, metadata, reader, ranks, planner or DefaultLoadPlanner())
    for name, loaded in states.items():
        value = state_dict[name]
        if isinstance(value, Stateful):
            value.load_state_dict(loaded)
        else:
            state_dict[name] = loaded


def _target(value: Any, saved: STORAGE_TYPES | None) -> Any:  # of any type
    """What is loaded into of ``value``: None if the checkpoint has it as one value, which replaces it."""
    state = value.state_dict() if isinstance(value, Stateful) else value
    return None if isinstance(saved, BytesStorageMetadata) and isinstance(state, dict) else state


def _warn_of_more(state_dict: Mapping[str, object], states: STATE_DICT_TYPE, saved: Iterable[str]) -> None:
    """Warn of values that the checkpoint has of an object, and the object does not know."""
    for name, value in state_dict.items():
        if not isinstance(value, Stateful) or states[name] is None:
            continue
        known = flatten_state_dict({name: states[name]})[0]
        more = [each for each in saved if each.startswith(f"{name}.") and each not in known]
        if more:
            warnings.warn(
                f"the checkpoint has {', '.join(more[:5])}{' ...' if len(more) > 5 else ''}, which are not in"
                f" state_dict() of the {type(value).__name__} that it is loaded into, and are left out.",
                CheckpointWarning,
                stacklevel=3,
            )


def load_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_reader: StorageReader,
    process_group: Group = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """``load`` under its old name, without objects that have a state."""
    storage_reader.reset()
    ranks = Ranks(communicator_of(process_group, no_dist), coordinator_rank)
    metadata = _metadata(storage_reader, ranks)
    _load(state_dict, metadata, storage_reader, ranks, planner or DefaultLoadPlanner())


def load_whole(
    keys: Iterable[str] | str | None = None,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
) -> STATE_DICT_TYPE:
    """All of a checkpoint as a new state dict of whole tensors, read by this process alone.

    ``keys`` selects values, or dicts with all that is in them: ``"model"``, ``"optimizer.state"``. PyTorch
    has this as ``_load_state_dict_from_keys``.
    """
    wanted = {keys} if isinstance(keys, str) else None if keys is None else set(keys)
    loaded: STATE_DICT_TYPE = {}
    reader, alone = storage_of(storage_reader, checkpoint_id, FileSystemReader), Ranks(None)
    _load(loaded, _metadata(reader, alone), reader, alone, EmptyStateDictLoadPlanner(wanted))
    return loaded


def _metadata(reader: StorageReader, ranks: Ranks) -> Metadata:
    """The description of the checkpoint, which has to be the same on all ranks."""
    found: list[Metadata] = []

    def read() -> str | None:
        found.append(reader.read_metadata())
        meta = found[0].storage_meta
        return None if meta is None else meta.load_id

    def compare(idents: list[str | None]) -> None:
        if len(set(idents)) > 1:
            raise CheckpointError(
                "the ranks read different checkpoints: another job has saved to this place meanwhile, or not"
                " all ranks see the same files. Load again."
            )

    ranks.all_reduce("metadata", read, compare)
    return found[0]


def _load(
    state_dict: STATE_DICT_TYPE,
    metadata: Metadata,
    reader: StorageReader,
    ranks: Ranks,
    planner: LoadPlanner,
) -> None:
    def plan() -> LoadPlan:
        planner.set_up_planner(state_dict, metadata, ranks.is_coordinator)
        set_up(reader.set_up_storage_reader, ranks, metadata, ranks.is_coordinator)
        return reader.prepare_local_plan(planner.create_local_plan())

    def combine(plans: list[LoadPlan]) -> list[LoadPlan]:
        return reader.prepare_global_plan(planner.create_global_plan(plans))

    def read() -> None:
        reading: Any = reader.read_data(final, planner)  # PyTorch's futures, or those of a storage's own
        reading.wait()
        reading.value()

    try:
        final = planner.finish_plan(ranks.reduce_scatter("plan", plan, combine))
        ranks.agree("check", lambda: reader.check_data(final))
        ranks.agree("read", read)
    finally:
        reader.close()


_load_state_dict_from_keys = load_whole

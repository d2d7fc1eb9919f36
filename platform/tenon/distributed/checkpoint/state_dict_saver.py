"""``save`` and ``async_save``: every rank writes its part of a state dict. Names are PyTorch's."""

from __future__ import annotations

import concurrent.futures
import os
from dataclasses import dataclass
from enum import Enum

from tenon.distributed.checkpoint import background
from tenon.distributed.checkpoint.default_planner import DefaultSavePlanner
from tenon.distributed.checkpoint.filesystem import FileSystemWriter, storage_of
from tenon.distributed.checkpoint.metadata import STATE_DICT_TYPE, Metadata
from tenon.distributed.checkpoint.planner import SavePlanner
from tenon.distributed.checkpoint.ranks import Ranks
from tenon.distributed.checkpoint.saving import Saving
from tenon.distributed.checkpoint.staging import AsyncStager, DefaultStager, OwnStager
from tenon.distributed.checkpoint.stateful import Stateful, state_to_save
from tenon.distributed.checkpoint.storage import StorageWriter
from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.messages.process_group import Group, member

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    """Where ``async_save`` writes. Here always in a thread, as processes with MPI cannot fork."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """What ``async_save`` returns if the copy in memory is made in the background too.

    ``staging_completion`` is done when the state may change, ``upload_completion`` when the checkpoint is
    complete.
    """

    staging_completion: concurrent.futures.Future[None]
    upload_completion: concurrent.futures.Future[Metadata]


def save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Group = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Save ``state_dict`` in the folder ``checkpoint_id``, each rank its part; collective.

    Values are tensors, DTensors, plain values, containers of them, and objects with ``state_dict()`` and
    ``load_state_dict()``. A tensor that all ranks have is written by one of them. The folder has the former
    checkpoint until the new one is complete on all ranks. ``no_dist`` saves from this process alone.
    ``use_collectives=False`` is the same.

    Raises CheckpointException on all ranks if any fails. Source: torch.distributed.checkpoint.save.

    >>> import tempfile, tenon
    >>> from tenon.distributed import checkpoint
    >>> folder = tempfile.mkdtemp()
    >>> saved = checkpoint.save({"weight": tenon.ones(2), "step": 3}, checkpoint_id=folder)
    >>> state = {"weight": tenon.zeros(2), "step": 0}
    >>> checkpoint.load(state, checkpoint_id=folder)
    >>> state
    {'weight': tensor([1., 1.]), 'step': 3}
    """
    writer = storage_of(storage_writer, checkpoint_id, FileSystemWriter)
    ranks = Ranks(communicator_of(process_group, no_dist or not use_collectives))
    return _save(_states(state_dict), writer, ranks, planner or DefaultSavePlanner())


def save_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_writer: StorageWriter,
    process_group: Group = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """``save`` under its old name, without objects that have a state."""
    storage_writer.reset()
    ranks = Ranks(communicator_of(process_group, no_dist), coordinator_rank)
    return _save(state_dict, storage_writer, ranks, planner or DefaultSavePlanner())


def async_save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Group = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: AsyncStager | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> concurrent.futures.Future[Metadata] | AsyncSaveResponse:
    """``save`` beside the computation: what this rank writes is copied in memory, the rest is done by a
    thread.

    The state may change when the call returns. The copy of tensors over 64 KiB is made in the background if
    only tenon can write to their memory: the next change of one, such as an optimizer's step, waits for it.
    What is shared with NumPy or another library (``from_numpy``, ``numpy()``, ``data``) is copied at once.
    ``async_stager=DefaultStager()`` copies all in the background: the result is an ``AsyncSaveResponse``, and
    other writers than tenon have to wait for its ``staging_completion``.
    ``DefaultStager(StagingOptions(use_async_staging=False))`` copies all at once.

    One checkpoint is written at a time: the next call waits for the last, and raises its error if nobody has
    asked its future. The program ends when the checkpoint is complete. Collective.
    ``async_checkpointer_type`` has no effect. Source: torch.distributed.checkpoint.async_save.
    """
    background.wait()
    writer = storage_of(storage_writer, checkpoint_id, FileSystemWriter)
    ranks = Ranks(communicator_of(process_group, no_dist or not use_collectives))
    planner = planner or DefaultSavePlanner()
    states = _states(state_dict)
    stager = async_stager
    if stager is None:
        stager = writer if isinstance(writer, AsyncStager) else background.stager()
    if not isinstance(stager, DefaultStager):
        # A stager of the user's own copies the state dict as a whole, before it is known who writes what.
        states = _staged(stager, states)
    saving = Saving(states, writer, ranks, planner)
    saving.plan()
    copied = saving.copy(stager) if isinstance(stager, DefaultStager) else None
    beside = background.ranks_beside(ranks)
    if beside is None:
        written = background.finished(saving.complete(ranks))
    else:
        written = background.start(lambda: saving.complete(beside), saving.name)
    if copied is None or isinstance(stager, OwnStager):
        return written
    return AsyncSaveResponse(copied, written)


def _save(state_dict: STATE_DICT_TYPE, writer: StorageWriter, ranks: Ranks, planner: SavePlanner) -> Metadata:
    saving = Saving(state_dict, writer, ranks, planner)
    saving.plan()
    return saving.complete(ranks)


def communicator_of(process_group: Group, alone: bool) -> Communicator | None:
    """The communicator of ``process_group``; None to save from this process alone."""
    if alone:
        return None
    return world.get_communicator() if process_group is None else member(process_group)


def _states(state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
    """``state_dict`` with the states of the objects that have one."""
    return {
        name: state_to_save(value) if isinstance(value, Stateful) else value
        for name, value in state_dict.items()
    }


def _staged(stager: AsyncStager, states: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
    copied = stager.stage(states)
    if isinstance(copied, concurrent.futures.Future):
        return copied.result()
    if stager.should_synchronize_after_execute:
        stager.synchronize_staging()
    return copied

"""Copies in memory of what ``async_save`` writes, so that the state may change meanwhile. Names are
PyTorch's."""

from __future__ import annotations

import concurrent.futures
import io
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon.distributed.checkpoint.metadata import STATE_DICT_TYPE, Metadata, MetadataIndex, StorageMeta
from tenon.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from tenon.engine import pending_copies
from tenon.errors import CheckpointError, UnsupportedError
from tenon.kernels.backend import backend_named
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.tensor import Tensor

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]


class AsyncStager(ABC):
    """Copies a state dict before ``async_save`` writes it."""

    _synchronize_after_execute = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Whether ``synchronize_staging`` is called after ``stage``."""
        return self._synchronize_after_execute

    @abstractmethod
    def stage(
        self, state_dict: STATE_DICT_TYPE
    ) -> concurrent.futures.Future[STATE_DICT_TYPE] | STATE_DICT_TYPE:
        """A copy of ``state_dict``, or the future of one."""

    def synchronize_staging(self) -> None:
        """Block until the copy is made; by default it is when ``stage`` returns."""
        return

    def close(self) -> None:
        """Let go of memory; by default there is none."""
        return


class BlockingAsyncStager(AsyncStager):
    """Copies while the caller waits. ``cache_staged_state_dict`` and ``type_check`` have no effect."""

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        self.cache_staged_state_dict = cache_staged_state_dict

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        """A copy of ``state_dict`` whose tensors are on the CPU."""
        copied: STATE_DICT_TYPE = {key: _copied(value) for key, value in state_dict.items()}
        return copied


def _copied(value: Any) -> Any:  # of the same type
    if isinstance(value, Tensor):
        return value.detach().clone().cpu()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return value


@dataclass
class StagingOptions:
    """How ``DefaultStager`` copies.

    With ``use_async_staging`` in the background, while the next forward and backward pass run. The others
    have no effect.
    """

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class DefaultStager(AsyncStager):
    """Copies what this rank writes into memory that is kept for the next checkpoint, until ``close``.

    With ``config.use_async_staging`` tensors of more than 64 KiB may not change before the copy is complete;
    smaller ones, such as the statistics of BatchNorm, are copied at once. Operations of tenon that change
    one, steps of optimizers among them, wait for it by themselves; before another library changes one, call
    ``staging_completion.result()``.
    """

    #: Whether memory that can be written to without a call of tenon is copied at once, too.
    exposed_at_once = False

    def __init__(self, config: StagingOptions | None = None) -> None:
        self.options = StagingOptions() if config is None else config
        self.memory = np.empty(0, np.uint8)

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        """A copy of ``state_dict``, whose memory is its own."""
        return BlockingAsyncStager().stage(state_dict)

    def close(self) -> None:
        """Free the memory."""
        self.memory = np.empty(0, np.uint8)


class OwnStager(DefaultStager):
    """The stager of calls that bring none: the state may change as soon as they return.

    What only tenon can write to is copied in the background, and its writers wait. What NumPy or another
    library may write to (``from_numpy``, ``numpy()``, ``data``, ``data_ptr()``) is copied at once.
    """

    exposed_at_once = True


class StagedPlanner(SavePlanner):
    """Stands for ``planner``, whose data of ``items`` it copies: ``resolve_data`` returns the copies."""

    def __init__(self, planner: SavePlanner, items: Sequence[WriteItem], stager: DefaultStager) -> None:
        self._planner, self._stager = planner, stager
        self._data: dict[MetadataIndex, Tensor | io.BytesIO] = {
            item.index: _of_now(planner.resolve_data(item)) for item in items
        }
        self._early: set[MetadataIndex] = set()
        self._places: dict[MetadataIndex, slice] = {}
        self._copied: concurrent.futures.Future[None] | None = None

    def copy(self) -> None:
        """Copy all data; the tensors may change afterwards."""
        self._allocate()
        self._copy(list(self._places))

    def begin(self) -> concurrent.futures.Future[None]:
        """Copy small tensors, and the rest in the background; what writes to them waits for it."""
        self._copy_small()
        self._allocate()
        sources = self._sources()
        self._copy([index for index in self._places if not self._may_wait(sources[index])])
        versions = [
            (index, sources[index], sources[index]._version)
            for index in self._places
            if index not in self._early
        ]
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._copied = done
        pending_copies.announce([tensor._counter() for _, tensor, _ in versions], done)

        def work() -> None:
            try:
                self.copy_rest()
                for index, tensor, version in versions:
                    if tensor._version != version:
                        raise CheckpointError(_CHANGED.format(index.fqn))
            except BaseException as error:  # raised by the future, and by the save
                done.set_exception(error)
            else:
                done.set_result(None)

        threading.Thread(target=work, name="checkpoint staging").start()
        return done

    def copy_rest(self) -> None:
        """Copy what was not copied at once; runs in a thread."""
        self._copy([index for index in self._places if index not in self._early])

    def _copy_small(self) -> None:
        """Copy what a forward pass may change, such as the statistics of BatchNorm."""
        for index, value in self._data.items():
            if isinstance(value, Tensor) and value.nbytes <= _SMALL:
                self._data[index] = value.clone().cpu()
                self._early.add(index)

    def _allocate(self) -> None:
        """Reserve the memory of the copies."""
        size = 0
        for index, value in self._data.items():
            if isinstance(value, Tensor) and index not in self._early:
                self._places[index] = slice(size, size + value.nbytes)
                size += -(-value.nbytes // _ALIGNMENT) * _ALIGNMENT
        if self._stager.memory.size < size:
            self._stager.memory = np.empty(size, np.uint8)

    def _copy(self, indices: Sequence[MetadataIndex]) -> None:
        backend = backend_named("cpu")
        for index in indices:
            value = self._data[index]
            assert isinstance(value, Tensor)  # as are all that have a place
            host = np.asarray(value.cpu().raw)
            place = self._stager.memory[self._places[index]].view(host.dtype).reshape(host.shape)
            backend.copy_past_caches(host, place)
            self._data[index] = from_numpy(place)
            self._early.add(index)

    def _may_wait(self, source: Tensor) -> bool:
        """Whether the copy may be made in the background: changes of ``source`` are seen, and it is in the
        memory of the host."""
        if source.is_inference() or source.device.type != "cpu":
            return False
        return not (self._stager.exposed_at_once and len(source._counter()) > 1)

    def _sources(self) -> dict[MetadataIndex, Tensor]:
        """The tensors whose versions count: those of the state dict, as this rank's part of one has none."""
        known = getattr(self._planner, "state_dict", {})
        found: dict[MetadataIndex, Tensor] = {}
        for index in self._places:
            value, source = self._data[index], known.get(index.fqn)
            assert isinstance(value, Tensor)
            found[index] = source if isinstance(source, Tensor) else value
        return found

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The copy of an item's data."""
        if self._copied is not None:
            self._copied.result()
        return self._data[write_item.index]

    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Raise: the planner it stands for has planned."""
        raise UnsupportedError("this planner only has the copies of what was planned.")

    def create_local_plan(self) -> SavePlan:
        """The plan of the planner it stands for."""
        return self._planner.create_local_plan()

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """The global plan of the planner it stands for."""
        return self._planner.create_global_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Accept the plan."""
        return self._planner.finish_plan(new_plan)


def _of_now(value: Tensor | io.BytesIO) -> Tensor | io.BytesIO:
    """``value``; of a tensor an alias, which keeps its memory if the tensor is given another."""
    return value.detach() if isinstance(value, Tensor) else value


_ALIGNMENT = 64
_SMALL = 1 << 16
"""Bytes of a tensor up to which its copy costs less than to watch it."""
_CHANGED = (
    "{} changed while async_save was copying it in the background, so the checkpoint was not written. Wait"
    " for AsyncSaveResponse.staging_completion before a change that no operation of tenon makes, or pass"
    " async_stager=DefaultStager(StagingOptions(use_async_staging=False))."
)

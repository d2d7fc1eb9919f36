"""One save on all ranks: plan it, write it, make it valid.

The plan is kept: while a rank has the same tensors at the next save, it says so instead of sending its plan,
and if all have, nothing is planned again.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import inspect
from collections.abc import Callable
from typing import TypeAlias

from tenon.distributed.checkpoint.default_planner import DefaultSavePlanner
from tenon.distributed.checkpoint.filesystem import FileSystemWriter
from tenon.distributed.checkpoint.metadata import STATE_DICT_TYPE, Metadata
from tenon.distributed.checkpoint.planner import SavePlan, SavePlanner
from tenon.distributed.checkpoint.ranks import Ranks
from tenon.distributed.checkpoint.staging import DefaultStager, StagedPlanner
from tenon.distributed.checkpoint.storage import StorageWriter, WriteResult

#: Done when a copy in memory is complete.
Copied: TypeAlias = concurrent.futures.Future[None]
#: What a rank has written.
Results: TypeAlias = list[WriteResult]


@dataclasses.dataclass
class Plans:
    """The plans of the last save: what this rank could write and what it wrote, and on the coordinator those
    of all ranks and the description of the checkpoint."""

    own: SavePlan
    final: SavePlan
    given: list[SavePlan] = dataclasses.field(default_factory=list)
    agreed: list[SavePlan] = dataclasses.field(default_factory=list)
    metadata: Metadata | None = None


class Saving:
    """One save: the state dict, and what plans and writes it."""

    final: SavePlan

    def __init__(
        self, state_dict: STATE_DICT_TYPE, writer: StorageWriter, ranks: Ranks, planner: SavePlanner
    ) -> None:
        self.state_dict, self.writer, self.ranks, self.planner = state_dict, writer, ranks, planner
        self.metadata: Metadata | None = None
        self.name = str(getattr(writer, "checkpoint_id", type(writer).__name__))
        self._failure: Exception | None = None
        self._own: SavePlan | None = None
        self._given: list[SavePlan] = []
        self._agreed: list[SavePlan] = []
        self._key: object = None
        if type(planner) is DefaultSavePlanner and type(writer) is FileSystemWriter and ranks.size > 1:
            options = (planner.flatten_state_dict, planner.dedup_save_to_lowest_rank)
            self._key = (__name__, ranks.coordinator, *options)
        self._last: Plans | None = ranks.communicator.kept.get(self._key)

    def plan(self) -> None:
        """Decide with all ranks who writes what."""
        central = self.ranks.reduce_scatter("plan", self._local, self._global)
        if self._last is not None and not central.usable:
            central = dataclasses.replace(self._last.final, storage_data=central.storage_data)
        self.final = self.planner.finish_plan(central)
        if self._key is not None and self._own is not None:
            plans = Plans(self._own, self.final, self._given, self._agreed, self.metadata)
            self.ranks.communicator.kept[self._key] = plans

    def _local(self) -> SavePlan:
        ranks = self.ranks
        meta = self.writer.storage_meta()
        if "storage_meta" in inspect.signature(self.planner.set_up_planner).parameters:
            self.planner.set_up_planner(self.state_dict, meta, ranks.is_coordinator)
        else:  # a planner for PyTorch before 2.3
            self.planner.set_up_planner(self.state_dict, is_coordinator=ranks.is_coordinator)
        set_up(self.writer.set_up_storage_writer, ranks, ranks.is_coordinator)
        self._own = plan = self.writer.prepare_local_plan(self.planner.create_local_plan())
        last = self._last
        if last is not None and (plan.items, plan.planner_data) == (last.own.items, last.own.planner_data):
            return SavePlan([], plan.storage_data, usable=False)
        return plan

    def _global(self, plans: list[SavePlan]) -> list[SavePlan]:
        last = self._last
        if last is None or last.metadata is None or all(plan.usable for plan in plans):
            return self._plan_anew(plans)
        given = [
            plan if plan.usable else dataclasses.replace(before, storage_data=plan.storage_data)
            for plan, before in zip(plans, last.given, strict=True)
        ]
        if any(plan.usable for plan in plans):
            return self._plan_anew(given)
        self._given, self._agreed = given, last.agreed
        self.metadata = Metadata(last.metadata.state_dict_metadata, last.metadata.planner_data)
        again = [
            dataclasses.replace(plan, storage_data=own.storage_data)
            for plan, own in zip(last.agreed, plans, strict=True)
        ]
        named = self.writer.prepare_global_plan(again)
        return [SavePlan([], plan.storage_data, usable=False) for plan in named]

    def _plan_anew(self, plans: list[SavePlan]) -> list[SavePlan]:
        self._given = plans
        self._agreed, self.metadata = self.planner.create_global_plan(plans)
        return self.writer.prepare_global_plan(self._agreed)

    def copy(self, stager: DefaultStager) -> Copied | None:
        """Copy what this rank writes; the future if that is done in the background.

        What fails here on one rank fails ``complete`` on all.
        """
        try:
            known = type(self.planner) is DefaultSavePlanner  # another may resolve to memory of its own
            self.planner = staged = StagedPlanner(self.planner, self.final.items, stager)
            if stager.options.use_async_staging and (known or not stager.exposed_at_once):
                return staged.begin()
            staged.copy()
        except Exception as error:
            self._failure = error
        return None

    def complete(self, ranks: Ranks) -> Metadata:
        """Write with all ranks what was planned, through ``ranks``, which may be those of a thread."""

        def write() -> Results:
            if self._failure is not None:
                raise self._failure
            written = self.writer.write_data(self.final, self.planner)
            written.wait()
            return written.value()

        def finish(results: list[Results]) -> Metadata:
            assert self.metadata is not None  # this rank has planned for all
            self.writer.finish(self.metadata, results)
            return Metadata(self.metadata.state_dict_metadata, storage_meta=self.metadata.storage_meta)

        return ranks.all_reduce("write", write, finish)


def set_up(function: Callable[..., object], ranks: Ranks, *args: object) -> None:
    """Call a storage's method, which gets ``rank`` and ``use_collectives`` if it takes ``**kwargs``."""
    if "kwargs" in inspect.signature(function).parameters:
        function(*args, rank=ranks.rank, use_collectives=True)
    else:
        function(*args)

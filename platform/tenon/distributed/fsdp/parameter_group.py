"""The parameters that one ``fully_shard`` call shards: gathered together, reduced together.

A life in a training step: sharded; gathered for forward; released after it; gathered for backward; there the
gradients are reduce-scattered and the parameters released. Between forward and backward the graph has no
reference to the gathered memory (``released.py``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.communication.calls import Work
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.device_mesh import DeviceMesh
from tenon.distributed.fsdp.gradient_buffer import (
    GradientBuffer,
    ShardDestination,
    bytes_of_rows,
    rows_in,
)
from tenon.distributed.fsdp.gradient_windows import GradientWindows
from tenon.distributed.fsdp.policies import MixedPrecisionPolicy
from tenon.distributed.fsdp.reduction import Reduction
from tenon.distributed.fsdp.released import SavedWeights
from tenon.distributed.fsdp.sharded_parameter import ShardedParameter
from tenon.engine.accumulate import DESTINATION
from tenon.engine.types import NumpyDType
from tenon.engine.watchers import WATCHERS
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.distributed.fsdp.buffers import BufferPool
    from tenon.distributed.fsdp.group_sums import GroupSums

#: Called with the reduced gradient of the group's shards: see ``set_all_reduce_hook``.
AllReduceHook = Callable[[Tensor], None]


LEAST_COMMON = 1 << 20
"""Bytes from which on the gathered parameters are in memory that the ranks have in common."""


class Phase(enum.Enum):
    """What a group is doing."""

    IDLE = "idle"
    FORWARD = "forward"
    BACKWARD = "backward"


class ParameterGroup:
    """``parameters`` of the modules of one ``fully_shard`` call on ``mesh``."""

    def __init__(
        self,
        parameters: Sequence[ShardedParameter],
        mesh: DeviceMesh,
        precision: MixedPrecisionPolicy,
        pool: BufferPool,
        reshard_after_forward: bool | int,
    ) -> None:
        """``reshard_after_forward`` as in ``fully_shard``; a number of ranks creates groups of as many."""
        self.parameters = list(parameters)
        self.mesh, self.precision, self.pool = mesh, precision, pool
        self.communicator: Communicator = mesh.get_group(mesh.ndim - 1)
        self.replicas: Communicator | None = mesh.get_group(0) if mesh.ndim == 2 else None
        self.few: Communicator | None = None
        """A smaller group of ranks, over which parameters stay sharded between forward and backward."""
        size = self.communicator.size
        if not isinstance(reshard_after_forward, bool):
            if 1 < reshard_after_forward < size:
                self.few = _few(mesh, reshard_after_forward)
            reshard_after_forward = reshard_after_forward > 1
        self.reshard_after_forward = reshard_after_forward
        self._kept: list[np.ndarray] = []
        """The rows of the whole parameters that this rank keeps for the gather among ``few``."""
        self.name = "a module"
        self.phase = Phase.IDLE
        self.saved = SavedWeights()
        self.positions: list[int] = []
        """The positions of the group's forward passes in the model's order of this step."""
        # Settings, which FSDPModule's methods change.
        self.reduces = self.reduces_over_replicas = True
        self.reduces_unused = False
        """Parameters without a gradient on any rank get zeros, in every backward pass."""
        self.reduced = False
        """Whether a reduction has started in this backward pass."""
        self.reshards_after_backward = True
        self.unshards_in_backward = True
        self.divide_factor: float | None = None
        self.sums_only = False
        self.all_reduce_hook: AllReduceHook | None = None
        self.sums: GroupSums | None = None
        """What takes the reduced gradients, with ``deterministic="world"``."""
        self._gathering: tuple[Work, list[np.ndarray]] | None = None
        self._versions: list[int] = []
        """Those of the shards that are being gathered."""
        self._gathered = self._is_common = False
        self._rows: list[np.ndarray] = []
        self._reducing: Reduction | None = None
        self.partial: np.ndarray | None = None
        """Gradients that were reduced over the shards, but not over the replicas yet."""
        self.windows: GradientWindows = self.communicator.kept.setdefault(
            "fully_shard gradients", GradientWindows(self.communicator)
        )
        self.gradients = GradientBuffer(self.parameters, pool, self.windows)
        for index, parameter in enumerate(self.parameters):
            destination = ShardDestination(self.gradients, index, parameter)
            parameter.whole.__dict__[DESTINATION] = destination

    @property
    def wholes(self) -> list[Tensor]:
        """The gathered parameters."""
        return [parameter.whole for parameter in self.parameters]

    @property
    def is_gathered(self) -> bool:
        """Whether the modules have the whole parameters."""
        return self._gathered

    @property
    def is_gathering(self) -> bool:
        """Whether a gather was started and not waited for."""
        return self._gathering is not None

    # --- gathering ---

    def start_unshard(self, private: bool = False) -> None:
        """Start to gather the parameters; collective. Nothing if they are gathered, or about to be; what is
        being gathered of shards that have been modified since is gathered again.

        The memory may be common to the ranks of a host, which nobody may write to, unless it is ``private``.
        """
        versions = [parameter.version for parameter in self.parameters]
        if self._gathering is not None and versions != self._versions:
            self.reshard()
        if self._gathered or self._gathering is not None or not self.parameters:
            return
        self._versions = versions
        if self._kept:
            self._gather_kept(self._kept)
            return
        for parameter in self.parameters:
            parameter.adopt()
        kind = self.precision.param_dtype
        sources = [p.source(None if kind is None else kind.numpy) for p in self.parameters]
        if self.communicator.size == 1:
            rows = [source.reshape(1, -1) for source in sources]
            self._gathering = Work(np.empty(0)), rows
            return
        name = f"parameters of {self.name}"
        rows = self._take_rows([source.dtype for source in sources], None if private else name)
        self._gathering = self.communicator.start_all_gather_several(sources, rows, name=name), rows

    def _take_rows(self, dtypes: Sequence[np.dtype], name: str | None = None) -> list[np.ndarray]:
        """Memory for the gathered parameters; with ``name`` that of all ranks, if they have any in common."""
        size = bytes_of_rows(self.parameters, dtypes)
        memory = None
        if name is not None and size >= LEAST_COMMON:
            memory = self.communicator.common_memory(size, name=name)
        self._is_common = memory is not None
        return rows_in(self.pool.take(size) if memory is None else memory, self.parameters, dtypes)

    def _gather_kept(self, kept: list[np.ndarray]) -> None:
        """Gather what the ranks of ``few`` kept after forward."""
        assert self.few is not None
        rows = self._take_rows([array.dtype for array in kept])
        outs = [array.reshape(self.few.size, -1) for array in rows]
        name = f"parameters of {self.name} again"
        self._gathering = self.few.start_all_gather_several(kept, outs, name=name), rows
        self._kept = []

    def unshard(self, private: bool = False) -> None:
        """Gather the parameters and make them the attributes of the modules; collective."""
        self.start_unshard(private)
        if self._gathering is None:
            for parameter in self.parameters:
                parameter.note_change()
            return
        work, rows = self._gathering
        with WATCHERS.spanning(f"wait for parameters of {self.name}", "wait"):
            work.wait()
        self._gathering = None
        self._rows = rows if self.few is not None else []
        for parameter, gathered in zip(self.parameters, rows, strict=True):
            parameter.gathered(gathered, read_only=self._is_common)
            parameter.show(parameter.whole)
        self._gathered = True
        self.saved.restore()

    def refresh(self) -> None:
        """Gather the parameters for a forward pass, again if the shards have been modified; collective."""
        if self._gathered and any(parameter.has_changed for parameter in self.parameters):
            self.reshard()
        self.unshard()

    def reshard(self) -> None:
        """Release the whole parameters; the modules have the shards again."""
        self._kept, self._rows = [], []
        if self._gathering is not None:  # prefetched and not used
            self._gathering[0].wait()
            self._gathering = None
        if not self._gathered:
            return
        for parameter in self.parameters:
            parameter.release()
            parameter.show(parameter.sharded)
        self._gathered = False
        self.saved.release()

    def after_forward(self, outputs: Iterable[Tensor], since: int) -> None:
        """Release the parameters after forward if they are to be; the nodes behind ``outputs`` are numbered
        from ``since`` on."""
        behind = list(outputs)
        self.saved.find(behind, since, self.wholes)
        if self.reshard_after_forward:
            kept = self._part_to_keep() if behind else []
            self.reshard()
            self._kept = kept

    def _part_to_keep(self) -> list[np.ndarray]:
        """Copies of this rank's part of the whole parameters among ``few``; none without it."""
        if self.few is None or not self._gathered:
            return []
        size, rank = self.few.size, self.few.rank
        return [rows.reshape(size, -1)[rank].copy() for rows in self._rows]

    # --- gradients ---

    @property
    def has_gradients(self) -> bool:
        """Whether a whole parameter has a gradient that is not reduced."""
        return any(parameter.has_gradient for parameter in self.parameters)

    @property
    def dtype_of_gradients(self) -> NumpyDType:
        """The dtype in which gradients are reduced, if all are in that of the gathered parameters."""
        kind = self.precision.reduce_dtype or self.precision.param_dtype
        if kind is not None:
            return kind.numpy
        return np.result_type(*{p.sharded.raw.dtype for p in self.parameters})

    def start_reduction(self, postpone: bool = False) -> None:
        """After the backward pass of the modules: start to reduce gradients, and release the parameters.

        Collective, if a parameter has a gradient. With ``postpone``, gradients wait for the next call.
        """
        self.phase = Phase.IDLE
        if self.reduces and not postpone and (self.has_gradients or self.reduces_unused):
            trained = [p for p in self.parameters if p.whole.requires_grad]
            self._reducing, self.reduced = Reduction(self, trained) if trained else None, True
            for parameter in self.parameters:
                parameter.drop_gradient()
            self.gradients.drop()
        elif self.precision.reduce_dtype is not None:
            for parameter in self.parameters:
                parameter.hold_gradient(self.precision.reduce_dtype.numpy)
        if self.reshards_after_backward:
            self.reshard()

    def finish_reduction(self) -> None:
        """Wait for the reduction, and add its result to the gradients of the sharded parameters."""
        reduction, self._reducing = self._reducing, None
        if reduction is not None:
            reduction.finish()

    def rows_of_gradient(self, parameter: ShardedParameter) -> np.ndarray:
        """The gradient of the whole parameter as rows, in the buffer; zeros if it has none."""
        gradient = parameter.whole.grad
        host = None if gradient is None else parameter.layout.host_part(gradient)
        return self.gradients.write(self.parameters.index(parameter), host)

    def zero_gradients(self, set_to_none: bool) -> None:
        """Clear the gradients of the shards, and drop those that wait for their reduction."""
        self.partial = None
        for parameter in self.parameters:
            parameter.drop_gradient()
            if set_to_none:
                parameter.sharded.grad = None
            elif parameter.sharded.grad is not None:
                parameter.sharded.grad.zero_()
        self.gradients.drop()

    def forget(self) -> None:
        """After a step that raised: drop gradients and release the parameters, without communication."""
        self.phase = Phase.IDLE
        self._reducing = self.partial = None
        self.reduced = False
        for parameter in self.parameters:
            parameter.drop_gradient()
        self.gradients.drop()
        self.reshard()


def _few(mesh: DeviceMesh, size: int) -> Communicator:
    """The group of ``size`` consecutive ranks of the sharded dimension of ``mesh`` in which this rank is.

    All ranks of the job call it.
    """
    ranks = mesh.mesh.numpy()
    parts = ranks.reshape(*ranks.shape[:-1], ranks.shape[-1] // size, size)
    return DeviceMesh(mesh.device_type, parts).get_group(parts.ndim - 1)

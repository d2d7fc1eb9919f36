"""The reduction of a module group's gradients: reduce-scatter over the shards, all-reduce over replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.communication.calls import Work
from tenon.distributed.communication.reduction import ReduceOp
from tenon.distributed.fsdp.sharded_parameter import ShardedParameter
from tenon.engine.watchers import WATCHERS
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.distributed.fsdp.parameter_group import ParameterGroup


class Reduction:
    """Starts when it is created; ``finish`` gives the sharded parameters their gradients.

    A message has, beside the gradients, one number for each parameter: on how many ranks it has a gradient.
    If on none, the gradient of its shard stays None; ranks without one count as zero.
    """

    def __init__(self, group: ParameterGroup, parameters: Sequence[ShardedParameter]) -> None:
        self._group, self._parameters = group, list(parameters)
        used = [p.has_gradient or group.reduces_unused for p in parameters]
        rows = [group.rows_of_gradient(p) for p in parameters]
        dtype = _dtype_of(group, rows)
        rows = [r if r.dtype == dtype else r.astype(dtype) for r in rows]
        for parameter, array in zip(parameters, rows, strict=True):
            if parameter.held is not None:
                parameter.whole_of(array)[...] += parameter.held
        size = group.communicator.size
        rows.append(group.gradients.counts(used, dtype))
        sums = group.sums_only or group.sums is not None or group.divide_factor is not None
        self._sums = sums and dtype != np.float16
        """Whether the result is a sum; of float16, whose sums overflow, it is a mean."""
        self._rows, self._work = rows, Work(np.empty(0))
        if size == 1:
            self._outs = [r.reshape(-1) for r in rows]
            return
        count = sum(r.shape[1] for r in rows)
        self._flat = group.pool.take(count * dtype.itemsize).view(dtype)
        self._outs = _parts(self._flat, [r.shape[1] for r in rows])
        self._work = group.communicator.start_reduce_scatter_several(
            rows, self._outs, self._operation, name=f"gradients of {group.name}"
        )
        if not group.communicator.overlaps:
            self._rows = []  # their buffer is free for the next module
        group.windows.next(group.gradients.size, group.gradients.piece)

    @property
    def _operation(self) -> ReduceOp:
        return ReduceOp.SUM if self._sums else ReduceOp.AVG

    def finish(self) -> None:
        """Wait, reduce over replicas, scale, and accumulate; see the class."""
        group = self._group
        with WATCHERS.spanning(f"wait for gradients of {group.name}", "wait"):
            self._work.wait()
        self._rows = []
        if group.sums is not None:
            group.sums.receive(self._parameters, self._outs[:-1], self._outs[-1])
            return
        further = group.replicas is not None or group.all_reduce_hook is not None
        if further and not self._reduce_over_replicas():
            return
        ranks = group.communicator.size * (1 if group.replicas is None else group.replicas.size)
        factor = ranks if group.divide_factor is None else group.divide_factor
        divisor = factor if self._sums else factor / ranks
        if divisor != 1:
            for array in self._outs[:-1]:
                np.divide(array, array.dtype.type(divisor), out=array)
        for parameter, array, count in zip(self._parameters, self._outs[:-1], self._outs[-1], strict=True):
            if count:
                parameter.receive(array)

    def _reduce_over_replicas(self) -> bool:
        """All-reduce the shards over the replicas; False if that is left to a later step."""
        group = self._group
        if group.communicator.size == 1:
            counts = [out.size for out in self._outs]
            self._flat = np.concatenate(self._outs)
            self._outs = _parts(self._flat, counts)
        if group.partial is not None:
            self._flat += group.partial
            group.partial = None
        if group.replicas is not None:
            if not group.reduces_over_replicas:
                group.partial = self._flat
                return False
            name = f"gradients of {group.name} over replicas"
            group.replicas.all_reduce(self._flat, self._operation, self._flat, name=name).wait()
        if group.all_reduce_hook is not None:
            gradients = self._flat[: self._flat.size - len(self._parameters)]
            group.all_reduce_hook(Tensor._of(gradients, self._parameters[0].whole._backend))
        return True


def _dtype_of(group: ParameterGroup, rows: Sequence[np.ndarray]) -> np.dtype:
    """The dtype of the reduction: the policy's, or that of the gradients."""
    if group.precision.reduce_dtype is not None:
        kind: np.dtype = group.precision.reduce_dtype.numpy
        return kind
    return np.result_type(*{r.dtype for r in rows}) if len({r.dtype for r in rows}) > 1 else rows[0].dtype


def _parts(flat: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    ends = np.cumsum(counts)
    return [flat[end - count : end] for end, count in zip(ends, counts, strict=True)]

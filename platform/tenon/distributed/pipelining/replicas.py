"""Pipelines of data-parallel stages: gradients are reduced over the replicas once in a step.

The passes of the microbatches run without synchronization, so that their gradients add up on each rank; after
the last backward pass of a stage, ``Replicas.reduce`` averages the sums over the replicas. Both kinds of
modules are found wherever they stand in a stage: ``DistributedDataParallel`` and ``fully_shard``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

from tenon.distributed.fsdp.fully_shard import FSDPModule
from tenon.distributed.fsdp.state import states_of
from tenon.distributed.replicas.data_parallel import DistributedDataParallel
from tenon.nn.module import Module

M = TypeVar("M", bound=Module)


class Replicas:
    """The data-parallel modules of a stage's ``module``."""

    def __init__(self, module: Module) -> None:
        self._wrappers = list(_outermost(module, DistributedDataParallel))
        self._sharded = list(_outermost(module, FSDPModule))

    @contextlib.contextmanager
    def without_synchronization(self) -> Iterator[None]:
        """Let gradients add up on this rank, and keep gathered parameters after backward."""
        groups = [state.group for module in self._sharded for state in states_of(module)]
        before = [(g.reduces, g.reduces_over_replicas, g.reshards_after_backward) for g in groups]
        with contextlib.ExitStack() as stack:
            for wrapper in self._wrappers:
                stack.enter_context(wrapper.no_sync())
            for sharded in self._sharded:
                sharded.set_requires_gradient_sync(False)
                sharded.set_reshard_after_backward(False)
                sharded.set_is_last_backward(False)
            try:
                yield
            finally:
                for group, values in zip(groups, before, strict=True):
                    group.reduces, group.reduces_over_replicas, group.reshards_after_backward = values
                for sharded in self._sharded:
                    sharded.set_is_last_backward(True)

    def reduce(self) -> None:
        """Average the gradients over the replicas; collective. Not those of a module under ``no_sync``."""
        for wrapper in self._wrappers:
            if wrapper.require_backward_grad_sync:
                if wrapper.training and wrapper.forward_sync_buffers:
                    wrapper.broadcast_buffers_now()
                wrapper.synchronizer.restart()
                wrapper.synchronizer.synchronize()
        for sharded in self._sharded:
            sharded._state.context.finish_backward()


def _outermost(module: Module, kind: type[M]) -> Iterator[M]:
    """The modules of ``kind`` in ``module`` that are in no other one of that kind."""
    if isinstance(module, kind):
        yield module
        return
    for child in module.children():
        yield from _outermost(child, kind)

"""Training with ``fully_shard`` whose bits do not depend on the ranks: ``deterministic="world"``.

A step is computed in logical shards, as ``DistributedDataParallel`` does with the same option, and gives the
same bits (``replicas/shard_steps.py``). Gradients are reduced after each shard, so that no rank has whole
ones for longer than without the option; their sums are those of ``group_sums.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, SupportsFloat

import numpy as np

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import ReduceOp, combine
from tenon.distributed.fsdp.group_sums import GroupSums
from tenon.distributed.replicas.shard_order import ShardOrder
from tenon.distributed.replicas.shard_steps import (
    PROBED,
    Part,
    ShardSteps,
    check_modules,
    check_parameter,
    numbers_to_sum,
    refuse_engine,
)
from tenon.engine.running_pass import PASS
from tenon.errors import ArgumentError, CommunicatorError, ModuleError, UnsupportedError
from tenon.nn.module import Module
from tenon.random import initial_seed
from tenon.tensors.autograd.grad_mode import is_grad_enabled
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tenon.distributed.fsdp.parameter_group import ParameterGroup
    from tenon.distributed.fsdp.state import ModuleState

ADVICE = "Pass mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32), or keep parameters in float32."


class ShardedSteps(ShardSteps):
    """Steps of the model whose outermost ``fully_shard`` state is ``state``."""

    least = 1

    def __init__(self, module: Module, states: list[ModuleState], shards: int, threads: int) -> None:
        self._module, self._states = module, states
        self._groups = [state.group for state in states]
        own = self._groups[0]
        order = ShardOrder(shards, own.replicas, own.communicator)
        check_modules(module)
        for group in self._groups:
            _check_group(group, own)
            for p in group.parameters:
                if p.sharded.device.type != "meta":
                    check_parameter(p.name, p.sharded, group.dtype_of_gradients, ADVICE)
        super().__init__(module, order, _ShardedGradients(self._groups), threads, initial_seed())
        _check_scatter(own.communicator)
        if own.replicas is not None:
            _check_reduce(own.replicas)
        self._compute_exactly()
        self._is_checked = False

    def split(self, *parts: Part, step: int, samples: ArrayLike | None = None) -> Iterator[Part]:
        """See ``ShardSteps``."""
        if not self._is_checked:
            self._check_model()
            self._compute_exactly()  # again: a model on the meta device had another backend
            self._is_checked = True
        return super().split(*parts, step=step, samples=samples)

    def backward(self, loss: Tensor, count: SupportsFloat) -> None:
        """Add the gradients of ``loss``, a sum over ``count`` samples of the shard; once in each shard."""
        if self._passed:
            raise CommunicatorError(
                'deterministic="world": model.backward was called before in this shard. Gradients of a'
                " sharded model are reduced in each backward pass: add up the losses of a shard, and call it"
                " once."
            )
        super().backward(loss, count)

    def check_call(self, module: Module) -> None:
        """Raise ``CommunicatorError`` for a training call outside of the loop over shards."""
        if module.training and is_grad_enabled() and not self.inside and not PASS.inside:
            raise CommunicatorError(
                'deterministic="world": train in shards: `for x, y in model.shards(x, y, step=step)`.'
            )

    def _compute_exactly(self) -> None:
        """Let ops on the parameters' DTensors have the bits of those on whole tensors."""
        for group in self._groups:
            for p in group.parameters:
                p.sharded._backend.exact = True

    def _check_model(self) -> None:
        """Before the first step: raise for what fully_shard could not see when it was called."""
        root = self._states[0].model
        if root is not None and root.root is not self._states[0]:
            raise ModuleError(
                f'deterministic="world": {type(self._module).__name__} was called inside of the fully_shard'
                f" module {root.root.group.name!r}. Give the option to the outermost fully_shard call."
            )
        managed = {id(p) for g in self._groups for each in g.parameters for p in (each.sharded, each.whole)}
        for name, parameter in self._module.named_parameters():
            if id(parameter) not in managed and parameter.requires_grad:
                raise UnsupportedError(
                    f'deterministic="world": parameter {name!r} is trained, but not by fully_shard: no rank'
                    " would have the gradients of the others' samples. Freeze it, or do not leave it out."
                )
        for group in self._groups:
            for p in group.parameters:
                check_parameter(p.name, p.sharded, group.dtype_of_gradients, ADVICE)


class DeterministicSteps:
    """The methods of a ``fully_shard`` module with ``deterministic="world"``."""

    def shards(self, *parts: Part, step: int) -> Iterator[Part]:
        """Iterate over this rank's shards of a batch, the same on all ranks; see
        ``DistributedDataParallel.shards``."""
        return self._steps().split(*parts, step=step)

    def backward(self, loss: Tensor, count: SupportsFloat) -> None:
        """In the loop over ``shards``: add the gradients of ``loss``, a sum over ``count`` samples."""
        self._steps().backward(loss, count)

    def finish(self) -> float | None:
        """After the loop over ``shards``: make the gradients those of the mean over all samples.

        Returns that mean; None, with gradients of None, if the count is zero on all ranks.
        """
        return self._steps().finish()

    def _steps(self) -> ShardedSteps:
        steps: ShardedSteps | None = self._state.steps  # type: ignore[attr-defined]
        if steps is None:
            raise ModuleError(
                f'deterministic="world": {type(self).__name__} is part of another fully_shard module with'
                " this option. Call shards, backward and finish of the outermost one."
            )
        return steps


class _ShardedGradients:
    """The ``ShardGradients`` of ``groups``."""

    def __init__(self, groups: list[ParameterGroup]) -> None:
        self._groups = groups
        self._sums = []
        for group in groups:
            group.sums = GroupSums(group)
            self._sums.append(group.sums)

    def restart(self) -> None:
        """Reset the sums and the gradients."""
        for sums in self._sums:
            sums.restart()

    def add(self) -> None:
        """Add the gradients of the last shard."""
        for sums in self._sums:
            sums.add()

    def present(self) -> list[float]:
        """For each group, whether this rank has gradients."""
        return [float(sums.present) for sums in self._sums]

    def finish(self, count: float, ranks: int, present: np.ndarray) -> None:
        """Reduce over the replicas, and divide. ``ranks`` has no effect: each has samples."""
        for sums, found in zip(self._sums, present, strict=True):
            sums.finish(count, bool(found))


def _check_group(group: ParameterGroup, own: ParameterGroup) -> None:
    """Raise unless ``group`` is sharded as the outermost module is, and its settings sum all gradients."""
    if group.mesh != own.mesh:
        raise ArgumentError(
            f'deterministic="world": the modules of a model are sharded over {group.mesh!r} and {own.mesh!r}.'
            " Pass the same mesh in each fully_shard call."
        )
    if group.divide_factor is not None:
        refuse("set_gradient_divide_factor")
    if group.all_reduce_hook is not None:
        refuse("set_all_reduce_hook")
    if not (group.reduces and group.reduces_over_replicas):
        refuse("set_requires_gradient_sync(False)")


def refuse(setting: str) -> None:
    """Raise ``UnsupportedError`` for a setting by which sums would depend on the ranks."""
    raise UnsupportedError(
        f'deterministic="world": with {setting} the result would depend on the number of ranks. Leave it out.'
    )


def _check_scatter(communicator: Communicator) -> None:
    """Raise unless a reduce-scatter sums as a tree over the ranks, tried on random numbers."""
    size = communicator.size
    if size == 1:
        return
    rows = numbers_to_sum(communicator.rank, np.dtype(np.float32), (size, max(1, PROBED // size)))
    every = communicator.all_gather(rows, name="numbers to add up").wait()
    expected, found = np.empty_like(rows[0]), np.empty_like(rows[0])
    combine([each[communicator.rank] for each in every], ReduceOp.SUM, expected)
    work = communicator.start_reduce_scatter_several([rows], [found], "sum", name="numbers added up")
    work.wait()
    _compare(communicator, found.tobytes() == expected.tobytes())


def _check_reduce(communicator: Communicator) -> None:
    """The same of an all-reduce."""
    numbers = numbers_to_sum(communicator.rank, np.dtype(np.float32), (PROBED,))
    expected = np.empty_like(numbers)
    combine(list(communicator.all_gather(numbers, name="numbers to add up").wait()), ReduceOp.SUM, expected)
    found = communicator.all_reduce(numbers, name="numbers added up").wait()
    _compare(communicator, found.tobytes() == expected.tobytes())


def _compare(communicator: Communicator, same: bool) -> None:
    """Raise on all ranks if the sums of any rank are not the ``same``."""
    if not communicator.all_reduce(np.array([same]), "min", name="sums are those of a tree").wait().all():
        refuse_engine(communicator.name)

"""Gradient accumulation with the mean over all samples of a step, however passes and ranks divide them.

The mean of means is wrong if passes or ranks hold different numbers of samples, or of unmasked targets. So
losses are passed as (sum, count): gradients of sums add up, and are divided once by the total count of all
ranks and passes of the step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, SupportsFloat, TypeAlias, TypeGuard, TypeVar

import numpy as np

from tenon.amp import GradScaler
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.replicas.broadcast import broadcast_tensors
from tenon.distributed.replicas.data_parallel import DistributedDataParallel
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.distributed.sampler import reduce_sum_count
from tenon.engine.types import Nested
from tenon.errors import CommunicatorError
from tenon.nn.functional import cross_entropy, nll_loss
from tenon.nn.module import Module
from tenon.tensors.creation.factories import zeros
from tenon.tensors.tensor import Tensor

Batch = TypeVar("Batch")
MASKED = (cross_entropy, nll_loss)
"""Losses whose mean excludes targets that equal ``ignore_index``."""


#: A loss ``loss(outputs, targets)``: returns the mean over the batch, or a pair of its sum and count.
Loss: TypeAlias = Callable[..., Tensor | tuple[Tensor, SupportsFloat]]


class MaskedLoss(Protocol):
    """A layer that computes such a loss."""

    weight: Tensor | None
    reduction: str
    ignore_index: int | None

    def __call__(self, outputs: Tensor, targets: Tensor, /) -> Tensor:
        """The loss."""


class GradientAccumulation:
    """Steps of up to ``steps`` backward passes on each rank, with gradients averaged over all their samples::

        accumulation = GradientAccumulation(model, steps=4)
        for batches in accumulation.rounds(loader):
            optimizer.zero_grad()
            for inputs, targets in batches:
                loss = cross_entropy(model(inputs), targets, reduction="sum")
                accumulation.backward(loss, count=len(targets))
            if accumulation.finish() is not None:
                optimizer.step()

    ``model`` is a module, or one wrapped by ``DistributedDataParallel``, whose own synchronisation is then
    turned off. Ranks may have different numbers of batches and of samples in them, or none.

    ``scaler`` scales the losses; then step by ``scaler.step(optimizer)`` and ``scaler.update()``. A gradient
    that overflows on one rank overflows in the mean, so that all ranks skip the same steps.
    """

    def __init__(
        self,
        model: Module,
        steps: int = 1,
        communicator: Communicator | None = None,
        scaler: GradScaler | None = None,
    ) -> None:
        if steps < 1:
            raise CommunicatorError(f"steps={steps} must be at least 1: backward passes before a step.")
        self.steps = steps
        self._scaler = scaler
        self._wrapped = model if isinstance(model, DistributedDataParallel) else None
        if self._wrapped is not None:
            self._wrapped.require_backward_grad_sync = False
            self._synchronizer = self._wrapped.synchronizer
        else:
            self._synchronizer = GradientSynchronizer(model.named_parameters(), communicator, module=model)
            broadcast_tensors(list(model.buffers()), self._synchronizer.communicator, name="buffers")
        self._total = 0.0
        self._count = 0.0

    def rounds(self, batches: Iterable[Batch]) -> Iterator[list[Batch]]:
        """Yield this rank's batches for each step, ``steps`` or fewer, until no rank has any left.

        A rank whose batches have run out before those of others yields empty lists.
        """
        iterator = iter(batches)
        while True:
            own = list(itertools.islice(iterator, self.steps))
            left = np.array([len(own)], np.int64)
            if not self._synchronizer.communicator.all_reduce(
                left, "max", name=self._name("batches left")
            ).wait()[0]:
                return
            yield own

    def _name(self, data: str) -> str:
        """The name under which ranks compare the collective of ``data``."""
        return f"{data} of {self._synchronizer.model}"

    def backward(self, loss: Tensor, count: SupportsFloat) -> None:
        """Add the gradients of ``loss``, which is a sum over ``count`` samples (or unmasked targets)."""
        number = float(count)
        if not number >= 0:
            raise CommunicatorError(f"count={count} must be a number of samples, 0 or more.")
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        self._total += float(loss.item())
        self._count += number

    def finish(self) -> float | None:
        """Make the gradients those of the mean over all samples since the last step, and return that mean.

        All ranks call this, including those without a sample. If no rank had any, gradients become None and
        the result is None.
        """
        communicator = self._synchronizer.communicator
        total, count = reduce_sum_count(
            self._total, self._count, name=self._name("loss"), communicator=communicator
        )
        if self._wrapped is not None and self._wrapped.forward_sync_buffers:
            self._wrapped.broadcast_buffers_now()
        own_count, self._total, self._count = self._count, 0.0, 0.0
        if count == 0:
            for _, parameter in self._synchronizer.parameters:
                parameter.grad = None
            return None
        if self._scaler is not None:
            # A rank that has scaled no loss needs the initialized scale too.
            self._scaler.scale(zeros((), device=self._synchronizer.parameters[0][1].device))
        self._synchronizer.restart()
        self._synchronizer.synchronize(weight=1.0, count=own_count)
        return float(total / count)


def sum_and_count(
    loss: Loss, outputs: Nested, targets: Tensor, ignore_index: int = -100
) -> tuple[Tensor, float]:
    """The sum and count of which ``loss(outputs, targets)`` is the mean, over samples or unmasked targets.

    ``loss`` returns a mean over the batch, or the pair itself. For cross entropy and the negative
    log-likelihood of class indices, as functions and as layers without class weights, targets that equal
    ``ignore_index`` (for a layer, its own) do not count.
    """
    if loss in MASKED and not targets.is_floating_point():
        total = cross_entropy if loss is cross_entropy else nll_loss
        return (
            total(outputs, targets, ignore_index=ignore_index, reduction="sum"),
            float((targets != ignore_index).sum().item()),
        )
    if _is_masked_layer(loss) and not targets.is_floating_point():
        return _masked_sum_and_count(loss, outputs, targets)
    result = loss(outputs, targets)
    if isinstance(result, tuple):
        return result[0], float(result[1])
    return result * len(targets), float(len(targets))


def _is_masked_layer(loss: object) -> TypeGuard[MaskedLoss]:
    return isinstance(loss, Module) and hasattr(loss, "ignore_index")


def _masked_sum_and_count(loss: MaskedLoss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, float]:
    """``sum_and_count`` for a layer that computes the mean over unmasked targets."""
    if loss.weight is not None or loss.reduction != "mean":
        raise CommunicatorError(
            f"{type(loss).__name__} with class weights or reduction={loss.reduction!r} is not a mean over"
            f" targets. Pass a function that returns the pair (sum, count)."
        )
    ignored = -100 if loss.ignore_index is None else loss.ignore_index
    count = float((targets != ignored).sum().item())
    return (loss(outputs, targets) * count if count else outputs.sum() * 0), count

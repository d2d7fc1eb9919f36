"""One optimizer step on one global batch, and exact evaluation.

The batch of a step is the same set of samples for any number of ranks: each takes an even share, in
``accumulate`` micro-batches. Losses and their gradients are summed, and divided once by the count over all
ranks and micro-batches, so the gradient is the mean over all samples (or unmasked targets) of the step,
however it was split. With ``deterministic = "world"`` the bits are equal too: ranks compute logical shards.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np

from tenon import dtypes, random
from tenon.amp import GradScaler, autocast
from tenon.data.collate import fetch
from tenon.data.dataset import Source
from tenon.device import Device
from tenon.distributed.communication.clock import reading
from tenon.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from tenon.distributed.replicas.accumulation import MASKED, sum_and_count
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.distributed.replicas.shard_steps import ShardSteps
from tenon.distributed.sampler import reduce_sum_count
from tenon.engine.types import Nested
from tenon.errors import TrainingError
from tenon.nn.module import Module
from tenon.nn.utils.clip_grad import clip_grad_norm_
from tenon.plugins.manager import host
from tenon.random.generator import Generator
from tenon.random.keys import keyed
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.factories import zeros
from tenon.tensors.tensor import Tensor
from tenon.training.config import RunConfig
from tenon.training.session import Session


def epoch_order(session: Session, epoch: int) -> np.ndarray:
    """The permutation of the training samples in ``epoch``, which depends on seed and epoch alone."""
    generator = Generator().manual_seed(session.config.seed * 1_000_003 + epoch)
    order: np.ndarray = random.randperm(generator, len(session.data.train))
    return order


def share(indices: Sequence[int], rank: int, size: int) -> Sequence[int]:
    """The contiguous slice of ``indices`` for ``rank``; slice lengths differ by at most one."""
    start, stop = len(indices) * rank // size, len(indices) * (rank + 1) // size
    return indices[start:stop]


def to_device(batch: Nested, session: Session) -> Nested:
    """Move every tensor of ``batch``, through tuples, lists and dicts, to the session's device."""
    if isinstance(batch, Tensor):
        return batch.to(session.device)
    if isinstance(batch, dict):
        return {k: to_device(v, session) for k, v in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [to_device(v, session) for v in batch]
    return batch


def unpack(batch: Nested) -> tuple[Nested, Nested]:
    """Split a batch into ``(inputs, targets)``; TrainingError if it is not a pair."""
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    raise TrainingError(
        f"the loop trains on (input, target) pairs; the data set gave {_describe(batch)}. Return a pair"
        " for each sample."
    )


def _describe(batch: object) -> str:
    return f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else type(batch).__name__


def train_step(
    session: Session, synchronizer: GradientSynchronizer | None, indices: Sequence[int]
) -> tuple[float, float]:
    """Train on the global batch ``indices``; return the sum and count of this rank's losses.

    ``synchronizer`` averages gradients, unless ranks have parts of the model.
    """
    session.optimizer.zero_grad()
    if session.division is not None:
        total, count = session.division.accumulate(session, indices)
    elif session.shards is None:
        assert synchronizer is not None  # where no division of the model averages gradients
        total, count = _accumulate(session, synchronizer, indices)
    else:
        total, count = accumulate_shards(session, session.shards, indices)
    scaler, hook = session.scaler, host().hook.tenon_gradients_ready
    listening = bool(hook.get_hookimpls())
    if scaler is not None and (listening or session.config.clip_grad_norm is not None):
        scaler.unscale_(session.optimizer)
    if listening:
        hook(session=session, step=session.step)
    if session.config.clip_grad_norm is not None:
        if session.division is not None:
            session.division.clip(session.config.clip_grad_norm)
        else:
            clip_grad_norm_(session.model.parameters(), session.config.clip_grad_norm)
    if scaler is None:
        session.optimizer.step()
    else:
        scaler.step(session.optimizer)
        scaler.update()
    return total, count


def local_step(
    session: Session,
    batches: Sequence[tuple[Nested, Nested]],
    precision: Callable[[Session], AbstractContextManager[object]] = contextlib.nullcontext,
) -> Tensor:
    """Make a step of this rank alone on micro-batches, and return the last loss: what is captured as a graph.

    There are no ranks, no gradient scaler and no data set in it; ``precision`` is the context of the forward
    passes, ``autocasting`` or none.
    """
    session.optimizer.zero_grad()
    for inputs, targets in batches:
        with precision(session):
            result = session.loss(session.model(inputs), targets)
        loss: Tensor = result[0] / result[1] if isinstance(result, tuple) else result
        (loss / len(batches) if len(batches) > 1 else loss).backward()
    if session.config.clip_grad_norm is not None:
        clip_grad_norm_(session.model.parameters(), session.config.clip_grad_norm)
    session.optimizer.step()
    return loss


def _accumulate(
    session: Session, synchronizer: GradientSynchronizer, indices: Sequence[int]
) -> tuple[float, float]:
    own = share(indices, session.rank, session.size)
    micro_batches = [
        part
        for part in (share(own, i, session.config.accumulate) for i in range(session.config.accumulate))
        if len(part)
    ]
    # Any divisor is correct, as ``synchronize`` rescales by the true count; this one needs no rescaling if
    # all shares are equal. It is the same on all ranks because SyncBatchNorm sums gradients over them.
    divisor = len(indices) / session.size
    total, count = 0.0, 0.0
    for micro_batch in micro_batches:
        with keyed(seed=session.config.seed, step=session.step, samples=np.asarray(micro_batch)):
            loss_sum, counted = _loss(session, micro_batch)
        loss = loss_sum / divisor
        (loss if session.scaler is None else session.scaler.scale(loss)).backward()
        total += float(loss_sum.item())
        count += counted
    if session.config.data_parallel.sync_batch_norm:
        passes = min(session.config.accumulate, math.ceil(len(indices) / session.size))
        for _ in range(passes - len(micro_batches)):
            _run_empty_batch(session, indices[:1])
    synchronizer.synchronize(weight=divisor, count=count)
    return total, count


def accumulate_shards(session: Session, shards: ShardSteps, indices: Sequence[int]) -> tuple[float, float]:
    """Compute the gradients of a step in logical shards; rank 0 reports the losses of all ranks."""
    for shard in shards.split(indices, step=session.step, samples=indices):
        shards.backward(*_loss(session, shard))
    if shards.finish() is None:
        raise TrainingError(
            f"no target counts at step {session.step}: the mean over them is undefined. Check which"
            " targets the loss ignores, or increase batch_size."
        )
    return shards.totals if session.is_main else (0.0, 0.0)


def _loss(session: Session, samples: Sequence[int]) -> tuple[Tensor, float]:
    """Sum and count of the losses of the training samples at the indices ``samples``."""
    with reading("fetch"):
        inputs, targets = unpack(to_device(fetch(session.data.train, samples), session))
    with autocasting(session):
        loss_sum, counted = sum_and_count(session.loss, session.model(inputs), targets)
    if loss_sum.numel() != 1:
        raise TrainingError(
            f"the loss has shape {list(loss_sum.shape)}; it must be the mean over the batch, one number,"
            " or a pair (sum, count)."
        )
    return loss_sum, counted


def _run_empty_batch(session: Session, sample: Sequence[int]) -> None:
    """Run forward and backward on an empty batch, to join SyncBatchNorm's collectives of the other ranks."""
    inputs, _ = unpack(to_device(fetch(session.data.train, sample), session))
    run_without_samples(session, inputs)


def run_without_samples(session: Session, inputs: Nested) -> None:
    """Run forward and backward on none of the samples ``inputs``: other ranks' collectives need this one."""
    with (
        keyed(seed=session.config.seed, step=session.step, samples=np.empty(0, np.int64)),
        autocasting(session),
    ):
        outputs = session.model(_empty_like(inputs))
    sum(part.sum() for part in _tensors(outputs) if part.requires_grad).backward()


def _tensors(value: Nested) -> list[Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for each in value for tensor in _tensors(each)]
    return [value] if isinstance(value, Tensor) else []


def _empty_like(batch: Nested) -> Nested:
    """``batch`` with no samples."""
    if isinstance(batch, dict):
        return {k: _empty_like(v) for k, v in batch.items()}
    return [_empty_like(v) for v in batch] if isinstance(batch, (tuple, list)) else batch[:0]


def autocasting(session: Session) -> AbstractContextManager[object]:
    """The autocast context of the configuration, or a null context."""
    if session.config.autocast is None:
        return contextlib.nullcontext()
    return autocast(session.device.type, getattr(dtypes, session.config.autocast))


def make_scaler(config: RunConfig, device: Device) -> GradScaler | None:
    """The gradient scaler for float16, already initialized on every rank; None for other dtypes."""
    if config.autocast != "float16":
        return None
    scaler = ShardedGradScaler(device.type) if config.parallel.divides else GradScaler(device.type)
    scaler.scale(zeros((), device=device))  # initializes it: a rank may have no samples in the first step
    return scaler


@contextlib.contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Put ``model`` into evaluation mode; restore its mode on exit."""
    previous = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(previous)


def evaluate(session: Session, dataset: Source[object]) -> dict[str, float]:
    """Mean loss, and accuracy of classifiers, over every sample exactly once; collective."""
    indices = range(len(dataset))
    with evaluating(session.model), no_grad():
        if session.division is not None:
            totals = session.division.totals(session, dataset)
        elif session.shards is None:
            totals = _evaluate_part(session, dataset, share(indices, session.rank, session.size))
        else:
            whole = session.shards.sum_parts(
                indices, lambda part: _evaluate_part(session, dataset, part), step=session.step
            )
            totals = whole if session.is_main else [0.0] * len(whole)
    loss_sum, loss_count, correct, seen = totals
    sums, counts = reduce_sum_count([loss_sum, correct], [loss_count, seen], name="evaluation")
    result = {"loss": float(sums[0] / counts[0]) if counts[0] else float("nan")}
    if counts[1]:
        result["accuracy"] = float(sums[1] / counts[1])
    return result


def classifies(session: Session, targets: Tensor) -> bool:
    """Whether the loss and targets are those of a classifier, so that accuracy is defined."""
    return session.loss in MASKED and not targets.is_floating_point()


def _evaluate_part(session: Session, dataset: Source[object], part: Sequence[int]) -> list[float]:
    """Sum and count of the losses of ``part``, and the numbers of correct predictions and of targets."""
    sums = np.zeros(4)
    for start in range(0, len(part), session.config.eval_batch_size):
        samples = part[start : start + session.config.eval_batch_size]
        inputs, targets = unpack(to_device(fetch(dataset, samples), session))
        with autocasting(session):
            outputs = session.model(inputs)
        sums += tally(session, outputs, targets)
    return [float(value) for value in sums]


def tally(session: Session, outputs: Nested, targets: Tensor) -> np.ndarray:
    """Of a batch: sum and count of the losses, and the numbers of correct predictions and of targets."""
    with autocasting(session):
        loss_sum, count = sum_and_count(session.loss, outputs, targets)
    result = np.array([float(loss_sum.item()), count, 0.0, 0.0])
    if classifies(session, targets):
        result[2:] = float((outputs.argmax(1) == targets).sum().item()), count
    return result

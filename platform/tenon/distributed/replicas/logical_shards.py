"""Training whose bits do not depend on the number of ranks: ``deterministic="world"``.

A step's batch is cut into a fixed number of logical shards. Each is computed as if it were alone, whichever
rank does it: same shapes, same number of threads, random numbers that follow from seed, step and place in the
batch, buffers as the step began with them. What the shards give is added up as one tree over all of them, the
first levels by the rank, the others by the engine: who holds a branch makes no difference.

So ranks must hold whole branches: ``shards / ranks`` is a power of two, or there is one rank.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.config import DECIDED
from tenon.distributed.communication import staging
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.communication.reduction import ReduceOp, accumulator, combine
from tenon.distributed.replicas.buckets import Bucket
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.distributed.replicas.shard_buffers import ShardBuffers
from tenon.distributed.replicas.shard_sums import ShardSums
from tenon.engine.watchers import WATCHERS
from tenon.errors import CommunicatorError, UnsupportedError
from tenon.graph.suspension import SUSPENSION
from tenon.kernels.backend import backend_named
from tenon.nn.layers.sync_batch_norm import SyncBatchNorm
from tenon.nn.module import Module
from tenon.random import streams
from tenon.random.keys import keyed
from tenon.tensors.tensor import Tensor

SHARDS = 4
"""How many, unless somebody says."""
PROBED = 1 << 14
"""Numbers that are added up once to see whether an engine's sum is the tree."""
DESCRIBED = 4096
"""Bytes of a batch that ranks compare."""
NOT_COMPILED = (
    'deterministic="world": a compiled function is eager in its first calls, whose bits differ, and how many'
    " steps those are depends on the number of ranks. Use the function that was compiled, inside shards."
)


class LogicalShards:
    """Steps of ``model`` on batches cut into ``shards``; gradients come by ``synchronizer``.

    ``threads`` is how many the process computes with, from now on: sums are cut by it. ``seed`` is that of
    dropout and of the streams.
    """

    def __init__(
        self, model: Module, synchronizer: GradientSynchronizer, shards: int, threads: int, seed: int
    ) -> None:
        self._communicator = synchronizer.communicator
        check(shards, self._communicator.size, model)
        self._own = shards // self._communicator.size
        self.shards, self.threads, self.seed = shards, threads, seed
        self._agree()
        _check_engine(self._communicator, synchronizer.buckets[0])
        _use_threads(threads)
        synchronizer.reduce = self._reduce
        self._synchronizer = synchronizer
        self._sums = ShardSums(synchronizer, self._own)
        self._buffers = ShardBuffers(model, self._communicator)
        self._totals: list[np.ndarray] = []
        """For each shard of this rank: the sum of losses, what it counts, and whether it had samples."""
        self._batch = ""
        self._count = 1.0
        self._current: np.ndarray | None = None
        """Where those of the shard go that is being computed, of which a loss has been passed or not."""
        self._passed = False

    @property
    def inside(self) -> bool:
        """Whether a shard is being computed."""
        return self._current is not None

    def split(self, *parts: Any, step: int, samples: Any = None) -> Iterator[Any]:
        """This rank's shards of a batch, in turn.

        All ranks pass the whole batch: tensors, arrays or lists (such as the numbers of its samples), or
        dicts of them; and the number of the step. ``samples`` are the samples' numbers for dropout, by
        default their places in the batch.
        """
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.unsupported('deterministic="world"')
        if len(self._totals) == self._own:
            raise CommunicatorError('deterministic="world": the last step lacks its finish().')
        _use_threads(self.threads)  # Somebody may have set another number meanwhile.
        rows = _rows(parts)
        samples = np.arange(rows) if samples is None else np.asarray(samples)
        self._batch = f"step {step}: {rows} samples {_digest(parts[0])}"
        self._totals = []
        self._sums.restart()
        self._buffers.restart()
        for shard, start, stop in self._own_bounds(rows):
            totals = np.array([0.0, 0.0, stop > start])
            if stop > start:
                streams.begin(self.seed, step, shard)
                with self._computing(totals), keyed(seed=self.seed, step=step, samples=samples[start:stop]):
                    cut = [_cut(part, start, stop) for part in parts]
                    yield cut[0] if len(cut) == 1 else tuple(cut)
                if not self._passed:
                    raise CommunicatorError(
                        f'deterministic="world": shard {shard} ended without model.backward(loss, count),'
                        " which takes the place of loss.backward()."
                    )
            self._sums.add()
            self._buffers.add()
            self._totals.append(totals)
        streams.begin(self.seed, step, "end")

    def sum_parts(
        self, samples: Sequence[int], work: Callable[[Sequence[int]], Sequence[float]], *, step: int
    ) -> list[float]:
        """What ``work`` gives for this rank's shards of ``samples``, summed; sums over ranks go on alike."""
        found = []
        for shard, start, stop in self._own_bounds(len(samples)):
            streams.begin(self.seed, step, "part", shard)
            with self._computing(None):
                found.append(np.array(work(samples[start:stop]), np.float64))
        streams.begin(self.seed, step, "parts")
        combine(found, ReduceOp.SUM, total := np.empty_like(found[0]))
        return [float(number) for number in total]

    def _own_bounds(self, rows: int) -> Iterator[tuple[int, int, int]]:
        for shard in range(self._own * self._communicator.rank, self._own * (self._communicator.rank + 1)):
            yield shard, rows * shard // self.shards, rows * (shard + 1) // self.shards

    def backward(self, loss: Tensor, count: Any) -> None:
        """Add the gradients of ``loss``, which is a sum over ``count`` samples (or unmasked targets)."""
        if self._current is None:
            raise CommunicatorError('deterministic="world": backward belongs into the loop over shards.')
        number = float(count)
        if not number >= 0:
            raise CommunicatorError(f"count={count} must be a number of samples, 0 or more.")
        loss.backward()
        self._passed = True
        self._current[:2] += float(loss.item()), number

    def own_totals(self) -> tuple[float, float]:
        """The sum of losses and the count of this rank's shards; sums of them over ranks are the tree too."""
        total = np.empty(3)
        combine(self._totals, ReduceOp.SUM, total)
        return float(total[0]), float(total[1])

    def finish(self) -> float | None:
        """Make the gradients those of the mean over all samples of the step; returns that mean.

        All ranks call it after the loop. None, and no gradients, where nothing was counted.
        """
        if len(self._totals) != self._own:
            raise CommunicatorError(
                f'deterministic="world": finish() after {len(self._totals)} of this rank\'s {self._own}'
                " shards. Let the loop over shards end by itself."
            )
        shards, self._totals = self._totals, []
        active = [bool(shard[2]) for shard in shards]
        sums = np.empty(3)
        combine(shards, ReduceOp.SUM, sums)
        mine = np.array([*sums, any(active), *self._buffers.changed()])
        total, count, used, ranks, *changed = self._communicator.all_reduce(mine, name=self._batch).wait()
        if used:
            self._buffers.finish(np.array(changed), active, int(used))
        if count == 0:
            return None
        self._count = count
        self._sums.deliver()
        self._synchronizer.synchronize(taking_part=int(ranks))
        return float(total / count)

    @contextlib.contextmanager
    def _computing(self, totals: np.ndarray | None) -> Iterator[None]:
        """One shard, whose losses go into ``totals``; bits of compiled functions would not be its own."""
        self._current, SUSPENSION.reason, self._passed = totals, NOT_COMPILED, False
        try:
            yield
        finally:
            self._current = SUSPENSION.reason = None

    def _reduce(self, bucket: Bucket) -> _Mean:
        work = self._communicator.start_all_reduce(bucket.flat, "sum", name=bucket.name)
        return _Mean(work, self._count)

    def _agree(self) -> None:
        mine = encode({"shards": self.shards, "threads": self.threads, "seed": self.seed})
        everyone = [decode(one) for one in self._communicator.all_gather_bytes(mine, name="logical shards")]
        for key in everyone[0]:
            values = [one[key] for one in everyone]
            if len(set(values)) > 1:
                advice = (
                    "Call tenon.manual_seed with one number on all ranks before."
                    if key == "seed"
                    else "Pass the same."
                )
                raise CommunicatorError(f'deterministic="world": ranks have {key}={values}. {advice}')


class _Mean:
    """A sum that is divided when it is there."""

    def __init__(self, work: Any, count: float) -> None:
        self._work = work
        self._count = count

    def wait(self) -> np.ndarray:
        total: np.ndarray = self._work.wait()
        with np.errstate(all="ignore"):
            np.divide(total, total.dtype.type(self._count), out=total)
        return total


def check(shards: int, ranks: int, model: Module) -> None:
    """Raise unless each of ``ranks`` gets one branch of the tree over ``shards``, and ``model`` suits."""
    fitting = [r for r in range(1, shards + 1) if shards % r == 0 and (r == 1 or _is_power(shards // r))]
    if ranks not in fitting:
        advice = f"Start {' or '.join(map(str, fitting))} ranks, or choose another" if fitting else "Choose a"
        raise CommunicatorError(
            f"shards={shards} cannot be shared by {ranks} ranks: each takes the same number, a power of two."
            f" {advice} number of shards; it decides the result."
        )
    for name, module in model.named_modules():
        if isinstance(module, SyncBatchNorm):
            raise UnsupportedError(
                f'deterministic="world": {name!r} is SyncBatchNorm, whose statistics are those of all ranks'
                " at a time. Use BatchNorm: it normalises each logical shard."
            )
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise UnsupportedError(
                f'deterministic="world" computes on the CPU, and parameter {name!r} is on'
                f" {parameter.device}. Move the model to the CPU, or leave deterministic out."
            )
        dtype = parameter.raw.dtype
        if accumulator(dtype) != dtype:
            raise UnsupportedError(
                f'deterministic="world": parameter {name!r} is {dtype}, and sums of so few bits would be'
                " rounded on the way. Keep parameters in float32, and compute in autocast."
            )


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _check_engine(communicator: Communicator, bucket: Bucket) -> None:
    """Raise unless the engine adds up as a tree over the ranks, seen at the start of the first bucket."""
    flat = bucket.flat[:PROBED]
    generator = np.random.default_rng(communicator.rank)
    flat[...] = generator.standard_normal(flat.size) * np.exp2(generator.integers(-9, 9, flat.size))
    everyone = communicator.all_gather(flat, name="numbers to add up").wait()
    expected = np.empty_like(flat)
    combine(list(everyone), ReduceOp.SUM, expected)
    found = communicator.start_all_reduce(flat, "sum", name="numbers added up").wait()
    same = found.tobytes() == expected.tobytes()
    flat[...] = 0
    if not same:
        raise CommunicatorError(
            f'deterministic="world": the communicator {communicator.name!r} does not add up as a tree over'
            " the ranks, ((0, 1), (2, 3)), as several nodes with a number of ranks each that is no power of"
            " two do not. Use another number of ranks on a node, or TENON_COMMUNICATOR=mpi-messages."
        )


def _use_threads(threads: int) -> None:
    backend = backend_named("cpu")
    if threads < 1:
        raise CommunicatorError(f"threads={threads} must be at least 1.")
    if backend.threads() != threads:
        backend.set_threads(threads)
        DECIDED["threads"] = 'deterministic="world"'


def _rows(parts: tuple[Any, ...]) -> int:
    lengths = {length for part in parts for length in _lengths(part)}
    if len(lengths) != 1:
        raise CommunicatorError(
            f'deterministic="world": the parts of the batch hold {sorted(lengths) or "no"} samples. Pass'
            " tensors, arrays or lists of the same length, the samples along the first axis."
        )
    return lengths.pop()


def _lengths(part: Any) -> set[int]:
    if isinstance(part, Mapping):
        return {length for value in part.values() for length in _lengths(value)}
    return {len(part)}


def _cut(part: Any, start: int, stop: int) -> Any:
    if isinstance(part, Mapping):
        return {key: _cut(value, start, stop) for key, value in part.items()}
    return part[start:stop]


def _digest(part: Any) -> str:
    """A few digits that differ where batches begin differently."""
    while isinstance(part, Mapping):
        part = next(iter(part.values()))
    if isinstance(part, Tensor):
        part = staging.to_host(part.detach())
    if isinstance(part, np.ndarray):
        rows = max(1, DESCRIBED * len(part) // max(1, part.nbytes))
        data = part[:rows].tobytes()
    else:
        data = repr(part[:DESCRIBED]).encode()
    return f"{zlib.crc32(data[:DESCRIBED]):08x}"

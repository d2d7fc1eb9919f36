"""Training whose bits do not depend on the number of ranks: ``deterministic="world"``.

The batch of a step is split into a fixed number of logical shards. A shard is computed independently of the
others and of the rank that computes it: with the same shapes and number of threads, random numbers that
depend on seed, step and position in the batch only, and the buffers of the beginning of the step. The results
of the shards are summed as one tree over all of them, the lower levels by the ranks, the upper ones by the
engine, so that the sum does not depend on which rank computes a branch.

Ranks must compute whole branches: ``shards / ranks`` is a power of two, or there is one rank.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeAlias

import numpy as np

from tenon.config import DECIDED
from tenon.distributed.communication import staging
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.communication.reduction import ReduceOp, accumulator, combine
from tenon.distributed.replicas.buckets import Bucket, Reduction
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

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SHARDS = 4
"""The default number of shards."""
PROBED = 1 << 14
"""The number of elements that are summed once to check that an engine sums as a tree."""
DESCRIBED = 4096
"""The number of bytes of a batch that ranks compare."""
#: A part of a batch: a tensor, array or list with one item per sample, or a dict of such parts. ``split``
#: yields the types that the caller passes.
Part: TypeAlias = Any
NOT_COMPILED = (
    'deterministic="world": a compiled function is eager in its first calls, whose bits differ, and how many'
    " steps those are depends on the number of ranks. Use the function that was compiled, inside shards."
)


class LogicalShards:
    """Steps of ``model`` on batches split into ``shards``, with the gradients of ``synchronizer``.

    ``threads`` becomes the number of threads of the process, as sums in kernels are split by it. ``seed``
    seeds dropout and the sequential generators.
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
        synchronizer.replicated = True
        self._synchronizer = synchronizer
        self._sums = ShardSums(synchronizer, self._own)
        self._buffers = ShardBuffers(model, self._communicator)
        self._totals: list[np.ndarray] = []
        """For each shard of this rank: the sum of losses, the number of samples, and whether it had any."""
        self._batch = ""
        self._count = 1.0
        self._current: np.ndarray | None = None
        """The totals of the shard that is being computed."""
        self._passed = False
        """Whether a loss of that shard has been passed to ``backward``."""

    @property
    def inside(self) -> bool:
        """Whether a shard is being computed."""
        return self._current is not None

    def split(self, *parts: Part, step: int, samples: ArrayLike | None = None) -> Iterator[Part]:
        """Iterate over this rank's shards of a batch, as tuples if there are several parts.

        All ranks pass the whole batch: tensors, arrays or lists (such as the indices of its samples), or
        dicts of them; and the number of the step. ``samples`` are the indices of the samples for dropout, by
        default their positions in the batch.
        """
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.unsupported('deterministic="world"')
        if len(self._totals) == self._own:
            raise CommunicatorError('deterministic="world": the last step lacks its finish().')
        _use_threads(self.threads)  # in case the program has set another number since the last step
        rows = _rows(parts)
        indices = np.arange(rows) if samples is None else np.asarray(samples)
        self._batch = f"step {step}: {rows} samples {_digest(parts[0])}"
        self._totals = []
        self._sums.restart()
        self._buffers.restart()
        for shard, start, stop in self._own_bounds(rows):
            totals = np.array([0.0, 0.0, stop > start])
            if stop > start:
                streams.begin(self.seed, step, shard)
                with self._computing(totals), keyed(seed=self.seed, step=step, samples=indices[start:stop]):
                    shards = [_slice(part, start, stop) for part in parts]
                    yield shards[0] if len(shards) == 1 else tuple(shards)
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
        """The sum of ``work(shard)`` over this rank's shards of ``samples``, to be summed over the ranks."""
        results = []
        for shard, start, stop in self._own_bounds(len(samples)):
            streams.begin(self.seed, step, "part", shard)
            with self._computing(None):
                results.append(np.array(work(samples[start:stop]), np.float64))
        streams.begin(self.seed, step, "parts")
        combine(results, ReduceOp.SUM, total := np.empty_like(results[0]))
        return [float(number) for number in total]

    def _own_bounds(self, rows: int) -> Iterator[tuple[int, int, int]]:
        """The number, first row and end of each of this rank's shards of ``rows`` rows."""
        for shard in range(self._own * self._communicator.rank, self._own * (self._communicator.rank + 1)):
            yield shard, rows * shard // self.shards, rows * (shard + 1) // self.shards

    def backward(self, loss: Tensor, count: SupportsFloat) -> None:
        """Add the gradients of ``loss``, a sum over ``count`` samples (or unmasked targets) of the shard."""
        if self._current is None:
            raise CommunicatorError('deterministic="world": call backward inside the loop over shards.')
        number = float(count)
        if not number >= 0:
            raise CommunicatorError(f"count={count} must be a number of samples, 0 or more.")
        loss.backward()
        self._passed = True
        self._current[:2] += float(loss.item()), number

    def own_totals(self) -> tuple[float, float]:
        """The sum of losses and the count of this rank's shards, to be summed over the ranks."""
        total = np.empty(3)
        combine(self._totals, ReduceOp.SUM, total)
        return float(total[0]), float(total[1])

    def finish(self) -> float | None:
        """Make the gradients those of the mean over all samples of the step, and return that mean.

        All ranks call this after the loop over shards. If the count of all ranks is 0, gradients become None
        and the result is None.
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
        own = np.array([*sums, any(active), *self._buffers.changed()])
        total, count, used, ranks, *changed = self._communicator.all_reduce(own, name=self._batch).wait()
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
        """Inside, a shard is computed: losses are added to ``totals``, and compiled functions raise."""
        self._current, SUSPENSION.reason, self._passed = totals, NOT_COMPILED, False
        try:
            yield
        finally:
            self._current = SUSPENSION.reason = None

    def _reduce(self, bucket: Bucket) -> _Mean:
        """Start the mean of ``bucket`` over all samples; see ``buckets.Reduce``."""
        work = self._communicator.start_all_reduce(bucket.flat, "sum", name=bucket.name)
        return _Mean(work, self._count)

    def _agree(self) -> None:
        """Raise on all ranks unless they have equal options."""
        own = encode({"shards": self.shards, "threads": self.threads, "seed": self.seed})
        options = [decode(each) for each in self._communicator.all_gather_bytes(own, name="logical shards")]
        for key in options[0]:
            values = [each[key] for each in options]
            if len(set(values)) > 1:
                advice = (
                    "Call tenon.manual_seed with one number on all ranks before."
                    if key == "seed"
                    else "Pass the same."
                )
                raise CommunicatorError(f'deterministic="world": ranks have {key}={values}. {advice}')


class _Mean:
    """The quotient of a sum in progress and ``count``."""

    def __init__(self, work: Reduction, count: float) -> None:
        self._work = work
        self._count = count

    def wait(self) -> np.ndarray:
        total = self._work.wait()
        with np.errstate(all="ignore"):
            np.divide(total, total.dtype.type(self._count), out=total)
        return total


def check(shards: int, ranks: int, model: Module) -> None:
    """Raise unless each of ``ranks`` can compute one branch of the tree, and ``model`` can be trained so."""
    suitable = [
        r for r in range(1, shards + 1) if shards % r == 0 and (r == 1 or _is_power_of_two(shards // r))
    ]
    if ranks not in suitable:
        numbers = " or ".join(map(str, suitable))
        advice = f"Start {numbers} ranks, or choose another" if suitable else "Choose a"
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
                f'deterministic="world": parameter {name!r} is {dtype}, whose partial sums would be rounded.'
                " Keep parameters in float32, and compute in autocast."
            )


def _is_power_of_two(number: int) -> bool:
    """Whether ``number`` is a power of two."""
    return number & (number - 1) == 0


def _check_engine(communicator: Communicator, bucket: Bucket) -> None:
    """Raise unless the engine sums as a tree over the ranks, tried on random numbers in ``bucket``."""
    flat = bucket.flat[:PROBED]
    generator = np.random.default_rng(communicator.rank)
    flat[...] = generator.standard_normal(flat.size) * np.exp2(generator.integers(-9, 9, flat.size))
    rows = communicator.all_gather(flat, name="numbers to add up").wait()
    expected = np.empty_like(flat)
    combine(list(rows), ReduceOp.SUM, expected)
    result = communicator.start_all_reduce(flat, "sum", name="numbers added up").wait()
    same = result.tobytes() == expected.tobytes()
    flat[...] = 0
    if not same:
        raise CommunicatorError(
            f'deterministic="world": the communicator {communicator.name!r} does not add up as a binary tree'
            " over the ranks, ((0, 1), (2, 3)). Several nodes do so only if each has a power of two of ranks:"
            " use another number of ranks on a node, or TENON_COMMUNICATOR=mpi-messages."
        )


def _use_threads(threads: int) -> None:
    """Set the number of threads that the CPU backend computes with."""
    backend = backend_named("cpu")
    if threads < 1:
        raise CommunicatorError(f"threads={threads} must be at least 1.")
    if backend.threads() != threads:
        backend.set_threads(threads)
        DECIDED["threads"] = 'deterministic="world"'


def _rows(parts: tuple[Part, ...]) -> int:
    """The number of samples in a batch; raises unless all parts have the same."""
    lengths = {length for part in parts for length in _lengths(part)}
    if len(lengths) != 1:
        raise CommunicatorError(
            f'deterministic="world": the parts of the batch hold {sorted(lengths) or "no"} samples. Pass'
            " tensors, arrays or lists of the same length, the samples along the first axis."
        )
    return lengths.pop()


def _lengths(part: Part) -> set[int]:
    if isinstance(part, Mapping):
        return {length for value in part.values() for length in _lengths(value)}
    return {len(part)}


def _slice(part: Part, start: int, stop: int) -> Part:
    """Samples ``start`` to ``stop`` of ``part``."""
    if isinstance(part, Mapping):
        return {key: _slice(value, start, stop) for key, value in part.items()}
    return part[start:stop]


def _digest(part: Part) -> str:
    """A hash of the first ``DESCRIBED`` bytes of ``part``, or of its first value if it is a dict."""
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

"""Steps of training on logical shards, whatever the way in which ranks share model and gradients.

The batch of a step is split into a fixed number of logical shards. A shard is computed independently of the
others and of the rank that computes it: with the same shapes and number of threads, random numbers that
depend on seed, step and position in the batch only, and the buffers of the beginning of the step. The results
of the shards are summed as one tree over all of them (``shard_order.py``), so that the sum does not depend on
which rank computes a branch.

``logical_shards.py`` sums the gradients of data parallel, ``fsdp/sharded_steps.py`` those of ``fully_shard``.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, TypeAlias

import numpy as np

from tenon.config import DECIDED
from tenon.distributed.communication import staging
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.communication.reduction import accumulator
from tenon.distributed.replicas.shard_buffers import ShardBuffers
from tenon.distributed.replicas.shard_order import ShardOrder
from tenon.engine.accumulate import CHANGED_EAGERLY
from tenon.engine.types import NumpyDType
from tenon.engine.watchers import WATCHERS
from tenon.errors import CommunicatorError, UnsupportedError
from tenon.graph.stance import STANCE
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


class ShardGradients(Protocol):
    """The gradients of a step, summed over the shards."""

    def restart(self) -> None:
        """Reset the sums and the gradients before the first shard of a step."""

    def add(self) -> None:
        """Take the gradients of the last computed shard."""

    def present(self) -> list[float]:
        """Numbers to be summed over all ranks for ``finish``."""

    def finish(self, count: float, ranks: int, present: np.ndarray) -> None:
        """Make the gradients the sums over all shards, divided by ``count``.

        ``ranks`` is the number of ranks that had samples, ``present`` the sums of those numbers.
        """


class ShardSteps:
    """Steps of ``model`` on batches split into shards in ``order``, of which ``gradients`` are summed.

    ``threads`` becomes the number of threads of the process, as sums in kernels are split by it. ``seed``
    seeds dropout and the sequential generators.
    """

    least = 0
    """The number of samples that every shard needs."""

    def __init__(
        self, model: Module, order: ShardOrder, gradients: ShardGradients, threads: int, seed: int
    ) -> None:
        self._order, self._gradients = order, gradients
        self.shards, self.threads, self.seed = order.shards, threads, seed
        self._agree()
        _use_threads(threads)
        self._buffers = ShardBuffers(model, order)
        self._totals: list[np.ndarray] = []
        """For each shard of this rank: the sum of losses, the number of samples, and whether it had any."""
        self.totals = (0.0, 0.0)
        """The sum of losses and the count of all ranks in the last step."""
        self._batch = ""
        self._current: np.ndarray | None = None
        """The totals of the shard that is being computed."""
        self._passed = False
        """Whether a loss of that shard has been passed to ``backward``."""
        for name, parameter in model.named_parameters():
            parameter.__dict__[CHANGED_EAGERLY] = (
                f'parameter {name!r} of a model with deterministic="world", and programs round differently'
            )
        self._model: Module | None = model
        """The model until its buffers are compared at the first step."""

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
        if len(self._totals) == self._order.own:
            raise CommunicatorError('deterministic="world": the last step lacks its finish().')
        if self._model is not None:
            self._compare_buffers(self._model)
            self._model = None
        _use_threads(self.threads)  # in case the program has set another number since the last step
        rows = _rows(parts)
        if rows < self.least * self.shards:
            raise CommunicatorError(
                f'deterministic="world": step {step} has {rows} samples for {self.shards} shards. A sharded'
                " model needs some in each, as all ranks compute it together. Leave the batch out, or wrap"
                " the model with fewer shards."
            )
        indices = np.arange(rows) if samples is None else np.asarray(samples)
        self._batch = f"step {step}: {rows} samples {_digest(parts[0])}"
        self._totals = []
        self._gradients.restart()
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
            self._gradients.add()
            self._buffers.add()
            self._totals.append(totals)
        streams.begin(self.seed, step, "end")

    def _own_bounds(self, rows: int) -> Iterator[tuple[int, int, int]]:
        """The number, first row and end of each of this rank's shards of ``rows`` rows."""
        for shard in self._order.numbers:
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

    def finish(self) -> float | None:
        """Make the gradients those of the mean over all samples of the step, and return that mean.

        All ranks call this after the loop over shards. If the count of all ranks is 0, gradients become None
        and the result is None.
        """
        if len(self._totals) != self._order.own:
            raise CommunicatorError(
                f'deterministic="world": finish() after {len(self._totals)} of this rank\'s {self._order.own}'
                " shards. Let the loop over shards end by itself."
            )
        shards, self._totals = self._totals, []
        active = [bool(shard[2]) for shard in shards]
        present = self._gradients.present()
        once = np.array([any(active), *present])  # numbers of this rank go with its first shard
        parts = [
            np.array([*totals, *(once if i == 0 else np.zeros_like(once)), *changed], np.float64)
            for i, (totals, changed) in enumerate(zip(shards, self._buffers.changed(), strict=True))
        ]
        total, count, used, ranks, *rest = self._order.total(parts, self._batch)
        if used:
            self._buffers.finish(np.array(rest[len(present) :]), active, int(used))
        self.totals = float(total), float(count)
        if count == 0:
            return None
        self._gradients.finish(float(count), int(ranks), np.array(rest[: len(present)]))
        return float(total / count)

    def sum_parts(
        self, samples: Sequence[int], work: Callable[[Sequence[int]], Sequence[float]], *, step: int
    ) -> list[float]:
        """The sum of ``work(shard)`` over all shards of ``samples``, on all ranks; collective."""
        results = []
        for shard, start, stop in self._own_bounds(len(samples)):
            streams.begin(self.seed, step, "part", shard)
            with self._computing(None):
                results.append(np.array(work(samples[start:stop]), np.float64))
        streams.begin(self.seed, step, "parts")
        return [float(number) for number in self._order.total(results, f"parts of step {step}")]

    @contextlib.contextmanager
    def _computing(self, totals: np.ndarray | None) -> Iterator[None]:
        """Inside, a shard is computed: losses are added to ``totals``, and compiled functions run eagerly, as
        when they would be compiled depends on the number of calls."""
        self._current, self._passed = totals, False
        try:
            with STANCE.forced_eager():
                yield
        finally:
            self._current = None

    def _compare_buffers(self, model: Module) -> None:
        """Raise ``CommunicatorError`` on all ranks unless they have equal buffers."""
        named = list(model.named_buffers())
        own = b"".join(
            hashlib.blake2b(staging.to_host(buffer).tobytes(), digest_size=8).digest() for _, buffer in named
        )
        for group in self._order.groups:
            every = group.all_gather_bytes(own, name="buffers of all ranks")
            for i, (name, _) in enumerate(named):
                if len({digests[8 * i : 8 * i + 8] for digests in every}) > 1:
                    raise CommunicatorError(
                        f'deterministic="world": ranks have different values of buffer {name!r} before the'
                        " first step. Seed all ranks alike before the model is built, load one state_dict,"
                        " and warm up with the same data."
                    )

    def _agree(self) -> None:
        """Raise on all ranks unless they have equal options."""
        own = encode({"shards": self.shards, "threads": self.threads, "seed": self.seed})
        for group in self._order.groups:
            self._compare([decode(each) for each in group.all_gather_bytes(own, name="logical shards")])

    @staticmethod
    def _compare(options: list[dict[str, int]]) -> None:
        for key in options[0]:
            values = [each[key] for each in options]
            if len(set(values)) > 1:
                advice = (
                    "Call tenon.manual_seed with one number on all ranks before."
                    if key == "seed"
                    else "Pass the same."
                )
                raise CommunicatorError(f'deterministic="world": ranks have {key}={values}. {advice}')


def check_modules(model: Module) -> None:
    """Raise ``UnsupportedError`` for modules whose results depend on the ranks."""
    for name, module in model.named_modules():
        if isinstance(module, SyncBatchNorm):
            raise UnsupportedError(
                f'deterministic="world": {name!r} is SyncBatchNorm, whose statistics are those of all ranks'
                " at a time. Use BatchNorm: it normalises each logical shard."
            )


def check_parameter(name: str, parameter: Tensor, dtype: NumpyDType, advice: str) -> None:
    """Raise ``UnsupportedError`` unless sums of gradients of ``parameter`` in ``dtype`` are not rounded."""
    if parameter.device.type != "cpu":
        raise UnsupportedError(
            f'deterministic="world" computes on the CPU, and parameter {name!r} is on'
            f" {parameter.device}. Move the model to the CPU, or leave deterministic out."
        )
    if accumulator(dtype) != dtype:
        raise UnsupportedError(
            f'deterministic="world": parameter {name!r} is {dtype}, whose partial sums would be rounded.'
            f" {advice}"
        )


def numbers_to_sum(rank: int, dtype: NumpyDType, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of many magnitudes, whose sum over the ranks shows in which order an engine adds."""
    generator = np.random.default_rng(rank)
    numbers = generator.standard_normal(shape) * np.exp2(generator.integers(-9, 9, shape))
    return numbers.astype(dtype)


def refuse_engine(name: str) -> None:
    """Raise ``CommunicatorError`` for an engine that has added in another order."""
    raise CommunicatorError(
        f'deterministic="world": the communicator {name!r} does not add up as a binary tree'
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

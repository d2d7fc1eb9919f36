"""Average gradients over ranks: the part of data parallel that needs no wrapper module.

A training loop calls ``synchronize`` after backward; ``DistributedDataParallel`` fills buckets from hooks
during backward and calls it at the end. Buckets are reduced in the order of the plan, which is the same on
every rank whatever its backward did. Between nodes a bucket is reduced as soon as it and its predecessors are
full, overlapping backward; inside a node at the end of backward, as overlap never paid off there (the ranks
compute on the same cores).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.communication import staging
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.world import get_communicator
from tenon.distributed.messages import identity
from tenon.distributed.replicas import buckets
from tenon.distributed.replicas.broadcast import broadcast_tensors
from tenon.distributed.replicas.last_step import LastStep
from tenon.distributed.replicas.replica_check import ReplicaCheck, interval
from tenon.engine.watchers import WATCHERS
from tenon.errors import CommunicatorError, TenonWarning
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module

DEFAULT_CAP_MB = 25.0


class GradientSynchronizer:
    """Averages the gradients of ``named_parameters`` over the ranks of ``communicator``.

    Construction compares the models of all ranks and broadcasts the parameters of rank 0, unless
    ``broadcast=False``. Parameters that do not require grad are broadcast, but not averaged. ``static``
    determines the parameters that have gradients only once; ``warn=False`` silences the warning about unused
    ones. ``in_use_order`` builds the buckets after the first backward, in the order in which ``fill`` was
    called. ``module`` owns the parameters; if given, ranks compare its layers as well. ``compare_weights`` is
    the number of steps after which ranks compare their weights, by a checksum in the message of a step; by
    default 100, or ``TENON_COMPARE_WEIGHTS``, and 0, which means never, without ``broadcast``.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        communicator: Communicator | None = None,
        *,
        bucket_cap_mb: float | None = None,
        broadcast: bool = True,
        static: bool = False,
        warn: bool = True,
        in_use_order: bool = False,
        module: Module | None = None,
        compare_weights: int | None = None,
    ) -> None:
        self.communicator = get_communicator() if communicator is None else communicator
        if not isinstance(self.communicator, Communicator):
            raise CommunicatorError(
                f"process_group is {self.communicator!r}, of which this rank is not a member, or which is"
                f" not a group. Make data-parallel models on the ranks of the group only."
            )
        cap = DEFAULT_CAP_MB if bucket_cap_mb is None else bucket_cap_mb
        if isinstance(cap, (bool, str)) or not 0 < cap < math.inf:
            raise CommunicatorError(
                f"bucket_cap_mb={cap!r} must be positive and finite; torch's default is 25."
            )
        self.bucket_cap_mb = float(cap)
        named = list(named_parameters)
        for name, parameter in named:
            staging.check_tensor(parameter, "GradientSynchronizer", f"parameter {name!r}")
        self.parameters = [(name, tensor) for name, tensor in named if tensor.requires_grad]
        self.static = static
        layers = [] if module is None else identity.structure(module, [tensor for _, tensor in named])
        every = 0 if compare_weights is None and not broadcast else interval(compare_weights)
        options = [f"bucket_cap_mb={self.bucket_cap_mb:g}", f"compare_weights={every}"]
        buckets.agree(self.communicator, named, [*options, *layers])
        self.communicator.models += 1
        self.model = f"model {self.communicator.models}"
        self.replicas = ReplicaCheck(named, every if self.communicator.size > 1 else 0, self.model)
        self.replicated = False
        """Whether ranks have equal weights although ``reduce`` is set."""
        self.reduce: buckets.Reduce | None = None
        """A communication hook that replaces the plain mean of a bucket."""
        self.scale = 1.0
        """A factor for the means, to be set before backward."""
        self.buckets: list[buckets.Bucket] = []
        self._numbers = {id(tensor): number for number, (_, tensor) in enumerate(self.parameters)}
        self.stepped = LastStep(self._numbers)
        """The options of the last optimizer step of these parameters, which ranks compare."""
        if self.communicator.size > 1:
            self.stepped.listen()
        self._all_used = np.ones(len(self.parameters), np.int32)
        self._slots: dict[int, tuple[buckets.Bucket, int]] = {}
        self._arrivals: dict[int, None] | None = {} if in_use_order else None
        self._started = 0
        self._full: set[int] = set()
        if not in_use_order:
            self._plan(range(len(self.parameters) - 1, -1, -1))
        self._static_used: np.ndarray | None = None
        self._shares = np.empty(0)
        self._static_counts: list[int] | None = None
        self._warned = not warn
        if broadcast:
            tensors = [tensor for _, tensor in named]
            broadcast_tensors(tensors, self.communicator, name=f"parameters of {self.model}")

    def _plan(self, order: Sequence[int]) -> None:
        self.buckets = buckets.plan(self.parameters, self.bucket_cap_mb, self.communicator, order, self.model)
        self._slots = {
            id(slot.parameter): (bucket, index)
            for bucket in self.buckets
            for index, slot in enumerate(bucket.slots)
        }

    def restart(self) -> None:
        """Reset the buckets for a new backward pass; the last one may have failed midway."""
        for bucket in self.buckets:
            if bucket.work is not None:
                bucket.work.wait()
            bucket.restart()
        self._started = 0
        self._full.clear()

    def fill(self, parameter: Tensor) -> None:
        """Copy a new gradient into its bucket if reductions overlap; start each bucket that is complete."""
        if (self.communicator.size == 1 and self.reduce is None) or staging.recording():
            return
        if self._arrivals is not None:
            self._arrivals[self._numbers[id(parameter)]] = None
            return
        if not self.communicator.overlaps or self.reduce is not None:
            return
        bucket, index = self._slots[id(parameter)]
        if bucket.fill(index):
            self._full.add(id(bucket))
            while self._started < len(self.buckets) and id(self.buckets[self._started]) in self._full:
                self.buckets[self._started].start(self.scale, note=self._note())
                self._started += 1

    def slot_of(self, parameter: Tensor) -> tuple[buckets.Bucket, int] | None:
        """The bucket of ``parameter`` and its index there; None on GPUs and before buckets are built."""
        if type(parameter.raw) is not np.ndarray or self.communicator.size == 1:
            return None
        return self._slots.get(id(parameter))

    def synchronize(
        self,
        weight: float | None = None,
        count: float | None = None,
        *,
        taking_part: int | None = None,
    ) -> None:
        """Replace every gradient by its mean over the ranks; collective.

        A parameter without a gradient counts as zero on this rank; where no rank has one, it stays None.
        With ``weight``, the mean over ranks is weighted: pass the number of samples behind this rank's
        (mean) gradient, and uneven batches count every sample once. With ``count`` too, the weighted sum is
        divided by the counts of all ranks: ``weight=1, count=samples`` suits gradients of a sum of losses.
        ``taking_part`` is the number of ranks that still have data, in a ``Join`` context.
        """
        if staging.recording():
            self._record(weight, count)
            return
        share = self.scale
        if taking_part is not None:
            self.stepped.forget()
        if weight is not None:
            factor, active = self._share(weight, weight if count is None else count)
            share *= factor
            taking_part = active if taking_part is None else taking_part
        if self.communicator.size == 1 and self.reduce is None and share == 1.0:
            return
        left = taking_part is not None and taking_part < self.communicator.size  # a Join block
        taking_part = self.communicator.size if taking_part is None else taking_part
        due = self._compares(left)
        if self._counts_in_buckets:
            if self.static and taking_part == self.communicator.size:
                self._check_unchanged(self._local_used())
            self._plan_in_use_order()
            checks = self.replicas.bits() if due else None
            for bucket in self.buckets:
                first = checks if bucket is self.buckets[0] else None
                bucket.start(share, note=self.stepped.text, count_used=True, checks=first)
            used = self._used_of_buckets()
            self._shares = self.buckets[0].checked()
        else:
            used = self._count_used(taking_part, due)
            self._plan_in_use_order()
            for bucket in self.buckets[self._started :]:
                if any(used[slot.number] for slot in bucket.slots):
                    bucket.start(share, self.reduce, self._note())
        for bucket in self.buckets:
            bucket.finish(used)
        self._started = 0
        self._full.clear()
        if due:
            self.replicas.compare(self._shares, self.communicator)
        self._warn_if_unused(used, taking_part)

    def _compares(self, left: bool) -> bool:
        """Count a step; whether ranks compare weights in it: not while some have ``left`` a Join block."""
        due = self.replicas.due()
        return due and (self.replicated or (self.reduce is None and not left))

    def synchronize_without_gradients(self, taking_part: int) -> None:
        """``synchronize`` on a rank without data: it contributes zeros and gets the mean of the others."""
        for _, parameter in self.parameters:
            parameter.grad = None
        self.restart()
        self.synchronize(taking_part=taking_part)

    @property
    def began(self) -> bool:
        """Whether a backward pass has completed."""
        return self._arrivals is None

    @property
    def _counts_in_buckets(self) -> bool:
        """Whether the messages of buckets include which parameters are used, in place of another message.

        False if buckets start during backward, when that is unknown, and with hooks, which expect gradients
        only.
        """
        return self.reduce is None and not self.communicator.overlaps

    def _used_of_buckets(self) -> list[int]:
        """For every parameter the number of ranks with a gradient, from the messages of the buckets."""
        used: dict[int, int] = {}
        for bucket in self.buckets:
            used.update(bucket.used())
        return [used[number] for number in range(len(used))]

    def _local_used(self) -> np.ndarray:
        """For every parameter whether this rank has a gradient, as int32."""
        if any(parameter._grad is None for _, parameter in self.parameters):
            return np.array([parameter._grad is not None for _, parameter in self.parameters], np.int32)
        return self._all_used

    def _count_used(self, taking_part: int, due: bool) -> list[int]:
        """For every parameter the number of ranks with a gradient, by an all-reduce of its own."""
        local = self._local_used()
        if not self.static or taking_part < self.communicator.size:
            return self._sum_used(local, due)
        self._check_unchanged(local)
        if self._static_counts is None or due:
            self._static_counts = self._sum_used(local, due)
        return self._static_counts

    def _check_unchanged(self, local: np.ndarray) -> None:
        """Raise unless the same parameters have gradients on this rank as in the first step."""
        if self._static_used is None:
            self._static_used = local
        elif not np.array_equal(local, self._static_used):
            pairs = zip(self.parameters, local, self._static_used, strict=True)
            changed = [name for (name, _), now, before in pairs if now != before]
            names = ", ".join(changed[:10])
            raise CommunicatorError(
                f"Your training graph has changed in this iteration: static_graph=True, but {names} had a "
                "gradient in one step and not in another. Leave static_graph out where the parameters in use "
                "change."
            )

    def _note(self) -> str:
        """The optimizer's options, to be compared with a bucket if no other message of the step does."""
        return self.stepped.text if self.static else ""

    def _sum_used(self, local: np.ndarray, due: bool) -> list[int]:
        """The sum of ``local`` over the ranks; if ``due``, with a checksum of the weights."""
        name = f"parameters with gradients of {self.model}{self.stepped.text}"
        sent = np.concatenate([local, self.replicas.bits()], dtype=np.int32) if due else local
        total = self.communicator.all_reduce(sent, name=name).wait()
        self._shares = total[local.size :] / self.communicator.size
        used: list[int] = total[: local.size].tolist()
        return used

    def _plan_in_use_order(self) -> None:
        """Build the buckets, once, in the order in which gradients arrived on rank 0; unused ones last."""
        if self._arrivals is None:
            return
        unused = (n for n in range(len(self.parameters) - 1, -1, -1) if n not in self._arrivals)
        order = np.array([*self._arrivals, *unused], np.int32)
        self.communicator.broadcast(order, 0, out=order, name=f"order of buckets of {self.model}")
        self._arrivals = None
        self._plan(order.tolist())

    def _record(self, weight: float | None, count: float | None) -> None:
        """Record ``synchronize`` into a compiled function: the same messages, as one step of its program."""
        if self.communicator.size == 1 and self.reduce is None and count in (None, weight):
            return
        if self.reduce is not None:
            WATCHERS.recorder.unsupported("a communication hook")
        if weight is not None:
            WATCHERS.recorder.unsupported("averaging gradients with a weight")
        lacking = [name for name, parameter in self.parameters if parameter.grad is None]
        if lacking:
            WATCHERS.recorder.unsupported(
                f"a data-parallel step that leaves {lacking[0]!r} without a gradient"
            )
        if not staging.recording():
            self.synchronize(weight, count)
            return
        gradients = [parameter.grad for _, parameter in self.parameters]
        means = WATCHERS.recorder.host_map(self._average_arrays, gradients, self._export_buckets)
        with no_grad():
            for gradient, mean in zip(gradients, means, strict=True):
                gradient.copy_(mean)

    def _average_arrays(self, *gradients: np.ndarray) -> list[np.ndarray]:
        """The means of ``gradients``, arrays in the order of the parameters."""
        in_buckets = self._counts_in_buckets
        note = self.stepped.text if in_buckets else ""
        due = self._compares(False)
        used = [] if in_buckets else self._sum_used(self._all_used, due)
        checks = self.replicas.bits() if due and in_buckets else None
        self._plan_in_use_order()
        means: dict[int, np.ndarray] = {}
        for bucket in self.buckets:
            first = checks if bucket is self.buckets[0] else None
            means.update(bucket.mean_of(gradients, note, count_used=in_buckets, checks=first))
        if due:
            shares = self.buckets[0].checked() if in_buckets else self._shares
            self.replicas.compare(shares, self.communicator)
        if not self._warned:
            self._warn_if_unused(used or self._used_of_buckets(), self.communicator.size)
        return [means[number] for number in range(len(gradients))]

    def _export_buckets(self) -> list[np.ndarray] | None:
        """The memory of every gradient in its bucket, for compiled programs; None if it has other views."""
        memory: dict[int, np.ndarray] = {}
        for bucket in self.buckets:
            exported = bucket.export() if self.communicator.size > 1 else None
            if exported is None:
                return None
            memory.update(exported)
        return [memory[number] for number in range(len(memory))] or None

    def _warn_if_unused(self, used: Sequence[int], taking_part: int) -> None:
        """Warn of parameters that fewer than ``taking_part`` ranks used, unless that has been done."""
        if self._warned:
            return
        unused = [name for (name, _), count in zip(self.parameters, used, strict=True) if count < taking_part]
        if unused:
            self._warn(unused)

    def _share(self, weight: float, count: float) -> tuple[float, int]:
        """The factor from the plain to the weighted mean, and the number of ranks of nonzero count."""
        if not (weight >= 0 and count >= 0):
            raise CommunicatorError(f"weight={weight}, count={count} must be numbers of samples, 0 or more.")
        pair = np.array([count, count > 0], np.float64)
        total, taking_part = (
            self.communicator.all_reduce(pair, name=f"weights of {self.model}").wait().tolist()
        )
        if total == 0:
            raise CommunicatorError(
                "every rank passed weight or count 0: there is no sample to take a mean over."
            )
        return float(weight) * self.communicator.size / total, int(taking_part)

    def _warn(self, unused: Sequence[str]) -> None:
        """Warn once per model, on rank 0; every rank knows which parameters any rank left unused."""
        self._warned = True
        if self.communicator.rank == 0:
            listed = ", ".join(unused[:10]) + (f" and {len(unused) - 10} more" if len(unused) > 10 else "")
            warnings.warn(
                f"parameters without a gradient on some rank: {listed}. Such ranks count as 0 in the mean; "
                "where no rank had one, grad stays None. If that is not intended, look for a branch in "
                "forward; otherwise set requires_grad=False on what is never trained.",
                TenonWarning,
                stacklevel=2,
            )

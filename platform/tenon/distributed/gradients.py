"""Average gradients over ranks: the part of data parallel that needs no wrapper module.

A training loop calls ``synchronize`` after backward; ``DistributedDataParallel`` fills buckets from hooks
while backward runs and calls it at its end. Inside a host reducing during backward never paid (measured:
the ranks compute on the same cores), so the buckets are reduced one after another, in the plan's order,
which is the same on every rank whatever its backward did.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tenon.core import watch
from tenon.core.grad_mode import no_grad
from tenon.core.tensor import Tensor
from tenon.distributed import buckets, staging
from tenon.distributed.communicator import Communicator
from tenon.distributed.world import get_communicator
from tenon.errors import CommunicatorError, TenonWarning

DEFAULT_CAP_MB = 25.0


class GradientSynchronizer:
    """Gradients of ``named_parameters``, averaged over the ranks of ``communicator``.

    Making one compares the models of all ranks and copies the parameters of rank 0 to the others
    (``broadcast=False`` leaves them). Parameters that do not require grad are copied, but not averaged.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        communicator: Communicator | None = None,
        *,
        bucket_cap_mb: float | None = None,
        broadcast: bool = True,
    ) -> None:
        self.communicator = get_communicator() if communicator is None else communicator
        self.bucket_cap_mb = DEFAULT_CAP_MB if bucket_cap_mb is None else float(bucket_cap_mb)
        everything = list(named_parameters)
        for name, parameter in everything:
            staging.check_tensor(parameter, "GradientSynchronizer", f"parameter {name!r}")
        self.parameters = [(name, tensor) for name, tensor in everything if tensor.requires_grad]
        buckets.agree(self.communicator, everything, self.bucket_cap_mb)
        self.buckets = buckets.plan(self.parameters, self.bucket_cap_mb)
        self._warned = False
        self._places = {
            id(slot.parameter): (bucket, index)
            for bucket in self.buckets
            for index, slot in enumerate(bucket.slots)
        }
        if broadcast:
            broadcast_tensors([tensor for _, tensor in everything], self.communicator, name="parameters")

    def restart(self) -> None:
        """Forget what was filled: a new backward pass begins, and the last one may have failed midway."""
        for bucket in self.buckets:
            bucket.restart()

    def fill(self, parameter: Tensor) -> None:
        """Take the gradient of ``parameter`` into its bucket, while it is in cache; again if it changes."""
        if self.communicator.size > 1 and not _recording():
            bucket, index = self._places[id(parameter)]
            bucket.fill(index)

    def synchronize(self, weight: float | None = None) -> None:
        """Replace every gradient by its mean over the ranks; all ranks must call it.

        A parameter without a gradient counts as zero on this rank; where no rank has one, it stays None.
        With ``weight``, the mean over ranks is weighted: pass the number of samples behind this rank's
        (mean) gradient, and uneven batches count every sample once.
        """
        if self.communicator.size == 1:
            return
        if _recording():
            self._record(weight)
            return
        share, taking_part = (1.0, self.communicator.size) if weight is None else self._share(weight)
        mine = np.array([parameter.grad is not None for _, parameter in self.parameters], np.int32)
        used = self.communicator.all_reduce(mine, name="parameters with gradients").wait()
        for bucket in self.buckets:
            bucket.average(self.communicator, share, used)
        self._warn_of(used, taking_part)

    def _record(self, weight: float | None) -> None:
        """``synchronize`` in a compiled function: the same messages, as one step of its program."""
        if weight is not None:
            watch.recorder.unsupported("averaging gradients with a weight")
        lacking = [name for name, parameter in self.parameters if parameter.grad is None]
        if lacking:
            watch.recorder.unsupported(f"a data-parallel step that leaves {lacking[0]!r} without a gradient")
        if not _recording():
            self.synchronize(weight)
            return
        gradients = [parameter.grad for _, parameter in self.parameters]
        means = watch.recorder.host_map(self._average_arrays, gradients)
        with no_grad():
            for gradient, mean in zip(gradients, means, strict=True):
                gradient.copy_(mean)

    def _average_arrays(self, *gradients: Any) -> list[Any]:
        """The means of all gradients, given as arrays in the order of the parameters."""
        mine = np.ones(len(self.parameters), np.int32)
        used = self.communicator.all_reduce(mine, name="parameters with gradients").wait()
        means: dict[int, Any] = {}
        for bucket in self.buckets:
            means.update(bucket.mean_of(gradients, self.communicator))
        self._warn_of(used, self.communicator.size)
        return [means[number] for number in range(len(gradients))]

    def _warn_of(self, used: Any, taking_part: int) -> None:
        unused = [name for (name, _), count in zip(self.parameters, used, strict=True) if count < taking_part]
        if unused:
            self._warn(unused)

    def _share(self, weight: float) -> tuple[float, int]:
        """This rank's weight, scaled so that those of all ranks have mean 1, and how many are not 0."""
        if not weight >= 0:
            raise CommunicatorError(f"weight={weight} must be a number of samples, 0 or more.")
        pair = np.array([weight, weight > 0], np.float64)
        total, taking_part = self.communicator.all_reduce(pair, name="weights").wait().tolist()
        if total == 0:
            raise CommunicatorError("every rank passed weight 0: there is no sample to take a mean over.")
        return float(weight) * self.communicator.size / total, int(taking_part)

    def _warn(self, unused: Sequence[str]) -> None:
        """One warning per model, on rank 0: every rank knows what any rank left unused."""
        if self._warned:
            return
        self._warned = True
        if self.communicator.rank == 0:
            shown = ", ".join(unused[:10]) + (f" and {len(unused) - 10} more" if len(unused) > 10 else "")
            warnings.warn(
                f"parameters without a gradient on some rank: {shown}. Such ranks count as zero in the mean; "
                "where no rank had one, grad stays None. If that is not intended, look for a branch in "
                "forward; otherwise set requires_grad=False on what is never trained.",
                TenonWarning,
                stacklevel=2,
            )


def broadcast_tensors(
    tensors: Sequence[Tensor], communicator: Communicator, *, root: int = 0, name: str = "tensors"
) -> None:
    """Overwrite ``tensors`` on every rank by those of ``root``, packed into few messages of at most 25 MB."""
    if communicator.size == 1:
        return
    if _recording():
        _record_broadcast(tensors, communicator, root, name)
        return
    packed: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if packed and size + tensor.raw.nbytes > DEFAULT_CAP_MB * buckets.MEGABYTE:
            _broadcast_packed(packed, communicator, root, name)
            packed, size = [], 0
        packed.append(tensor)
        size += tensor.raw.nbytes
    if packed:
        _broadcast_packed(packed, communicator, root, name)


def _recording() -> bool:
    return watch.recorder is not None and bool(watch.recorder.listening())


def _record_broadcast(tensors: Sequence[Tensor], communicator: Communicator, root: int, name: str) -> None:
    """``broadcast_tensors`` as one step of a compiled function's program."""

    def make(*arrays: Any) -> list[Any]:
        made = [Tensor._of(array.copy(), tensors[0]._backend) for array in arrays]
        broadcast_tensors(made, communicator, root=root, name=name)
        return [tensor.raw for tensor in made]

    with no_grad():
        for tensor, value in zip(tensors, watch.recorder.host_map(make, list(tensors)), strict=True):
            tensor.copy_(value)


def _broadcast_packed(tensors: Sequence[Tensor], communicator: Communicator, root: int, name: str) -> None:
    hosts = [staging.to_host(tensor) for tensor in tensors]
    flats = [np.ascontiguousarray(host).reshape(-1).view(np.uint8) for host in hosts]
    message = np.concatenate(flats)
    communicator.broadcast(message, root, out=message, name=name)
    if communicator.rank == root:
        return
    start = 0
    for tensor, host, flat in zip(tensors, hosts, flats, strict=True):
        staging.write(tensor, message[start : start + flat.size].copy().view(host.dtype).reshape(host.shape))
        start += flat.size

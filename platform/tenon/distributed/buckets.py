"""Group gradients into a few flat arrays, so that one all-reduce carries many small parameters.

Buckets are fixed for the life of the model and hold parameters in reverse order of registration, which is
about the order in which backward delivers gradients. A large gradient is a bucket of its own, averaged
where it lies: copying it in and out would take as long as sending it. All ranks compare their plans once:
models that differ raise at construction, naming the parameters, instead of mixing gradients later.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tenon.core.tensor import Tensor
from tenon.distributed import staging
from tenon.distributed.calls import format_ranks
from tenon.distributed.communicator import Communicator
from tenon.distributed.reduction import accumulator
from tenon.errors import CollectiveMismatchError, CommunicatorError

MEGABYTE = 1 << 20
IN_PLACE_BYTES = 1 << 18
"""Size from which a gradient is averaged where it lies."""
Array = np.ndarray[Any, Any]


class Slot(NamedTuple):
    """Where one parameter's gradient lies in its bucket, and its place among all parameters."""

    name: str
    parameter: Tensor
    start: int
    stop: int
    number: int


class Bucket:
    """Gradients of one dtype and device, side by side in ``flat``; a single large one stays where it is."""

    def __init__(self, parameters: Sequence[tuple[int, str, Tensor]]) -> None:
        self.slots: list[Slot] = []
        start = 0
        for number, name, parameter in parameters:
            stop = start + math.prod(parameter.raw.shape)
            self.slots.append(Slot(name, parameter, start, stop, number))
            start = stop
        first, last = self.slots[0], self.slots[-1]
        dtype = first.parameter.dtype.numpy
        self.in_place = len(self.slots) == 1 and start * dtype.itemsize >= IN_PLACE_BYTES
        self.flat: Array = np.zeros(0 if self.in_place else start, dtype)
        self.name = f"gradients of {first.name}" + (f" to {last.name}" if first is not last else "")
        self._filled: set[int] = set()

    def fill(self, index: int) -> None:
        """Copy the gradient of slot ``index`` in; zeros where there is none."""
        if self.in_place:
            return
        slot = self.slots[index]
        part = self.flat[slot.start : slot.stop]
        gradient = slot.parameter.grad
        if gradient is None:
            part[...] = 0
        else:
            np.copyto(part.reshape(gradient.raw.shape), staging.to_host(gradient), casting="same_kind")
        self._filled.add(index)

    def restart(self) -> None:
        """Forget what was filled."""
        self._filled.clear()

    def average(self, communicator: Communicator, share: float, used: Array) -> None:
        """Replace the gradients by their mean over the ranks, this rank's counting ``share`` times.

        ``used`` says for every parameter how many ranks have a gradient: where none has, it stays None.
        """
        if any(used[slot.number] for slot in self.slots):
            if self.in_place:
                self._average_in_place(communicator, share)
            else:
                for index in range(len(self.slots)):
                    if index not in self._filled:
                        self.fill(index)
                _mean(communicator, self.flat, share, self.name)
                for slot in self.slots:
                    if used[slot.number]:
                        _deliver(slot.parameter, self.flat[slot.start : slot.stop])
        self.restart()

    def mean_of(self, gradients: Sequence[Array], communicator: Communicator) -> dict[int, Array]:
        """The means of this bucket's parameters by their number, of gradients given as arrays."""
        if self.in_place:
            slot = self.slots[0]
            host = np.array(gradients[slot.number], order="C")
            _mean(communicator, host, 1.0, self.name)
            return {slot.number: host}
        for slot in self.slots:
            gradient = gradients[slot.number]
            np.copyto(
                self.flat[slot.start : slot.stop].reshape(gradient.shape), gradient, casting="same_kind"
            )
        _mean(communicator, self.flat, 1.0, self.name)
        return {
            slot.number: self.flat[slot.start : slot.stop].reshape(gradients[slot.number].shape).copy()
            for slot in self.slots
        }

    def _average_in_place(self, communicator: Communicator, share: float) -> None:
        parameter = self.slots[0].parameter
        if parameter.grad is None:
            host = np.zeros(parameter.raw.shape, parameter.dtype.numpy)
        else:
            host = np.ascontiguousarray(staging.to_host(parameter.grad))
            host = host if host.flags.writeable else host.copy()
        _mean(communicator, host, share, self.name)
        _deliver(parameter, host)


def _mean(communicator: Communicator, array: Array, share: float, name: str) -> None:
    if share != 1.0:
        wide = array.astype(accumulator(array.dtype), copy=False)
        np.multiply(wide, wide.dtype.type(share), out=wide)
        if wide is not array:
            array[...] = wide.astype(array.dtype)
    communicator.all_reduce(array, "mean", out=array, name=name)


def _deliver(parameter: Tensor, mean: Array) -> None:
    """Make ``mean`` the gradient of ``parameter``; memory of a bucket is copied."""
    mean = mean.reshape(parameter.raw.shape)
    if parameter.grad is not None:
        staging.write(parameter.grad, mean)
    else:
        backend = parameter._backend
        parameter.grad = Tensor._of(backend.from_host(mean.copy(), parameter.device), backend)


def plan(named_parameters: Sequence[tuple[str, Tensor]], cap_mb: float) -> list[Bucket]:
    """Buckets of at most ``cap_mb`` MiB, except for parameters that are larger alone."""
    if not cap_mb > 0:
        raise CommunicatorError(f"bucket_cap_mb={cap_mb} must be positive; torch's default is 25.")
    buckets: list[Bucket] = []
    groups: dict[tuple[str, str], list[tuple[int, str, Tensor]]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for number, (name, parameter) in reversed(list(enumerate(named_parameters))):
        size = parameter.raw.nbytes
        if size >= IN_PLACE_BYTES:
            buckets.append(Bucket([(number, name, parameter)]))
            continue
        key = (str(parameter.dtype), parameter.device.type)
        if key in groups and sizes[key] + size > cap_mb * MEGABYTE:
            buckets.append(Bucket(groups.pop(key)))
        sizes[key] = size + (sizes[key] if key in groups else 0)
        groups.setdefault(key, []).append((number, name, parameter))
    buckets += [Bucket(group) for group in groups.values()]
    return buckets


def agree(communicator: Communicator, named_parameters: Sequence[tuple[str, Tensor]], cap_mb: float) -> None:
    """Raise on all ranks, naming what differs, unless all have the same parameters in the same order."""
    lines = [f"bucket_cap_mb={cap_mb:g}"]
    for name, tensor in named_parameters:
        frozen = "" if tensor.requires_grad else " frozen"
        lines.append(f"{name}: {tensor.dtype}{list(tensor.raw.shape)}{frozen}")
    fingerprint = hashlib.blake2b("\n".join(lines).encode(), digest_size=16).digest()
    fingerprints = communicator.all_gather_bytes(fingerprint, name="bucket plan")
    if len(set(fingerprints)) == 1:
        return
    texts = communicator.all_gather_bytes("\n".join(lines).encode(), name="differing bucket plans")
    raise CollectiveMismatchError(
        f"ranks have different models: {_differences([text.decode().split(chr(10)) for text in texts])}. "
        "Build the same model from the same configuration on every rank."
    )


def _differences(plans: Sequence[Sequence[str]]) -> str:
    """What each group of ranks with the same plan has and lacks, compared with rank 0."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, lines in enumerate(plans):
        groups.setdefault(tuple(lines), []).append(rank)
    first, *others = groups
    parts = []
    for lines in others:
        ranks = f"{format_ranks(groups[lines])} against rank 0"
        extra = [line for line in lines if line not in first]
        lacking = [line for line in first if line not in lines]
        if extra or lacking:
            parts.append(f"{ranks} has {_some(extra)} and lacks {_some(lacking)}")
        else:
            position = next(i for i, (a, b) in enumerate(zip(lines, first, strict=True)) if a != b)
            parts.append(f"{ranks} has the order {lines[position]!r} where it is {first[position]!r}")
    return "; ".join(parts)


def _some(lines: Sequence[str]) -> str:
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return (", ".join(repr(line) for line in lines[:5]) or "nothing more") + more

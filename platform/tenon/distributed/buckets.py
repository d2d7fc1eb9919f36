"""Group gradients into a few flat arrays, so that one all-reduce carries many small parameters.

Buckets are fixed for the life of the model and hold parameters in reverse order of registration, which is
about the order in which backward delivers gradients. All ranks compare their plans once: models that differ
raise at construction, naming the parameters, instead of hanging or mixing gradients later.

Each bucket ends with one number per parameter that counts the ranks which used it: a parameter that no rank
used keeps ``grad = None``, and one that some ranks used gets zeros from the others.
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
from tenon.errors import CollectiveMismatchError, CommunicatorError

MEGABYTE = 1 << 20
Array = np.ndarray[Any, Any]


class Slot(NamedTuple):
    """Where one parameter's gradient lies in its bucket."""

    name: str
    parameter: Tensor
    start: int
    stop: int


class Bucket:
    """Gradients of one dtype and device, side by side in ``flat``."""

    def __init__(self, parameters: Sequence[tuple[str, Tensor]]) -> None:
        self.slots: list[Slot] = []
        start = 0
        for name, parameter in parameters:
            stop = start + math.prod(parameter.raw.shape)
            self.slots.append(Slot(name, parameter, start, stop))
            start = stop
        self.flat: Array = np.zeros(start + len(self.slots), parameters[0][1].dtype.numpy)
        names = [name for name, _ in parameters]
        self.name = f"gradients of {names[0]}" + (f" to {names[-1]}" if len(names) > 1 else "")

    @property
    def used(self) -> Array:
        """One number per slot: 1 where this rank used the parameter; after the mean, the share that did."""
        return self.flat[len(self.flat) - len(self.slots) :]

    def fill(self, index: int, used: bool = True) -> None:
        """Copy the gradient of slot ``index`` in; zeros where there is none."""
        slot = self.slots[index]
        part = self.flat[slot.start : slot.stop]
        gradient = slot.parameter.grad
        if gradient is None:
            part[...] = 0
        else:
            np.copyto(part.reshape(gradient.raw.shape), staging.to_host(gradient), casting="same_kind")
        self.used[index] = used

    def deliver(self, index: int) -> None:
        """Copy the averaged gradient of slot ``index`` out; leave ``None`` where no rank had one."""
        slot = self.slots[index]
        gradient = slot.parameter.grad
        if gradient is None and not abs(self.used[index]) > 0:
            return
        part = self.flat[slot.start : slot.stop].reshape(slot.parameter.raw.shape)
        if gradient is None:
            backend = slot.parameter._backend
            slot.parameter.grad = Tensor._of(backend.from_host(part.copy(), slot.parameter.device), backend)
        else:
            staging.write(gradient, part)


def plan(named_parameters: Sequence[tuple[str, Tensor]], cap_mb: float) -> list[Bucket]:
    """Buckets of at most ``cap_mb`` MiB, except for parameters that are larger alone."""
    if not cap_mb > 0:
        raise CommunicatorError(f"bucket_cap_mb={cap_mb} must be positive; torch's default is 25.")
    buckets: list[Bucket] = []
    open_groups: dict[tuple[str, str], list[tuple[str, Tensor]]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for name, parameter in reversed(named_parameters):
        key = (str(parameter.dtype), parameter.device.type)
        size = parameter.raw.nbytes
        group = open_groups.setdefault(key, [])
        if group and sizes[key] + size > cap_mb * MEGABYTE:
            buckets.append(Bucket(group))
            group = open_groups[key] = []
        sizes[key] = size + (sizes[key] if group else 0)
        group.append((name, parameter))
    buckets += [Bucket(group) for group in open_groups.values()]
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
        f"Build the same model from the same configuration on every rank."
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

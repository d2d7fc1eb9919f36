"""Group gradients into a few flat arrays, so that one all-reduce carries many parameters.

Buckets hold parameters in the order in which backward delivered their gradients on rank 0, or in reverse
order of registration where nobody watched. Their memory is the communicator's: inside a node all ranks see
it and reduce it where it lies. Averaged gradients stay there, and ``parameter.grad`` shows them; who keeps
one for longer than a step keeps that memory.

Behind the gradients lies a 1 for each that this rank has: the means of these say, with no message more, which
parameters some ranks leave unused.

All ranks compare their plans once: models that differ raise at construction, naming the parameters, instead
of mixing gradients later.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenon.distributed.communication import staging
from tenon.distributed.communication.calls import format_ranks
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import accumulator
from tenon.engine.watchers import WATCHERS
from tenon.errors import CollectiveMismatchError
from tenon.tensors.tensor import Tensor

MEGABYTE = 1 << 20
ALIGNMENT = 64
"""Bytes between whose multiples gradients begin: one cache line."""
Array = np.ndarray[Any, Any]
Reduce = Callable[["Bucket"], Any]
"""Begins to reduce ``bucket.flat``; the result, an array like it or itself, comes from ``wait()``."""


class Slot(NamedTuple):
    """Where one parameter's gradient lies in its bucket, and its place among all parameters."""

    name: str
    parameter: Tensor
    start: int
    stop: int
    number: int


class Bucket:
    """Gradients of one dtype and device, side by side in ``flat``."""

    def __init__(
        self, parameters: Sequence[tuple[int, str, Tensor]], communicator: Communicator, model: str
    ) -> None:
        self.slots: list[Slot] = []
        dtype = parameters[0][2].dtype.numpy
        step = max(1, ALIGNMENT // dtype.itemsize)
        start = 0
        for number, name, parameter in parameters:
            stop = start + math.prod(parameter.raw.shape)
            self.slots.append(Slot(name, parameter, start, stop, number))
            start = -(-stop // step) * step
        self._size = start
        self._use(communicator.allocate(start + len(self.slots), dtype))
        self.name = f"gradients of {_summary(self.slots)} of {model}"
        self.work: Any = None
        self._communicator = communicator
        self._filled: set[int] = set()
        self._shown: dict[int, weakref.ref[Shown]] = {}
        self._given = False

    def _use(self, message: Array) -> None:
        """Let ``message`` hold the gradients; making its parts anew in each step would cost 1 us apiece."""
        self._message, self._had = message, message[self._size :]
        self.flat = flat = message[: self._size]
        self._parts = [flat[s.start : s.stop].reshape(s.parameter.raw.shape) for s in self.slots]
        self._lendable = [Lendable(part) for part in self._parts]

    def fill(self, index: int) -> bool:
        """Copy the gradient of slot ``index`` in, zeros where there is none; return whether all are in."""
        gradient = self.slots[index].parameter.grad
        self._put(index, None if gradient is None else staging.to_host(gradient))
        return len(self._filled) == len(self.slots)

    def offer(self, index: int) -> Array | None:
        """Where ranks sum a gradient up, as an array to lend; None where others use that memory."""
        if self._given or self._lent(index) is not None:
            return None
        shown = Shown(self._lendable[index])
        self._shown[index] = weakref.ref(shown)
        return shown.lend()

    def take(self, index: int, gradient: Array) -> Array | None:
        """``gradient`` in what ``offer`` gives, where it may have been made; None if it has to stay."""
        part, shown = self._parts[index], self._lent(index)
        if shown is not None:
            return gradient if _lender(gradient) is shown and gradient.strides == part.strides else None
        place = self.offer(index)
        if place is not None:
            np.copyto(place, gradient)
        return place

    def own(self) -> Array:
        """``flat``, for the caller to fill."""
        if any(self._lent(index) is not None for index in range(len(self.slots))):
            self._keep_lent()
        self._filled.update(range(len(self.slots)))
        return self.flat

    def give(self) -> dict[int, Array] | None:
        """Each gradient's memory by its parameter's number, for programs to use whenever they run; others get
        copies from now on. None while somebody else sees it."""
        if any(self._lent(index) is not None for index in range(len(self.slots))):
            return None
        self._given = True
        return {slot.number: part for slot, part in zip(self.slots, self._parts, strict=True)}

    def restart(self) -> None:
        """Forget what was filled."""
        self._filled.clear()
        self.work = None

    def start(
        self, share: float = 1.0, reduce: Reduce | None = None, note: str = "", *, telling: bool = False
    ) -> None:
        """Begin to average over the ranks, or what ``reduce`` does; these gradients count ``share`` times.

        ``note`` is compared between the ranks beside the name. With ``telling``, ``used`` answers afterwards.
        """
        if telling:
            self._had[...] = [slot.parameter._grad is not None for slot in self.slots]
        for index in range(len(self.slots)):
            if index not in self._filled:
                self.fill(index)
        if share != 1.0:
            wide = self.flat.astype(accumulator(self.flat.dtype), copy=False)
            np.multiply(wide, wide.dtype.type(share), out=wide)
            if wide is not self.flat:
                self.flat[...] = wide.astype(self.flat.dtype)
        if reduce is not None:
            self.work = reduce(self)
        else:
            sent = self._message if telling else self.flat
            self.work = self._communicator.start_all_reduce(sent, "mean", name=self.name + note)

    def used(self) -> dict[int, int]:
        """How many ranks had a gradient, by the number of the parameter, after a message that tells it."""
        with WATCHERS.spanning(f"wait for {self.name}", "wait"):
            if self.work is not None:
                self.work.wait()
        ranks = self._communicator.size
        had = zip(self.slots, self._had.tolist(), strict=True)
        return {slot.number: round(float(share.real) * ranks) for slot, share in had}

    def finish(self, used: Sequence[int]) -> None:
        """Make the means the gradients, when they are there.

        ``used`` says for every parameter how many ranks have a gradient: where none has, it stays None.
        """
        if self.work is not None:
            with WATCHERS.spanning(f"wait for {self.name}", "wait"):
                result = self.work.wait()
            if result is not self.flat and result is not self._message:
                np.copyto(self.flat, result.reshape(self.flat.shape), casting="same_kind")
            for index, slot in enumerate(self.slots):
                if used[slot.number]:
                    self._deliver(index, slot.parameter)
        self.restart()

    def mean_of(self, gradients: Sequence[Array], note: str, *, telling: bool) -> dict[int, Array]:
        """The means of this bucket's parameters by their number, of gradients given as arrays: see ``start``.

        They lie in the bucket, where programs may have made the gradients. Who wants them for longer than the
        step copies them.
        """
        for index, slot in enumerate(self.slots):
            self._put(index, gradients[slot.number])
        self._filled.clear()
        sent = self.flat
        if telling:
            self._had[...] = 1
            sent = self._message
        self._communicator.all_reduce(sent, "mean", sent, name=self.name + note)
        return {slot.number: part for slot, part in zip(self.slots, self._parts, strict=True)}

    def _put(self, index: int, gradient: Array | None) -> None:
        shown = self._lent(index)
        if shown is not None and (gradient is None or _lender(gradient) is not shown):
            self._keep_lent()
            shown = None
        if shown is None:
            part = self._parts[index]
            if gradient is None:
                part[...] = 0
            else:
                np.copyto(part, gradient, casting="same_kind")
        self._filled.add(index)

    def _keep_lent(self) -> None:
        """Somebody keeps what an earlier step gave them: they keep the memory, and this rank takes other."""
        self._use(self._message.copy())
        self._shown.clear()

    def _lent(self, index: int) -> Shown | None:
        """What shows the slot's part of ``flat`` to others, if there are any."""
        reference = self._shown.get(index)
        return None if reference is None else reference()

    def _deliver(self, index: int, parameter: Tensor) -> None:
        """Let ``parameter.grad`` show its part of ``flat``; on other devices, copy."""
        gradient = parameter._grad
        shown = self._lent(index)
        if gradient is not None and shown is not None and _lender(gradient.raw) is shown:
            gradient._counter()[0] += 1  # It shows this memory already.
        elif self._lends(parameter):
            shown = Shown(self._lendable[index])
            self._shown[index] = weakref.ref(shown)
            if gradient is None:
                parameter.grad = Tensor._of(shown.lend(), parameter._backend)
            else:
                gradient.raw = shown.lend()
                gradient._counter()[0] += 1
        elif gradient is not None:
            staging.write(gradient, self._parts[index])
        else:
            backend = parameter._backend
            mean = backend.from_host(self._parts[index].copy(), parameter.device)
            parameter.grad = Tensor._of(mean, backend)

    def _lends(self, parameter: Tensor) -> bool:
        held = parameter._grad
        plain = type(parameter.raw) is np.ndarray and (held is None or not held.requires_grad)
        return plain and not self._given


class Lendable:
    """An array, and what NumPy needs to make others over its memory."""

    def __init__(self, array: Array) -> None:
        self.array = array
        # NumPy itself knows the dtypes that have a letter; it takes others for plain bytes.
        self.plain = array.dtype.char in "fdFDe"
        self.interface = (array if self.plain else array.reshape(-1).view(np.uint8)).__array_interface__


class Shown:
    """Lends an array's memory; arrays made of what it lends, and their views, keep this object alive."""

    def __init__(self, source: Lendable) -> None:
        self._source = source
        self.__array_interface__ = source.interface

    def lend(self) -> Array:
        """An array over the same memory."""
        lent, array = np.asarray(self), self._source.array
        return lent if self._source.plain else lent.view(array.dtype).reshape(array.shape)


def _lender(array: Any) -> Any:
    """The object that an array's memory comes from, below all views."""
    base = getattr(array, "base", None)
    while isinstance(base, np.ndarray):
        base = base.base
    return base


def _summary(slots: Sequence[Slot]) -> str:
    """First and last, how many, and a hash of all names, shapes and dtypes: compared at each message."""
    first, last = slots[0].name, slots[-1].name
    if len(slots) == 1:
        return first
    lines = [f"{slot.name}: {slot.parameter.dtype}{list(slot.parameter.raw.shape)}" for slot in slots]
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=4).hexdigest()
    return f"{first} to {last} ({len(slots)} parameters, {digest})"


def plan(
    named_parameters: Sequence[tuple[str, Tensor]],
    cap_mb: float,
    communicator: Communicator,
    order: Sequence[int],
    model: str,
) -> list[Bucket]:
    """Buckets of at most ``cap_mb`` MiB, except for parameters that are larger alone.

    ``order`` has the numbers of the parameters in the order in which backward delivers their gradients.
    ``model`` tells this model from others of the same parameters.
    """
    parts: list[list[tuple[int, str, Tensor]]] = []
    groups: dict[tuple[str, str], list[tuple[int, str, Tensor]]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for number in order:
        name, parameter = named_parameters[number]
        size = parameter.raw.nbytes
        key = (str(parameter.dtype), parameter.device.type)
        if key in groups and sizes[key] + size > cap_mb * MEGABYTE:
            parts.append(groups.pop(key))
        sizes[key] = size + (sizes[key] if key in groups else 0)
        groups.setdefault(key, []).append((number, name, parameter))
    return [Bucket(part, communicator, model) for part in [*parts, *groups.values()]]


def agree(
    communicator: Communicator,
    named_parameters: Sequence[tuple[str, Tensor]],
    further: Sequence[str],
) -> None:
    """Raise on all ranks, naming what differs, unless all have the same parameters in the same order.

    ``further`` are lines of text that have to be equal too.
    """
    lines = list(further)
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

"""Gradient buckets: flat arrays, so that one all-reduce reduces the gradients of many parameters.

Buckets hold parameters in the order in which backward produced their gradients on rank 0, or in reverse
order of registration if that order is unknown. Their memory is allocated by the communicator: inside a node
it is shared and reduced in place. Averaged gradients stay there, and ``parameter.grad`` is a view; a gradient
that is kept for longer than a step keeps that memory alive.

The gradients are followed by a 1 for each gradient that this rank has: the means of these show, without
another message, which parameters some ranks leave unused.

All ranks compare their plans once: models that differ raise at construction, naming the parameters, instead
of mixing gradients later.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from tenon.distributed.communication import staging
from tenon.distributed.communication.calls import format_ranks
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import accumulator
from tenon.distributed.replicas.replica_check import BITS
from tenon.engine.watchers import WATCHERS
from tenon.errors import CollectiveMismatchError
from tenon.tensors.tensor import Tensor

MEGABYTE = 1 << 20
ALIGNMENT = 64
"""Gradients begin at multiples of this many bytes: one cache line."""


class Reduction(Protocol):
    """A reduction of a bucket in progress, such as a ``Work``."""

    def wait(self) -> np.ndarray:
        """Block until it has completed; return an array like ``bucket.flat``, or that array itself."""


#: Starts to reduce ``bucket.flat``.
Reduce: TypeAlias = Callable[["Bucket"], Reduction]


class Slot(NamedTuple):
    """The bounds of a parameter's gradient in its bucket, and its index among all parameters."""

    name: str
    parameter: Tensor
    start: int
    stop: int
    number: int


class Bucket:
    """Gradients of one dtype and device, stored contiguously in ``flat``."""

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
        self._set_memory(communicator.allocate(start + len(self.slots) + BITS, dtype))
        self.name = f"gradients of {_summary(self.slots)} of {model}"
        self.work: Reduction | None = None
        self._communicator = communicator
        self._filled: set[int] = set()
        self._views: dict[int, weakref.ref[SharedView]] = {}
        self._exported = False

    def _set_memory(self, message: np.ndarray) -> None:
        """Make ``message`` the bucket's memory; its views are cached, as creating one costs 1 us."""
        stop = self._size + len(self.slots)
        self._memory, self._message, self._checks = message, message[:stop], message[stop:]
        self.flat, self._present = message[: self._size], message[self._size : stop]
        flat = self.flat
        self._parts = [flat[s.start : s.stop].reshape(s.parameter.raw.shape) for s in self.slots]
        self._exports = [ArrayExport(part) for part in self._parts]

    def fill(self, index: int) -> bool:
        """Copy in the gradient of slot ``index``, or zeros; return whether the bucket is full."""
        gradient = self.slots[index].parameter.grad
        self._write_slot(index, None if gradient is None else staging.to_host(gradient))
        return len(self._filled) == len(self.slots)

    def offer(self, index: int) -> np.ndarray | None:
        """A view of the slot, for a gradient to be written into; None while that memory is in use."""
        if self._exported or self._live_view(index) is not None:
            return None
        view = SharedView(self._exports[index])
        self._views[index] = weakref.ref(view)
        return view.array()

    def take(self, index: int, gradient: np.ndarray) -> np.ndarray | None:
        """``gradient`` in its slot, copied unless it was written there; None if the slot is in use."""
        part, view = self._parts[index], self._live_view(index)
        if view is not None:
            return gradient if _memory_owner(gradient) is view and gradient.strides == part.strides else None
        slot = self.offer(index)
        if slot is not None:
            np.copyto(slot, gradient)
        return slot

    def claim(self) -> np.ndarray:
        """``flat``, marked as filled, for the caller to write; earlier views keep the old memory."""
        if any(self._live_view(index) is not None for index in range(len(self.slots))):
            self._release_memory()
        self._filled.update(range(len(self.slots)))
        return self.flat

    def export(self) -> dict[int, np.ndarray] | None:
        """The memory of each gradient by parameter index, for compiled programs to use at any time.

        From then on ``parameter.grad`` is a copy. None, without effect, while a view of the memory is alive.
        """
        if any(self._live_view(index) is not None for index in range(len(self.slots))):
            return None
        self._exported = True
        return {slot.number: part for slot, part in zip(self.slots, self._parts, strict=True)}

    def restart(self) -> None:
        """Mark all slots as empty."""
        self._filled.clear()
        self.work = None

    def start(
        self,
        share: float = 1.0,
        reduce: Reduce | None = None,
        note: str = "",
        *,
        count_used: bool = False,
        checks: np.ndarray | None = None,
    ) -> None:
        """Start to average over the ranks, or call ``reduce``, after scaling the gradients by ``share``.

        ``note`` is compared between the ranks along with the name. With ``count_used`` the message includes
        which gradients exist, for ``used``, and ``checks`` if given, for ``checked``.
        """
        if count_used:
            self._present[...] = [slot.parameter._grad is not None for slot in self.slots]
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
            sent = self._sent(checks) if count_used else self.flat
            self.work = self._communicator.start_all_reduce(sent, "mean", name=self.name + note)

    def used(self) -> dict[int, int]:
        """The number of ranks with a gradient by parameter index, after ``start`` with ``count_used``."""
        with WATCHERS.spanning(f"wait for {self.name}", "wait"):
            if self.work is not None:
                self.work.wait()
        ranks = self._communicator.size
        shares = zip(self.slots, self._present.tolist(), strict=True)
        return {slot.number: round(float(share.real) * ranks) for slot, share in shares}

    def checked(self) -> np.ndarray:
        """The means over the ranks of ``checks``, after a reduction that included them."""
        return self._checks

    def _sent(self, checks: np.ndarray | None) -> np.ndarray:
        """The message of gradients, of which of them exist, and of ``checks`` if given."""
        if checks is None:
            return self._message
        self._checks[...] = checks
        return self._memory

    def finish(self, used: Sequence[int]) -> None:
        """Wait for the reduction and store the means in ``parameter.grad``.

        ``used`` is the number of ranks with a gradient for every parameter: if 0, the gradient stays None.
        """
        if self.work is not None:
            with WATCHERS.spanning(f"wait for {self.name}", "wait"):
                result = self.work.wait()
            if all(result is not own for own in (self.flat, self._message, self._memory)):
                np.copyto(self.flat, result.reshape(self.flat.shape), casting="same_kind")
            for index, slot in enumerate(self.slots):
                if used[slot.number]:
                    self._set_gradient(index, slot.parameter)
        self.restart()

    def mean_of(
        self,
        gradients: Sequence[np.ndarray],
        note: str,
        *,
        count_used: bool,
        checks: np.ndarray | None = None,
    ) -> dict[int, np.ndarray]:
        """Average this bucket's part of ``gradients``, one of every parameter; return the means by index.

        The means are views of the bucket, where programs may have written the gradients, and are valid until
        the next step.
        """
        for index, slot in enumerate(self.slots):
            self._write_slot(index, gradients[slot.number])
        self._filled.clear()
        sent = self.flat
        if count_used:
            self._present[...] = 1
            sent = self._sent(checks)
        self._communicator.all_reduce(sent, "mean", sent, name=self.name + note)
        return {slot.number: part for slot, part in zip(self.slots, self._parts, strict=True)}

    def _write_slot(self, index: int, gradient: np.ndarray | None) -> None:
        """Write ``gradient``, or zeros for None, into its slot, unless it is a view of it."""
        view = self._live_view(index)
        if view is not None and (gradient is None or _memory_owner(gradient) is not view):
            self._release_memory()
            view = None
        if view is None:
            part = self._parts[index]
            if gradient is None:
                part[...] = 0
            else:
                np.copyto(part, gradient, casting="same_kind")
        self._filled.add(index)

    def _release_memory(self) -> None:
        """Replace the memory by a copy, as views from an earlier step are still alive."""
        self._set_memory(self._memory.copy())
        self._views.clear()

    def _live_view(self, index: int) -> SharedView | None:
        """The owner of the live views of the slot; None if there are none."""
        reference = self._views.get(index)
        return None if reference is None else reference()

    def _set_gradient(self, index: int, parameter: Tensor) -> None:
        """Make ``parameter.grad`` a view of its part of ``flat``; on other devices, copy."""
        gradient = parameter._grad
        view = self._live_view(index)
        if gradient is not None and view is not None and _memory_owner(gradient.raw) is view:
            gradient._counter()[0] += 1  # already a view of this memory
        elif self._may_share(parameter):
            view = SharedView(self._exports[index])
            self._views[index] = weakref.ref(view)
            if gradient is None:
                parameter.grad = Tensor._of(view.array(), parameter._backend)
            else:
                gradient.raw = view.array()
                gradient._counter()[0] += 1
        elif gradient is not None:
            staging.write(gradient, self._parts[index])
        else:
            backend = parameter._backend
            mean = backend.from_host(self._parts[index].copy(), parameter.device)
            parameter.grad = Tensor._of(mean, backend)

    def _may_share(self, parameter: Tensor) -> bool:
        """Whether ``parameter.grad`` may be a view of the bucket."""
        gradient = parameter._grad
        plain = type(parameter.raw) is np.ndarray and (gradient is None or not gradient.requires_grad)
        return plain and not self._exported


class ArrayExport:
    """An array and its cached NumPy array interface, from which views are created."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        # The array interface describes NumPy's own dtypes only; others, as bfloat16, are exported as bytes.
        self.plain = array.dtype.char in "fdFDe"
        self.interface = (array if self.plain else array.reshape(-1).view(np.uint8)).__array_interface__


class SharedView:
    """Exports an array's memory; arrays created from it, and their views, keep this object alive."""

    def __init__(self, source: ArrayExport) -> None:
        self._source = source
        self.__array_interface__ = source.interface

    def array(self) -> np.ndarray:
        """A new array over the same memory."""
        view, source = np.asarray(self), self._source.array
        return view if self._source.plain else view.view(source.dtype).reshape(source.shape)


def _memory_owner(array: object) -> object:
    """The object that owns an array's memory, below all views; None for an array that owns it itself."""
    base: object = getattr(array, "base", None)
    while isinstance(base, np.ndarray):
        base = base.base
    return base


def _summary(slots: Sequence[Slot]) -> str:
    """First and last name, count, and a hash of all names, shapes and dtypes: the ranks compare it."""
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
    """Assign parameters to buckets of at most ``cap_mb`` MiB; larger parameters get one of their own.

    ``order`` lists parameter indices in the order in which backward produces their gradients. ``model``
    distinguishes this model from others with the same parameters.
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
    options: Sequence[str],
) -> None:
    """Raise on all ranks, naming the differences, unless all have the same parameters in the same order.

    ``options`` are further lines of text that must be equal.
    """
    lines = list(options)
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
    """For each group of ranks with equal plans, the difference from rank 0's."""
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
            parts.append(f"{ranks} has {_first_lines(extra)} and lacks {_first_lines(lacking)}")
        else:
            position = next(i for i, (a, b) in enumerate(zip(lines, first, strict=True)) if a != b)
            parts.append(f"{ranks} has the order {lines[position]!r} where it is {first[position]!r}")
    return "; ".join(parts)


def _first_lines(lines: Sequence[str]) -> str:
    """The first five lines, and the number of others, for an error message."""
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return (", ".join(repr(line) for line in lines[:5]) or "nothing more") + more

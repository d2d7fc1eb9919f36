"""Find parameters that one rank has changed by itself: a checksum of all weights, at an interval of steps.

Data parallel averages gradients and never sends weights again: after an edit on some ranks only (a clamp, a
checkpoint that one rank loads) they train different models. Each bit of a 32-bit checksum is a number
0 or 1 in a message that the step sends anyway; its mean is 0 or 1 on every rank if and only if all agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from tenon.config import Config
from tenon.distributed.communication import staging
from tenon.distributed.communication.calls import format_ranks
from tenon.distributed.communication.communicator import Communicator
from tenon.errors import CollectiveMismatchError, ConfigError
from tenon.tensors.tensor import Tensor

EVERY = 100
"""Steps from one comparison to the next by default."""
BITS = 32
WIDTH = 1021
"""Words in a row that are added up by columns: a prime, so that swapped rows of a weight change the sums."""
_POSITIONS = np.arange(BITS, dtype=np.uint32)


def interval(compare_weights: int | None) -> int:
    """Steps between comparisons: ``compare_weights``, or ``TENON_COMPARE_WEIGHTS``; 0 is never."""
    given: object = compare_weights
    if compare_weights is None:
        given = text = Config.from_environment().setting("compare_weights")
        try:
            every = EVERY if text is None else int(text)
        except ValueError:
            every = -1
    else:
        every = compare_weights if type(compare_weights) is int else -1
    if every < 0:
        raise ConfigError(f"compare_weights={given!r} is not a number of steps. Write 100, or 0 for never.")
    return every


class ReplicaCheck:
    """Compares ``parameters`` between the ranks at each ``every``-th call of ``due``."""

    def __init__(self, parameters: Sequence[tuple[str, Tensor]], every: int, model: str) -> None:
        self._parameters = parameters
        self._every = every
        self._model = model
        self._step = 0

    def due(self) -> bool:
        """Count a step; whether weights are compared in it. The same on all ranks."""
        self._step += 1
        return self._every > 0 and self._step % self._every == 0

    def bits(self) -> np.ndarray:
        """The checksum of all parameters as ``BITS`` numbers, 0 or 1."""
        total = hashlib.blake2b(digest_size=4)
        for _, parameter in self._parameters:
            total.update(_digest(parameter))
        return (np.uint32(int.from_bytes(total.digest(), "big")) >> _POSITIONS) & np.uint32(1)

    def compare(self, shares: np.ndarray, communicator: Communicator) -> None:
        """Raise, naming parameters and ranks, unless the means over the ranks of ``bits`` are all 0 or 1."""
        if np.all((shares == 0) | (shares == 1)):
            return
        own = b"".join(_digest(parameter) for _, parameter in self._parameters)
        digests = communicator.all_gather_bytes(own, name=f"checksums of {self._model}")
        found = []
        for number, (name, _) in enumerate(self._parameters):
            groups: dict[bytes, list[int]] = {}
            for rank, digest in zip(communicator.ranks, digests, strict=True):
                groups.setdefault(digest[8 * number : 8 * number + 8], []).append(rank)
            first, *others = sorted(groups.values(), key=len, reverse=True)
            if others:
                apart = "; ".join(format_ranks(ranks) for ranks in others)
                found.append(f"{name} of {apart} is not that of {format_ranks(first)}")
        more = f"; and {len(found) - 5} more parameters" if len(found) > 5 else ""
        raise CollectiveMismatchError(
            f"the weights of {self._model} differ between the ranks after {self._step} steps: "
            f"{'; '.join(found[:5])}{more}. They are compared every {self._every} steps. Every rank must "
            "change its parameters alike: look for an edit outside of the optimizer, such as a clamp or a "
            "checkpoint that only some ranks load. Where ranks are to differ: compare_weights=0."
        )


def _digest(parameter: Tensor) -> bytes:
    """8 bytes that depend on all bytes of ``parameter`` and their order; as fast as memory is read."""
    host = np.ascontiguousarray(staging.to_host(parameter)).reshape(-1)
    data = host.view(np.uint8)
    whole = data.size // 8 // WIDTH
    digest = hashlib.blake2b(digest_size=8)
    if whole:
        words = data[: whole * WIDTH * 8].view(np.uint64)
        digest.update(np.add.reduce(words.reshape(whole, WIDTH), axis=0).data)
    digest.update(data[whole * WIDTH * 8 :].data)
    return digest.digest()

"""``Traffic``: the modelled cost of a collective call for a node, which ``tenon plan`` sums over a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 by name then
import numpy as np

from tenon.distributed.communication.calls import Call


@dataclass(frozen=True, slots=True)
class Traffic:
    """The cost of calls for one node, summed over its ranks; ``+`` adds the costs of calls.

    >>> Traffic(sent=10.0, rounds=1) + Traffic(sent=5.0, rounds=2)
    Traffic(sent=15.0, rounds=3, moved=0.0, paused=0.0)
    """

    sent: float = 0.0
    """Bytes that leave the node."""
    rounds: int = 0
    """Dependent rounds of messages, each of which costs the network's latency."""
    moved: float = 0.0
    """Bytes that the engine's own code reads and writes in memory."""
    paused: float = 0.0
    """Seconds that the engine sleeps between polls, on average."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.sent + other.sent,
            self.rounds + other.rounds,
            self.moved + other.moved,
            self.paused + other.paused,
        )


def array_bytes(call: Call) -> int:
    """Bytes of the array that a rank passes to ``call``.

    >>> array_bytes(Call("all_reduce", "sum", (3, 4), "float32", None))
    48
    """
    return math.prod(call.shape) * np.dtype(call.dtype).itemsize if call.dtype not in ("", "bytes") else 0

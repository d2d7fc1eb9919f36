"""The random numbers of a run, so that it goes on with those that it would have drawn.

Three generators draw in turn: tenon's stream (initial weights, sampling), and Python's and NumPy's, which
data sets use. Each rank has its own. Tenon's numbers by counter, for dropout, follow from seed, step and
sample alone: their state is the progress of the run.
"""

from __future__ import annotations

import random as python
from typing import Any

import numpy as np

from tenon import random
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.tensors.creation import create


def capture(communicator: Communicator) -> dict[str, Any]:
    """The state of all ranks' generators; every rank must call it."""
    version, words, spare = python.getstate()
    kind, array, *rest = np.random.get_state()
    own = {
        "stream": random.get_rng_state().numpy(),
        "python": [version, np.array(words, np.uint32), spare],
        "numpy": [kind, np.asarray(array), *rest],
    }
    ranks = communicator.all_gather_bytes(encode(own), name="random numbers")
    return {"seed": random.initial_seed(), "stream": random.get_rng_state(), "ranks": ranks}


def restore(saved: dict[str, Any], communicator: Communicator) -> None:
    """Go on with ``saved``: each rank with its own if there are as many, else all with rank 0's stream."""
    random.manual_seed(int(saved["seed"]))
    random.set_rng_state(saved["stream"])
    ranks = saved.get("ranks", ())
    if len(ranks) != communicator.size:
        return
    own = decode(ranks[communicator.rank])
    random.set_rng_state(create.from_numpy(own["stream"]))
    version, words, spare = own["python"]
    python.setstate((version, tuple(words.tolist()), spare))
    np.random.set_state(tuple(own["numpy"]))

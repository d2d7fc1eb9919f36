"""Save and restore the states of random generators, so that a resumed run draws the same numbers.

Three generators have a state: tenon's default one (initial weights, sampling), and Python's and NumPy's,
which data sets use. Each rank has its own. Counter-based numbers, for dropout, depend only on seed, step and
sample (``random/philox.py``) and need no state.
"""

from __future__ import annotations

import random as python

import numpy as np

from tenon import random
from tenon.distributed.checkpoint.metadata import STATE_DICT_TYPE
from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.errors import RandomStateError
from tenon.tensors.creation import create


def capture(communicator: Communicator) -> dict[str, object]:
    """Gather the states of all ranks' generators; collective."""
    version, words, spare = python.getstate()
    kind, array, *rest = np.random.get_state()
    own = {
        "stream": random.get_rng_state().numpy(),
        "python": [version, np.array(words, np.uint32), spare],
        "numpy": [kind, np.asarray(array), *rest],
    }
    ranks = communicator.all_gather_bytes(encode(own), name="random numbers")
    return {"seed": random.initial_seed(), "stream": random.get_rng_state(), "ranks": ranks}


def restore(saved: STATE_DICT_TYPE, communicator: Communicator) -> None:
    """Restore the states that ``capture`` returned.

    With the same number of ranks each restores its own states; otherwise all restore rank 0's default
    generator.
    """
    random.manual_seed(int(saved["seed"]))
    random.set_rng_state(saved["stream"])
    ranks = saved.get("ranks", ())
    if len(ranks) != communicator.size:
        return
    own = decode(ranks[communicator.rank])
    random.set_rng_state(create.from_numpy(own["stream"]))
    version, words, spare = own["python"]
    python.setstate((version, tuple(words.tolist()), spare))
    kind, key, position, *rest = own["numpy"]
    if not 0 <= position <= np.asarray(key).size:  # NumPy would read the memory behind the words
        raise RandomStateError(f"NumPy's generator is at word {position} of {np.asarray(key).size}.")
    np.random.set_state((kind, key, position, *rest))


class RandomStates:
    """The states of the random generators of all ranks, as a value of a state dict. Both methods are
    collective.

    >>> import tempfile, tenon
    >>> from tenon.distributed import checkpoint
    >>> folder = tempfile.mkdtemp()
    >>> saved = checkpoint.save({"random": checkpoint.RandomStates()}, checkpoint_id=folder)
    >>> first = tenon.rand(2)
    >>> checkpoint.load({"random": checkpoint.RandomStates()}, checkpoint_id=folder)
    >>> bool((tenon.rand(2) == first).all())
    True
    """

    def state_dict(self) -> dict[str, object]:
        """The states now."""
        return capture(world.get_communicator())

    def load_state_dict(self, state_dict: STATE_DICT_TYPE) -> None:
        """Restore states that were saved by as many ranks; by another number, the default generator only."""
        restore(state_dict, world.get_communicator())

"""How long a checkpoint holds up the step: ``python tests/bench/checkpoint_stall.py [FOLDER]``.

Prints, for states of several sizes, the best time of writing in place and of handing over to the writer.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tenon.serialize.background import CheckpointWriter
from tenon.serialize.checkpoint import write_checkpoint
from tenon.tensors.creation.create import from_numpy

TENSORS = 60
ROUNDS = 8


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main(folder):
    for megabytes in (4, 64, 256):
        count = megabytes * (1 << 18) // TENSORS
        state = {"model": {str(i): from_numpy(np.ones(count, np.float32)) for i in range(TENSORS)}}
        in_place, stall = [], []
        with CheckpointWriter(folder) as writer:
            writer.save(0, state)  # the memory is made here
            writer.wait()
            for step in range(1, ROUNDS):
                in_place.append(seconds(write_checkpoint, folder / "in-place.safetensors", state))
                stall.append(seconds(writer.save, step, state))
                writer.wait()
        print(f"{megabytes:>4} MB  in place {min(in_place) * 1e3:8.1f} ms  stall {min(stall) * 1e3:7.1f} ms")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))

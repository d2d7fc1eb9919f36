"""State dicts of sharded tensors, and comparisons, that the tests of checkpoints share."""

import numpy as np

import tenon as torch
from tenon.distributed import checkpoint as dcp
from tenon.distributed import init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

LAYOUTS = [
    (1, (1,), [Replicate()]),
    (2, (2,), [Shard(0)]),
    (3, (3,), [Shard(1)]),
    (4, (4,), [Shard(0)]),
    (4, (2, 2), [Shard(0), Shard(1)]),
    (4, (2, 2), [Replicate(), Shard(0)]),
    (4, (2, 2), [Shard(0), Shard(0)]),
    (3, (3,), [Replicate()]),
]
"""Ranks, mesh and placements: even and uneven parts, empty ones, replicas, two axes."""

WHOLE = {
    "matrix": torch.arange(35.0).reshape(7, 5),
    "short": torch.arange(4, dtype=torch.int64).reshape(2, 2),
    "half": torch.linspace(-1, 1, 12).reshape(3, 4).to(torch.bfloat16),
    "none": torch.zeros(0, 3),
}


def sharded(values, shape, placements):
    """``values`` as DTensors on a new mesh."""
    mesh = init_device_mesh("cpu", shape)
    return {name: distribute_tensor(value, mesh, placements) for name, value in values.items()}


def zeros():
    """Tensors like ``WHOLE``, with other values."""
    return {name: torch.full_like(value, 77) for name, value in WHOLE.items()}


def save_whole(folder, layout=LAYOUTS[1]):
    """Save ``WHOLE`` in this layout."""
    size, shape, placements = layout

    def work(communicator):
        state = {"model": sharded(WHOLE, shape, placements), "step": 3}
        return dcp.save(state, checkpoint_id=folder)

    return run_ranks(size, work)


def values(state):
    """The whole values of DTensors, as arrays."""
    full = {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in state.items()}
    return {name: np.asarray(value.to(torch.float64).raw) for name, value in full.items()}


def equal(state):
    """Whether the values are those of ``WHOLE``."""
    found, expected = values(state), values(WHOLE)
    return all(np.array_equal(found[name], expected[name]) for name in WHOLE)

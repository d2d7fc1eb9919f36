"""Redistribution between all placements: every rank gets the part that NumPy computes for it."""

import itertools

import numpy as np
import pytest

from tenon.distributed import init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import Partial, Replicate, Shard
from tenon.distributed.tensor.mesh_backend import mesh_backend
from tenon.distributed.tensor.placement_types import StridedShard
from tenon.distributed.tensor.sharded_array import ShardedArray
from tenon.errors import UnsupportedError
from tenon.kernels.backend import backend_named

pytestmark = pytest.mark.together

SHAPES = [(6, 4), (5, 7), (1, 3), (0, 2), (3,)]


def part_of(whole, placements, sizes, coordinate):
    """The reference: ``array_split`` with all chunks but the last equal, one mesh dimension after the other;
    strided ones at last, from right to left."""
    dims = list(zip(placements, sizes, coordinate, strict=True))
    strided = [entry for entry in dims if isinstance(entry[0], StridedShard)]
    for placement, size, index in [entry for entry in dims if entry not in strided] + strided[::-1]:
        if isinstance(placement, Shard):
            length = whole.shape[placement.dim]
            chunk = -(-length // size)
            bounds = [min(chunk * i, length) for i in range(1, size)]
            whole = np.split(whole, bounds, placement.dim)[index]
        elif isinstance(placement, Partial):
            whole = whole / size if placement.reduce_op == "sum" else whole
    return whole


def all_placements(rank, dims):
    each = [Replicate(), Partial(), *(Shard(axis) for axis in range(rank))]
    return list(itertools.product(each, repeat=dims))


def check(sizes, shape, pairs):
    """Redistribute and compare on every rank of a mesh of ``sizes``."""
    whole = np.random.default_rng(0).normal(size=shape)

    def work(communicator):
        mesh = init_device_mesh("cpu", sizes)
        backend = mesh_backend(mesh, backend_named("cpu"))
        coordinate = mesh.get_coordinate()
        wrong = []
        for source, target in pairs:
            local = part_of(whole, source, sizes, coordinate).copy()
            array = ShardedArray(local, shape, source, backend)
            moved = array.redistributed(target)
            plain = [Replicate() if isinstance(p, Partial) else p for p in target]
            expected = part_of(whole, plain, sizes, coordinate)
            found = moved.local
            if any(isinstance(p, Partial) for p in target):
                found = moved.redistributed(tuple(plain)).local
            if found.shape != expected.shape or not np.allclose(found, expected, atol=1e-12):
                wrong.append((source, target, found, expected))
        return wrong

    for wrong in run_ranks(int(np.prod(sizes)), work):
        assert not wrong


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_one_dimension(ranks, shape):
    placements = all_placements(len(shape), 1)
    check((ranks,), shape, list(itertools.product(placements, placements)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("sizes", "step"),
    [((2, 2), 3), ((2, 3), 5), *(pytest.param(s, 1, marks=pytest.mark.slow) for s in [(2, 2), (2, 3)])],
)
def test_two_dimensions(sizes, step, shape):
    placements = all_placements(len(shape), 2)
    check(sizes, shape, list(itertools.product(placements, placements))[::step])


def test_strided_shards():
    """Splits after those of the dimensions to the right, as fully_shard makes them of tensor-parallel parts."""
    placements = list(itertools.product([StridedShard(0), Shard(0), Shard(1), Replicate()], repeat=2))
    check((2, 3), (7, 4), list(itertools.product(placements, placements)))


@pytest.mark.slow
def test_strided_shards_of_three_dimensions():
    each = [Replicate(), Shard(0), StridedShard(0), Shard(1)]
    placements = list(itertools.product(each, repeat=3))
    check((2, 2, 2), (9, 3), list(itertools.product(placements, placements)))
    partial = [*itertools.product([*each, Partial()], repeat=2)]
    check((2, 3), (2, 3), list(itertools.product(partial, partial)))


@pytest.mark.slow
def test_three_dimensions():
    placements = all_placements(2, 3)
    pairs = list(itertools.product(placements, placements))
    check((2, 1, 2), (5, 3), pairs[::3])
    check((2, 2, 2), (5, 3), pairs[::7])


@pytest.mark.parametrize(
    "op, combine", [("avg", np.mean), ("max", np.max), ("min", np.min), ("product", np.prod)]
)
def test_other_reductions(op, combine):
    parts = np.random.default_rng(0).normal(size=(3, 4, 3))

    def work(communicator):
        mesh = init_device_mesh("cpu", (3,))
        backend = mesh_backend(mesh, backend_named("cpu"))
        array = ShardedArray(parts[communicator.rank], (4, 3), (Partial(op),), backend)
        again = array.redistributed((Replicate(),)).redistributed((Partial(op),))
        shards = array.redistributed((Shard(0),))
        return [x.redistributed((Replicate(),)).local for x in (array, again, shards)]

    for results in run_ranks(3, work):
        for result in results:
            np.testing.assert_allclose(result, combine(parts, axis=0))


def test_partial_results_of_one_reduction_do_not_become_those_of_another():
    def work(communicator):
        backend = mesh_backend(init_device_mesh("cpu", (2,)), backend_named("cpu"))
        array = ShardedArray(np.ones(3), (3,), (Partial(),), backend)
        with pytest.raises(UnsupportedError, match=r"from Partial\(sum\) to Partial\(max\)"):
            array.redistributed((Partial("max"),))

    run_ranks(2, work)


def test_parts_of_a_copy_do_not_share_memory():
    def work(communicator):
        backend = mesh_backend(init_device_mesh("cpu", (2,)), backend_named("cpu"))
        whole = backend.replicate(np.zeros((4, 2)))
        whole.redistributed((Shard(0),)).local[...] = 1
        return float(whole.local.sum())

    assert run_ranks(2, work) == [0, 0]

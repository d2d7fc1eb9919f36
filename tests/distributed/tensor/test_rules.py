"""The sharding rules of all ops: results on sharded arrays are those on whole ones."""

import math
import warnings

import numpy as np
import pytest

import tenon.ops  # noqa: F401  # registers the ops
from tenon.distributed import init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import Partial, Replicate, Shard
from tenon.distributed.tensor.mesh_backend import MeshBackend
from tenon.distributed.tensor.placement_types import StridedShard
from tenon.engine.op import table
from tenon.kernels.backend import backend_named
from tenon.testing.samples.table import of as samples_of

#: Ops whose results are on another device or draw random numbers: not functions of their arrays alone.
OTHER = {"to_device", "dropout_mask", "rrelu_noise", "refused", "once"}
#: Ops that return memory that they have not written, or factors that are unique only up to a sign.
OPS = sorted(name for name in table.by_name if name not in OTHER and samples_of(name))


def placements_of(arrays, finite):
    """Ways to place the arrays of a call: each axis of each sharded by itself, all first axes, partial sums."""
    whole = [Replicate()] * len(arrays)
    for i, array in enumerate(arrays):
        for axis in range(array.ndim):
            yield [*whole[:i], Shard(axis), *whole[i + 1 :]]
        if finite and array.dtype.kind == "f":
            yield [*whole[:i], Partial(), *whole[i + 1 :]]
    if len(arrays) > 1:
        yield [Shard(0) if a.ndim else Replicate() for a in arrays]
        yield [Shard(a.ndim - 1) if a.ndim else Replicate() for a in arrays]
        if finite and all(a.dtype.kind == "f" for a in arrays):
            yield [Partial()] * len(arrays)


def calls_of(op, most):
    """The samples of an op, each with placements of its arrays: all, or ``most`` that lie evenly between them."""
    calls = []
    for sample in samples_of(op.name):
        args = sample.arrays(np.float64)
        arrays = [a for a in args if isinstance(a, np.ndarray)]
        every = placements_of(arrays, "extreme" not in sample.tags)  # 0 * inf is nan
        calls += [(sample, args, placed) for placed in every]
    return [calls[i * len(calls) // most] for i in range(most)] if most and most < len(calls) else calls


def differences(op, sizes, most=None, place=lambda placement: (placement,)):
    """The calls whose results differ, as texts, on a mesh of ``sizes``.

    ``place`` returns the placements on its dimensions for one that ``placements_of`` yields.
    """
    calls = calls_of(op, most)

    def work(communicator):
        device = backend_named("cpu")
        mesh = MeshBackend(init_device_mesh("cpu", sizes), device)
        wrong = []
        for sample, args, placed in calls:
            expected = device.kernels[op](*args, **sample.attrs)
            given = iter(placed)
            sharded = [
                mesh.replicate(a.copy()).redistributed(place(next(given))) if isinstance(a, np.ndarray) else a
                for a in args
            ]
            found = mesh.kernels[op](*sharded, **sample.attrs)
            wrong += compare(mesh, op, sample, placed, expected, found)
        return wrong

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return run_ranks(math.prod(sizes), work)[0]


def compare(mesh, op, sample, placed, expected, found):
    """Compare the visible outputs."""
    several = isinstance(expected, tuple)
    visible = op.outputs or (len(expected) if several else 1)
    pairs = list(zip(expected, found, strict=True))[:visible] if several else [(expected, found)]
    for i, (e, f) in enumerate(pairs):
        f = mesh.as_array(f)
        shape = f.shape
        host = mesh.to_host(f)
        text = f"{op.name} {sample.name}{dict(sample.attrs)} of {placed}: output {i} {f!r}"
        if (
            tuple(np.shape(e)) != tuple(shape)
            or host.shape != tuple(shape)
            or host.dtype != np.asarray(e).dtype
        ):
            yield f"{text} is {host.dtype}{host.shape}, expected {np.asarray(e).dtype}{np.shape(e)}"
        elif not np.allclose(host, e, rtol=1e-9, atol=1e-9, equal_nan=True):
            yield f"{text} differs by {np.nanmax(np.abs(np.subtract(host, e, dtype=complex)))}"


#: Few calls of every other op by default, and all calls of all ops in the slow tests.
CALLS = [
    *(pytest.param(name, 4, marks=[pytest.mark.slow] if i % 2 else []) for i, name in enumerate(OPS)),
    *(pytest.param(name, None, marks=pytest.mark.slow) for name in OPS),
]


@pytest.mark.together
@pytest.mark.parametrize(("name", "most"), CALLS)
def test_results_on_sharded_arrays_are_those_on_whole_ones(name, most):
    assert not differences(table[name], (2,), most)


def strided(placement):
    """The axis split by both dimensions of a mesh, first by the second one."""
    second = Replicate() if placement.is_partial() else placement
    return (StridedShard(placement.dim) if placement.is_shard() else placement), second


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_results_on_strided_shards_are_those_on_whole_arrays(name):
    assert not differences(table[name], (2, 2), 12, strided)

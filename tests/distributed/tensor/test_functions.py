"""Public functions and methods on DTensors give what they give on plain tensors, with gradients, or refuse in words."""

import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import tenon
from tenon.distributed import init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from tenon.errors import UnsupportedError, ViewError

sys.path.append(str(Path(__file__).parents[2]))
from parity.catalogue import read
from parity.compiled_sweep import Call, Made, function_of
from parity.sides import flat

#: Functions of memory, which DTensors do not have in one place.
OF_MEMORY = {
    *("as_strided", "as_strided_copy", "Tensor.as_strided_", "Tensor.resize_", "Tensor.resize_as_"),
    *("Tensor.tolist", "Tensor.view", "Tensor.fill_diagonal_", "diagonal_scatter"),
}
#: Memory that nobody has written to, and files.
OTHER = {"empty_like", "Tensor.new_empty", "Tensor.new_empty_strided", "Tensor.new"}


def cases():
    return [case for case in read() if case.kind == "function" and case.name not in OTHER]


def outcome(case, place=None):
    """Results and gradients of the call, on tensors that ``place`` distributes; None where there is none."""
    made = Made(Call(case, ()))
    leaves = []

    def placed(tensor):
        if place is not None:
            tensor = place(tensor.detach()).requires_grad_(tensor.requires_grad)
        if tensor.requires_grad:
            leaves.append(tensor)
        return tensor

    args, kwargs = mapped(made.args, placed), mapped(made.kwargs, placed)
    tenon.manual_seed(3)
    results = flat(function_of(Call(case, ()))(*args, **kwargs))
    found = [r.detach() if isinstance(r, tenon.Tensor) else r for r in results]
    floats = [r for r in results if isinstance(r, tenon.Tensor) and r.requires_grad]
    if floats:
        sum(r.abs().double().square().sum() for r in floats).backward()
    return [whole(value) for value in (*found, *(leaf.grad for leaf in leaves))]


class Whole(NamedTuple):
    """A whole tensor on the host."""

    dtype: str
    array: np.ndarray


def mapped(value, function):
    if isinstance(value, tenon.Tensor):
        return function(value)
    if type(value) in (list, tuple):
        return type(value)(mapped(item, function) for item in value)
    if type(value) is dict:
        return {key: mapped(item, function) for key, item in value.items()}
    return value


def whole(value):
    """A tensor as a ``Whole``, another value as it is."""
    if not isinstance(value, tenon.Tensor):
        return value
    if isinstance(value, DTensor):
        value = value.full_tensor()
    value = value.to_dense() if value.is_sparse else value
    wide = value.float() if value.dtype.is_floating_point and value.dtype.itemsize < 4 else value
    return Whole(str(value.dtype), wide.resolve_conj().resolve_neg().numpy())


def differ(expected, found):
    """Whether two outcomes differ beyond rounding."""
    if len(expected) != len(found):
        return f"{len(found)} results instead of {len(expected)}"
    for i, (e, f) in enumerate(zip(expected, found, strict=True)):
        if not isinstance(e, Whole):
            if type(e) is not type(f) or (e != f and e == e):
                return f"result {i} is {f}, not {e}"
        elif not isinstance(f, Whole) or e.dtype != f.dtype or e.array.shape != f.array.shape:
            return f"result {i} is {f}, not {e}"
        else:
            near = 1e-3 * (1 + np.abs(e.array).max(initial=0, where=np.isfinite(e.array)))
            if not np.allclose(f.array, e.array, rtol=1e-3, atol=near, equal_nan=True):
                return f"result {i} differs: {f.array}, not {e.array}"
    return None


def wrong(some):
    """The calls that differ or raise, as texts."""
    lines = []
    for case in some:
        try:
            expected = outcome(case)
            tenon.manual_seed(3)
            before = tenon.get_rng_state()
            outcome(case)
            random = not tenon.equal(tenon.get_rng_state(), before)
        except Exception:
            continue  # not a call of plain tensors
        for axis in (0, -1):

            def work(communicator, axis=axis, case=case):
                mesh = init_device_mesh("cpu", (communicator.size,))
                places = [Shard(axis)]
                return outcome(
                    case, lambda t: distribute_tensor(t, mesh, places if t.ndim else [Replicate()])
                )

            try:  # threads share the generator, so that what draws runs on one rank
                found = run_ranks(1 if random else 2, work)
            except (UnsupportedError, ViewError) as error:
                if case.name not in OF_MEMORY:
                    lines.append(f"{case} by axis {axis}: {error}")
                continue
            except Exception as error:
                lines.append(f"{case} by axis {axis}: {type(error).__name__}: {error}")
                continue
            lines += [f"{case} by axis {axis}: {d}" for d in {differ(expected, f) for f in found} if d]
    return lines


@pytest.mark.parametrize("step", [150, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_functions_of_sharded_tensors_are_those_of_plain_ones(step):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        lines = wrong(cases()[::step])
    assert not lines, "\n".join(lines)

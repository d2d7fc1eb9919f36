"""Copies past the caches: the same bytes as NumPy's, and no others."""

import ml_dtypes
import numpy as np
import pytest

from tenon.kernels.backend import Backend, backend_named
from tenon_cpu.jit.eager_ops import copying
from tenon_cpu.jit.loops import streaming


@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex64", ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [0, 1, 300_000, 1 << 19, (1 << 19) + 7])
@pytest.mark.parametrize("offset", [0, 1, 63])
def test_a_copy_has_all_elements_and_leaves_its_neighbours(dtype, size, offset):
    source = np.random.default_rng(0).integers(1, 99, size + offset).astype(dtype)[offset:]
    memory = np.zeros(size + 130, dtype)
    backend_named("cpu").copy_past_caches(source, memory[offset : offset + size])

    assert np.array_equal(memory[offset : offset + size], source)
    assert not memory[:offset].any() and not memory[offset + size :].any()


def test_arrays_in_other_orders_and_read_only_ones_are_copied():
    source = np.random.default_rng(0).normal(size=(300, 400)).astype(np.float32)
    source.flags.writeable = False
    for each in (source, source.T, source[:, ::2]):
        out = np.zeros(each.shape, np.float32)
        backend_named("cpu").copy_past_caches(each, out)
        assert np.array_equal(out, each)


def test_backends_without_such_code_copy_as_numpy_does():
    out = np.zeros((2, 3))
    Backend.copy_past_caches(backend_named("cpu"), np.ones((2, 3)), out)
    assert out.all()


def test_large_arrays_are_copied_by_compiled_code(monkeypatch):
    if not copying.available():
        pytest.skip("kernels cannot be compiled here")
    blocks = []
    monkeypatch.setattr(copying, "share", lambda kernel, rows, count, cost: blocks.append((kernel, count)))
    backend_named("cpu").copy_past_caches(np.ones(1 << 20, np.uint8), np.zeros(1 << 20, np.uint8))
    backend_named("cpu").copy_past_caches(np.ones(1 << 10, np.uint8), np.zeros(1 << 10, np.uint8))

    assert len(blocks) == 1
    kernel, count = blocks[0]
    assert kernel is streaming.stream and count in (
        (1 << 20) // streaming.BLOCK,
        (1 << 20) // streaming.BLOCK - 1,
    )

"""Fixtures for the tests of oneDNN's kernels."""

import pytest

from tenon_cpu.onednn.runtime import runtime

#: The bit of oneDNN's instruction sets that AVX2 and all above it have.
AVX2 = 0x4


@pytest.fixture
def avx2():
    """Skips where the processor lacks AVX2: there oneDNN has blocked convolutions, but plain gradients of them."""
    if not runtime().library.functions["dnnl_get_effective_cpu_isa"]() & AVX2:
        pytest.skip("oneDNN has no gradients of blocked convolutions below AVX2")

"""Every op's samples on a device that is not the CPU, with CuPy's limits and the CUDA backend's kernels."""

import pytest

from tenon.testing.suites.backend import NAMES, BackendSuite

pytestmark = pytest.mark.together


class TestFakeBackend(BackendSuite):
    backend = "fake"

    @pytest.mark.slow  # those of the samples' values reach every kernel
    @pytest.mark.parametrize("name", NAMES)
    def test_gradients(self, name):
        super().test_gradients(name)

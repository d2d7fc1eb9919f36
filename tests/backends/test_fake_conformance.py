"""Every op's samples on a device that is not the CPU, with CuPy's limits and the CUDA backend's kernels."""

import pytest

from tenon.testing.suites.backend import NAMES, BackendSuite

pytestmark = pytest.mark.together


class TestFakeBackend(BackendSuite):
    backend = "fake"
    wide, narrow = ("float32",), ("bfloat16",)

    @pytest.mark.slow  # the same kernels, over arrays of other dtypes
    @pytest.mark.parametrize("name", NAMES)
    def test_values_of_other_dtypes(self, name):
        self.wide, self.narrow = ("float64",), ("float16",)
        super().test_values(name)

    @pytest.mark.slow  # those of the samples' values reach every kernel
    @pytest.mark.parametrize("name", NAMES)
    def test_gradients(self, name):
        super().test_gradients(name)

"""Every op's samples on a device that is not the CPU, with CuPy's limits and the CUDA backend's kernels."""

import pytest

from tenon.testing.suites.backend import BackendSuite

pytestmark = pytest.mark.together


class TestFakeBackend(BackendSuite):
    backend = "fake"

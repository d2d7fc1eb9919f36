"""Every op's samples on a device that is not the CPU, with CuPy's limits and the CUDA backend's kernels."""

from tenon.testing.suites.backend import BackendSuite


class TestFakeBackend(BackendSuite):
    backend = "fake"

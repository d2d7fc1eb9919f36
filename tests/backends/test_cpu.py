"""The CPU backend runs every op's samples."""

from tenon.testing.suites.backend import BackendSuite


class TestCpuBackend(BackendSuite):
    backend = "cpu"

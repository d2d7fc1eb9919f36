"""The CPU backend runs every op's samples."""

import pytest

from tenon.testing.suites.backend import BackendSuite

pytestmark = pytest.mark.together


class TestCpuBackend(BackendSuite):
    backend = "cpu"

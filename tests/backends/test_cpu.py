"""The CPU backend runs every op's samples."""

import pytest

from tenon.testing.suites.backend import BackendSuite

# Every sample on the CPU: tests/core/test_samples.py; the suite itself: test_fake_conformance.py.
pytestmark = [pytest.mark.together, pytest.mark.slow]


class TestCpuBackend(BackendSuite):
    backend = "cpu"

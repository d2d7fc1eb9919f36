"""Tests here import their cases and inputs by name; none leaves autocast on."""

import sys
from pathlib import Path

import pytest

import tenon
from tenon.engine.interceptor import SLOT

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def nothing_left_on():
    """Check that a test leaves neither autocast nor an interceptor active."""
    yield
    assert SLOT.top is None
    assert not tenon.is_autocast_enabled("cpu")

"""Tests here import their cases and inputs by name; none leaves autocast on."""

import sys
from pathlib import Path

import pytest

import tenon
from tenon.engine.interceptor import SLOT

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def nothing_left_on():
    """No test leaves autocast on, or an interceptor in the slot."""
    yield
    assert SLOT.top is None
    assert not tenon.is_autocast_enabled("cpu")

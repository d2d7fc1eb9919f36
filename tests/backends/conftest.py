"""A second backend in addition to the CPU's, registered by a plugin, for the tests in this folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the plugin's target is found by its module's name


@pytest.fixture(scope="module", autouse=True)
def fake_plugin():
    """``device="fake"`` exists while a module's tests run, as after installing the plugin."""
    import fake_device

    from tenon.kernels import backend as backends
    from tenon.plugins import manager

    manager.register(fake_device, "fake_device")
    yield fake_device
    manager.unregister("fake_device")
    backends._INSTANCES.pop("fake", None)
    backends._CHECKED.discard("fake")

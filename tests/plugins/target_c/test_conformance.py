"""The suite that every export target passes."""

import pytest

from tenon.testing import PluginSuite
from tenon.testing.suites.target import TargetSuite


@pytest.mark.slow
class TestTarget(TargetSuite):
    target = "c"
    trains = True


class TestPlugin(PluginSuite):
    plugin = "tenon_target_c.plugin"

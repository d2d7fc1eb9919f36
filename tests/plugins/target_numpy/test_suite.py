"""The conformance suite of targets."""

from tenon.testing.suites.target import TargetSuite
from tenon_target_numpy import plugin
from tenon_target_numpy.target import NumpyTarget


class TestNumpyTarget(TargetSuite):
    target = NumpyTarget
    trains = True


def test_the_plugin_offers_it():
    (declared,) = plugin.tenon_targets().items()

    assert declared == ("numpy", f"{NumpyTarget.__module__}:{NumpyTarget.__name__}")

"""The conformance suite of targets."""

import pytest

from tenon.testing.suites.target import TargetSuite
from tenon.testing.suites.target_models import MODELS
from tenon_target_numpy import plugin
from tenon_target_numpy.target import NumpyTarget

#: Models whose ops others have as well; every target with models in its own language runs them by default.
SIMILAR = {"dynamic_net", "resnet", "bert", "gru", "digits", "unet", "vit"}


class TestNumpyTarget(TargetSuite):
    target = NumpyTarget
    trains = True

    @pytest.mark.parametrize(
        "name",
        [pytest.param(name, marks=pytest.mark.slow) if name in SIMILAR else name for name in MODELS],
    )
    def test_model(self, name, tmp_path):
        super().test_model(name, tmp_path)

    @pytest.mark.slow
    def test_sizes_as_numbers(self, tmp_path):
        super().test_sizes_as_numbers(tmp_path)

    @pytest.mark.slow
    def test_wrong_arguments_are_a_clear_error(self, tmp_path):
        super().test_wrong_arguments_are_a_clear_error(tmp_path)


def test_the_plugin_offers_it():
    (declared,) = plugin.tenon_targets().items()

    assert declared == ("numpy", f"{NumpyTarget.__module__}:{NumpyTarget.__name__}")

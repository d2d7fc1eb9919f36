"""The conformance suite of export targets: every model within 1e-5, quantized ones within one step."""

import pytest
from tests.plugins.target_stablehlo.programs import needs_jax

from tenon.testing import TargetSuite
from tenon_target_stablehlo.target import StableHloTarget

pytestmark = [needs_jax, pytest.mark.slow]


class TestStableHlo(TargetSuite):
    target = StableHloTarget
    trains = True

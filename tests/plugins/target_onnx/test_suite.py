"""The conformance suite of export targets: every model within 1e-5, quantized ones within one step."""

import pytest
from tests.plugins.target_onnx.programs import needs_runtime

from tenon.testing import TargetSuite
from tenon_target_onnx.target import OnnxTarget

pytestmark = [needs_runtime, pytest.mark.slow]


class TestOnnx(TargetSuite):
    target = OnnxTarget

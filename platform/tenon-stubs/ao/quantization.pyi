# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.quantization import FakeQuantize as FakeQuantize
from tenon.quantization import convert as convert
from tenon.quantization import fuse_modules as fuse_modules
from tenon.quantization import prepare as prepare
from tenon.quantization import prepare_qat as prepare_qat
from tenon.quantization import quantize_dynamic as quantize_dynamic

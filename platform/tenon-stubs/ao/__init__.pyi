# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.ao import nn as nn
from tenon.ao import quantization as quantization

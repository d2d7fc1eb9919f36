# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.flatten import Flatten as Flatten
from tenon.nn.layers.flatten import Unflatten as Unflatten

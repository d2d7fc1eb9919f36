# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.tensor.dtensor_spec import *

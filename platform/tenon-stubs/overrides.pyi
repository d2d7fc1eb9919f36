# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.overrides import *
from tenon.compat.overrides import has_torch_function_unary as has_torch_function_unary
from tenon.compat.overrides import has_torch_function_variadic as has_torch_function_variadic

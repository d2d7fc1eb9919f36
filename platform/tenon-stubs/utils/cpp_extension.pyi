# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.utils.cpp_extension import *
from tenon.compat.utils.cpp_extension import CUDA_HOME as CUDA_HOME
from tenon.compat.utils.cpp_extension import ROCM_HOME as ROCM_HOME
from tenon.compat.utils.cpp_extension import _refused as _refused

# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.backends.cudnn import *
from tenon.compat.backends.cudnn import allow_tf32 as allow_tf32
from tenon.compat.backends.cudnn import benchmark as benchmark
from tenon.compat.backends.cudnn import benchmark_limit as benchmark_limit
from tenon.compat.backends.cudnn import deterministic as deterministic
from tenon.compat.backends.cudnn import enabled as enabled

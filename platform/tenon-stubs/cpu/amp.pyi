# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.cpu.amp import *
from tenon.compat.cpu.amp import _warn_deprecated as _warn_deprecated

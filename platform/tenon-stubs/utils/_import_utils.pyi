# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.utils._import_utils import *
from tenon.compat.utils._import_utils import _check_module_exists as _check_module_exists

# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.absent_device import device_count as device_count
from tenon.compat.absent_device import is_available as is_available

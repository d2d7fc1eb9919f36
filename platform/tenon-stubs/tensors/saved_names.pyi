# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.saved_attributes import *
from tenon.compat.saved_attributes import _ATTRS as _ATTRS
from tenon.compat.saved_attributes import _FIRST as _FIRST
from tenon.compat.saved_attributes import _SECOND as _SECOND
from tenon.compat.saved_attributes import _SIZE as _SIZE
from tenon.compat.saved_attributes import _position as _position

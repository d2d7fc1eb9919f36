# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.overriding import *
from tenon.compat.overriding import _Classes as _Classes
from tenon.compat.overriding import _Modes as _Modes
from tenon.compat.overriding import _PLAIN_METHOD as _PLAIN_METHOD
from tenon.compat.overriding import _State as _State
from tenon.compat.overriding import _arguments as _arguments

# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.backends.cuda import *
from tenon.compat.backends.cuda import _LinalgBackend as _LinalgBackend
from tenon.compat.backends.cuda import _MatmulSettings as _MatmulSettings
from tenon.compat.backends.cuda import _allowed as _allowed
from tenon.compat.backends.cuda import _preferred as _preferred

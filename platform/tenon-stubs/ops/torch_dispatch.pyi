# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.torch_dispatch import *
from tenon.compat.torch_dispatch import _ClassDispatch as _ClassDispatch
from tenon.compat.torch_dispatch import _Copy as _Copy
from tenon.compat.torch_dispatch import _DISPATCH as _DISPATCH
from tenon.compat.torch_dispatch import _Disabled as _Disabled
from tenon.compat.torch_dispatch import _UNWRAP as _UNWRAP
from tenon.compat.torch_dispatch import _Unwrap as _Unwrap
from tenon.compat.torch_dispatch import _copy as _copy
from tenon.compat.torch_dispatch import _make_wrapper_subclass as _make_wrapper_subclass
from tenon.compat.torch_dispatch import _register as _register
from tenon.compat.torch_dispatch import _unwrapped as _unwrapped

# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.jit import *
from tenon.compat.jit import ScriptDict as ScriptDict
from tenon.compat.jit import ScriptList as ScriptList
from tenon.compat.jit import ScriptMethod as ScriptMethod
from tenon.compat.jit import T as T
from tenon.compat.jit import _holds as _holds
from tenon.compat.jit import _isinstance as _isinstance
from tenon.compat.jit import _itself as _itself
from tenon.compat.jit import _onednn_fusion as _onednn_fusion
from tenon.compat.jit import _overload as _overload
from tenon.compat.jit import _overload_method as _overload_method
from tenon.compat.jit import _refuse_instance as _refuse_instance
from tenon.compat.jit import _script_if_tracing as _script_if_tracing
from tenon.compat.jit import _strategy as _strategy

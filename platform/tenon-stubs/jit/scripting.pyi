# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.jit.scripting import *
from tenon.compat.jit.scripting import _OF_SCRIPTS as _OF_SCRIPTS
from tenon.compat.jit.scripting import _is_code as _is_code
from tenon.compat.jit.scripting import _name_of as _name_of
from tenon.compat.jit.scripting import _problem as _problem
from tenon.compat.jit.scripting import _refuse as _refuse
from tenon.compat.jit.scripting import _warned as _warned

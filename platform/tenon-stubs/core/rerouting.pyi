# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.rerouting import *
from tenon.compat.rerouting import _DETOUR as _DETOUR
from tenon.compat.rerouting import _NOT_OVERRIDABLE as _NOT_OVERRIDABLE
from tenon.compat.rerouting import _PASSED_FUNCTION as _PASSED_FUNCTION
from tenon.compat.rerouting import _PLACEHOLDERS as _PLACEHOLDERS
from tenon.compat.rerouting import _ROUTES as _ROUTES
from tenon.compat.rerouting import _detour as _detour
from tenon.compat.rerouting import _exchange as _exchange
from tenon.compat.rerouting import _functions_of as _functions_of
from tenon.compat.rerouting import _reasons as _reasons
from tenon.compat.rerouting import _rerouted_code as _rerouted_code

# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.rerouting import *
from tenon.compat.rerouting import _DETOUR as _DETOUR
from tenon.compat.rerouting import _NEVER as _NEVER
from tenon.compat.rerouting import _PLACES as _PLACES
from tenon.compat.rerouting import _ROUTES as _ROUTES
from tenon.compat.rerouting import _SHOWN as _SHOWN
from tenon.compat.rerouting import _asking as _asking
from tenon.compat.rerouting import _detour as _detour
from tenon.compat.rerouting import _exchange as _exchange
from tenon.compat.rerouting import _faces as _faces
from tenon.compat.rerouting import _reasons as _reasons

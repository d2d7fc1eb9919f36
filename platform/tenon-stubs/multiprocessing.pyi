# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.multiprocessing import *
from tenon.compat.multiprocessing import _MAX_TRACEBACK as _MAX_TRACEBACK
from tenon.compat.multiprocessing import _received_traceback as _received_traceback
from tenon.compat.multiprocessing import _run as _run

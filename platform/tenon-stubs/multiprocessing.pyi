# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.multiprocessing import *
from tenon.compat.multiprocessing import _MOST as _MOST
from tenon.compat.multiprocessing import _received as _received
from tenon.compat.multiprocessing import _run as _run

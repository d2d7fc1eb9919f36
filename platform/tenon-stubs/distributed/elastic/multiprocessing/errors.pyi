# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.elastic_errors import *
from tenon.compat.elastic_errors import P as P
from tenon.compat.elastic_errors import R as R

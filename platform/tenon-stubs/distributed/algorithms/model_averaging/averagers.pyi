# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.local_sgd import ModelAverager as ModelAverager
from tenon.distributed.local_sgd import PeriodicModelAverager as PeriodicModelAverager

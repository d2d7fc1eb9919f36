# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.powersgd import PowerSGDState as PowerSGDState
from tenon.distributed.powersgd import batched_powerSGD_hook as batched_powerSGD_hook
from tenon.distributed.powersgd import powerSGD_hook as powerSGD_hook

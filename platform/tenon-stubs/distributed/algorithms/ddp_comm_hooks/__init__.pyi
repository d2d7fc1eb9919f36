# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.algorithms.ddp_comm_hooks import default_hooks as default_hooks
from tenon.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_localSGD_hook
from tenon.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD_hook

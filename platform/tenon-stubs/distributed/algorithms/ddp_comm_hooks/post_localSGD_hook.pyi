# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.local_sgd import PostLocalSGDState as PostLocalSGDState
from tenon.distributed.local_sgd import post_localSGD_hook as post_localSGD_hook

# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.fsdp import fully_shard as fully_shard
from tenon.distributed.fsdp.checkpoint_in_place import checkpoint as checkpoint

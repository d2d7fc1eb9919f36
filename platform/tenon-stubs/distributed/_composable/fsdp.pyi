# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.fsdp import CPUOffloadPolicy as CPUOffloadPolicy
from tenon.distributed.fsdp import FSDPModule as FSDPModule
from tenon.distributed.fsdp import MixedPrecisionPolicy as MixedPrecisionPolicy
from tenon.distributed.fsdp import OffloadPolicy as OffloadPolicy
from tenon.distributed.fsdp import fully_shard as fully_shard
from tenon.distributed.fsdp import register_fsdp_forward_method as register_fsdp_forward_method

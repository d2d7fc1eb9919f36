# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.fsdp.checkpoint_wrapper import CheckpointImpl as CheckpointImpl
from tenon.distributed.fsdp.checkpoint_wrapper import CheckpointWrapper as CheckpointWrapper
from tenon.distributed.fsdp.checkpoint_wrapper import apply_activation_checkpointing as apply_activation_checkpointing
from tenon.distributed.fsdp.checkpoint_wrapper import checkpoint_wrapper as checkpoint_wrapper

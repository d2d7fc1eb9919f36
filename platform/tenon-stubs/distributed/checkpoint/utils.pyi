# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.checkpoint import CheckpointException as CheckpointException
from tenon.distributed.checkpoint.planner_helpers import find_state_dict_object as find_state_dict_object
from tenon.distributed.checkpoint.planner_helpers import find_tensor_shard as find_tensor_shard

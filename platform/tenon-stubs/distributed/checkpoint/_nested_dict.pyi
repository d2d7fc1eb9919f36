# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.checkpoint.flattening import flatten_state_dict as flatten_state_dict
from tenon.distributed.checkpoint.flattening import unflatten_state_dict as unflatten_state_dict

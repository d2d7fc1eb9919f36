# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.checkpoint.flattening import get_element as get_element
from tenon.distributed.checkpoint.flattening import set_element as set_element
from tenon.distributed.checkpoint.flattening import traverse_state_dict as traverse_state_dict

# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.tensor.chunks import compute_local_shape_and_global_offset as compute_local_shape_and_global_offset

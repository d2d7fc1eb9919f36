# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.local_sgd import PostLocalSGDOptimizer as PostLocalSGDOptimizer

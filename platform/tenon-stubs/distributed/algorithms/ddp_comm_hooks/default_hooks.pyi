# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.replicas.comm_hooks import allreduce_hook as allreduce_hook
from tenon.distributed.replicas.comm_hooks import bf16_compress_hook as bf16_compress_hook
from tenon.distributed.replicas.comm_hooks import bf16_compress_wrapper as bf16_compress_wrapper
from tenon.distributed.replicas.comm_hooks import fp16_compress_hook as fp16_compress_hook
from tenon.distributed.replicas.comm_hooks import fp16_compress_wrapper as fp16_compress_wrapper

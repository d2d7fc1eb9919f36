# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.checkpoint.duplicates import dedup_save_plans as dedup_save_plans

# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.data import DataLoader as DataLoader
from tenon.data import default_collate as default_collate
from tenon.data import default_convert as default_convert
from tenon.data import get_worker_info as get_worker_info

# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.data import get_worker_info as get_worker_info
from tenon.data.serving import WorkerInfo as WorkerInfo
from tenon.data.serving import numpy_seed as _generate_state

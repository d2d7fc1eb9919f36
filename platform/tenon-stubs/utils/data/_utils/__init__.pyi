# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.data.pool import PATIENCE as MP_STATUS_CHECK_INTERVAL
from tenon.data.worker_errors import ExceptionWrapper as ExceptionWrapper
from tenon.utils.data._utils import collate as collate
from tenon.utils.data._utils import worker as worker

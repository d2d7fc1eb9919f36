# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.algorithms.model_averaging import averagers as averagers
from tenon.distributed.algorithms.model_averaging import hierarchical_model_averager as hierarchical_model_averager
from tenon.distributed.algorithms.model_averaging import utils as utils

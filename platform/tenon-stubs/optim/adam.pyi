# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.optim.optimizer import Optimizer as Optimizer
from tenon_optimizers.adam import Adam as Adam

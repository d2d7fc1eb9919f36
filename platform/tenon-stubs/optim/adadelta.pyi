# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.optim.optimizer import Optimizer as Optimizer
from tenon_optimizers.adadelta import Adadelta as Adadelta

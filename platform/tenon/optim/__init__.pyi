# Written by `tenon stubs`; do not edit.
# ruff: noqa: I001, RUF100
# fmt: off

from tenon.optim import lr_scheduler as lr_scheduler
from tenon.optim.optimizer import Optimizer as Optimizer
from tenon_optimizers.adagrad import Adagrad as Adagrad
from tenon_optimizers.adam import Adam as Adam
from tenon_optimizers.adamw import AdamW as AdamW
from tenon_optimizers.rmsprop import RMSprop as RMSprop
from tenon_optimizers.sgd import SGD as SGD

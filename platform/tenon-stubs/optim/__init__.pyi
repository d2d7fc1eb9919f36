# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.optim import lr_scheduler as lr_scheduler
from tenon.optim import swa_utils as swa_utils
from tenon.optim.optimizer import Optimizer as Optimizer
from tenon.optim.sparse_adam import SparseAdam as SparseAdam
from tenon_optimizers.adadelta import Adadelta as Adadelta
from tenon_optimizers.adafactor import Adafactor as Adafactor
from tenon_optimizers.adagrad import Adagrad as Adagrad
from tenon_optimizers.adam import Adam as Adam
from tenon_optimizers.adamax import Adamax as Adamax
from tenon_optimizers.adamw import AdamW as AdamW
from tenon_optimizers.asgd import ASGD as ASGD
from tenon_optimizers.lamb import LAMB as LAMB
from tenon_optimizers.lars import LARS as LARS
from tenon_optimizers.lbfgs import LBFGS as LBFGS
from tenon_optimizers.lion import Lion as Lion
from tenon_optimizers.muon import Muon as Muon
from tenon_optimizers.nadam import NAdam as NAdam
from tenon_optimizers.radam import RAdam as RAdam
from tenon_optimizers.rmsprop import RMSprop as RMSprop
from tenon_optimizers.rprop import Rprop as Rprop
from tenon_optimizers.schedule_free import AdamWScheduleFree as AdamWScheduleFree
from tenon_optimizers.schedule_free import SGDScheduleFree as SGDScheduleFree
from tenon_optimizers.sgd import SGD as SGD

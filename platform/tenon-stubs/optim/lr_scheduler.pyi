# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.optim.scheduler import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from tenon.optim.scheduler import LRScheduler as LRScheduler
from tenon_optimizers.cycles import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from tenon_optimizers.cycles import CyclicLR as CyclicLR
from tenon_optimizers.cycles import OneCycleLR as OneCycleLR
from tenon_optimizers.meta_schedules import ChainedScheduler as ChainedScheduler
from tenon_optimizers.meta_schedules import SequentialLR as SequentialLR
from tenon_optimizers.plateau import ReduceLROnPlateau as ReduceLROnPlateau
from tenon_optimizers.schedules import ConstantLR as ConstantLR
from tenon_optimizers.schedules import CosineAnnealingLR as CosineAnnealingLR
from tenon_optimizers.schedules import ExponentialLR as ExponentialLR
from tenon_optimizers.schedules import LambdaLR as LambdaLR
from tenon_optimizers.schedules import LinearLR as LinearLR
from tenon_optimizers.schedules import MultiStepLR as MultiStepLR
from tenon_optimizers.schedules import MultiplicativeLR as MultiplicativeLR
from tenon_optimizers.schedules import PolynomialLR as PolynomialLR
from tenon_optimizers.schedules import StepLR as StepLR
from tenon_optimizers.warmup import WarmupCosineLR as WarmupCosineLR

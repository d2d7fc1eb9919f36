# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.likelihood import CTCLoss as CTCLoss
from tenon.nn.layers.likelihood import GaussianNLLLoss as GaussianNLLLoss
from tenon.nn.layers.likelihood import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from tenon.nn.layers.likelihood import PoissonNLLLoss as PoissonNLLLoss
from tenon.nn.layers.loss import BCELoss as BCELoss
from tenon.nn.layers.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from tenon.nn.layers.loss import CrossEntropyLoss as CrossEntropyLoss
from tenon.nn.layers.loss import HuberLoss as HuberLoss
from tenon.nn.layers.loss import KLDivLoss as KLDivLoss
from tenon.nn.layers.loss import L1Loss as L1Loss
from tenon.nn.layers.loss import MSELoss as MSELoss
from tenon.nn.layers.loss import NLLLoss as NLLLoss
from tenon.nn.layers.loss import NLLLoss2d as NLLLoss2d
from tenon.nn.layers.loss import SmoothL1Loss as SmoothL1Loss
from tenon.nn.layers.loss import _Loss as _Loss
from tenon.nn.layers.loss import _WeightedLoss as _WeightedLoss
from tenon.nn.layers.margin_loss import CosineEmbeddingLoss as CosineEmbeddingLoss
from tenon.nn.layers.margin_loss import HingeEmbeddingLoss as HingeEmbeddingLoss
from tenon.nn.layers.margin_loss import MarginRankingLoss as MarginRankingLoss
from tenon.nn.layers.margin_loss import MultiLabelMarginLoss as MultiLabelMarginLoss
from tenon.nn.layers.margin_loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from tenon.nn.layers.margin_loss import MultiMarginLoss as MultiMarginLoss
from tenon.nn.layers.margin_loss import SoftMarginLoss as SoftMarginLoss
from tenon.nn.layers.margin_loss import TripletMarginLoss as TripletMarginLoss
from tenon.nn.layers.margin_loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss

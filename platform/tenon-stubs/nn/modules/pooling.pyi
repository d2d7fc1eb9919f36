# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.pool_variants import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from tenon.nn.layers.pool_variants import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from tenon.nn.layers.pool_variants import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from tenon.nn.layers.pool_variants import FractionalMaxPool2d as FractionalMaxPool2d
from tenon.nn.layers.pool_variants import FractionalMaxPool3d as FractionalMaxPool3d
from tenon.nn.layers.pool_variants import LPPool1d as LPPool1d
from tenon.nn.layers.pool_variants import LPPool2d as LPPool2d
from tenon.nn.layers.pool_variants import LPPool3d as LPPool3d
from tenon.nn.layers.pool_variants import MaxUnpool1d as MaxUnpool1d
from tenon.nn.layers.pool_variants import MaxUnpool2d as MaxUnpool2d
from tenon.nn.layers.pool_variants import MaxUnpool3d as MaxUnpool3d
from tenon.nn.layers.pool import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from tenon.nn.layers.pool import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from tenon.nn.layers.pool import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from tenon.nn.layers.pool import AvgPool1d as AvgPool1d
from tenon.nn.layers.pool import AvgPool2d as AvgPool2d
from tenon.nn.layers.pool import AvgPool3d as AvgPool3d
from tenon.nn.layers.pool import MaxPool1d as MaxPool1d
from tenon.nn.layers.pool import MaxPool2d as MaxPool2d
from tenon.nn.layers.pool import MaxPool3d as MaxPool3d

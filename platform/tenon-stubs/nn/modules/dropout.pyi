# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.dropout import AlphaDropout as AlphaDropout
from tenon.nn.layers.dropout import Dropout as Dropout
from tenon.nn.layers.dropout import Dropout1d as Dropout1d
from tenon.nn.layers.dropout import Dropout2d as Dropout2d
from tenon.nn.layers.dropout import Dropout3d as Dropout3d
from tenon.nn.layers.dropout import FeatureAlphaDropout as FeatureAlphaDropout
from tenon.nn.layers.dropout import _DropoutNd as _DropoutNd

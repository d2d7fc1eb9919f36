# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.activation import CELU as CELU
from tenon.nn.layers.activation import ELU as ELU
from tenon.nn.layers.activation import GELU as GELU
from tenon.nn.layers.activation import GLU as GLU
from tenon.nn.layers.activation import SELU as SELU
from tenon.nn.layers.activation import Hardshrink as Hardshrink
from tenon.nn.layers.activation import Hardsigmoid as Hardsigmoid
from tenon.nn.layers.activation import Hardswish as Hardswish
from tenon.nn.layers.activation import Hardtanh as Hardtanh
from tenon.nn.layers.activation import LeakyReLU as LeakyReLU
from tenon.nn.layers.activation import LogSigmoid as LogSigmoid
from tenon.nn.layers.activation import Mish as Mish
from tenon.nn.layers.activation import PReLU as PReLU
from tenon.nn.layers.activation import ReLU as ReLU
from tenon.nn.layers.activation import ReLU6 as ReLU6
from tenon.nn.layers.activation import Sigmoid as Sigmoid
from tenon.nn.layers.activation import SiLU as SiLU
from tenon.nn.layers.activation import Softplus as Softplus
from tenon.nn.layers.activation import Softshrink as Softshrink
from tenon.nn.layers.activation import Softsign as Softsign
from tenon.nn.layers.activation import Tanh as Tanh
from tenon.nn.layers.activation import Tanhshrink as Tanhshrink
from tenon.nn.layers.activation import Threshold as Threshold
from tenon.nn.layers.attention import MultiheadAttention as MultiheadAttention
from tenon.nn.layers.randomized_relu import RReLU as RReLU
from tenon.nn.layers.softmax import LogSoftmax as LogSoftmax
from tenon.nn.layers.softmax import Softmax as Softmax
from tenon.nn.layers.softmax import Softmax2d as Softmax2d
from tenon.nn.layers.softmax import Softmin as Softmin

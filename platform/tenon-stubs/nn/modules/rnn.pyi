# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.recurrent import GRU as GRU
from tenon.nn.layers.recurrent import LSTM as LSTM
from tenon.nn.layers.recurrent import RNN as RNN
from tenon.nn.layers.recurrent import RNNBase as RNNBase
from tenon.nn.layers.recurrent_cells import GRUCell as GRUCell
from tenon.nn.layers.recurrent_cells import LSTMCell as LSTMCell
from tenon.nn.layers.recurrent_cells import RNNCell as RNNCell
from tenon.nn.layers.recurrent_cells import RNNCellBase as RNNCellBase

"""PyTorch's path ``nn.modules.rnn``; the code is in ``tenon.nn.layers.recurrent`` and ``recurrent_cells``."""

from tenon.nn.layers.recurrent import GRU, LSTM, RNN, RNNBase
from tenon.nn.layers.recurrent_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

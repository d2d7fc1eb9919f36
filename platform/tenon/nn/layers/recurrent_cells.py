"""Recurrent cells, one step at a time: ``RNNCell``, ``LSTMCell``, ``GRUCell``.

A cell is the op of its layer on a sequence of one step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon.engine.op import table
from tenon.errors import MissingForwardError, ModuleError, ModuleValueError
from tenon.kernels.whole_arrays import beside
from tenon.nn import init
from tenon.nn.functional.recurrent_cells import check_sizes, step
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.creation.factories import empty, zeros
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


class RNNCellBase(Module):
    """Base class of recurrent cells: parameters, validation, unbatched input."""

    __constants__: tuple[str, ...] = ("input_size", "hidden_size", "bias")
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(empty((rows, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            parameter = Parameter(empty(rows, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters uniformly within ``1 / sqrt(hidden_size)``."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        """Sizes, and what differs from the defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _states(
        self, input: Tensor, hx: Tensor | Sequence[Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return batched input and states, checked; without ``hx`` one state of zeros."""
        if input.dim() not in (1, 2):
            raise ModuleValueError(
                f"{type(self).__name__}: Expected input to be 1D or 2D, got {input.dim()}D instead"
            )
        several = not (hx is None or isinstance(hx, Tensor))
        states = () if hx is None else (hx,) if isinstance(hx, Tensor) else tuple(hx)
        for position, h in enumerate(states):
            if h is not None and h.dim() not in (1, 2):
                name = f"hx[{position}]" if several else "hidden"
                raise ModuleValueError(
                    f"{type(self).__name__}: Expected {name} to be 1D or 2D, got {h.dim()}D instead"
                )
        single = input.dim() == 1
        input = input.unsqueeze(0) if single else input
        if hx is None:
            check_sizes(input, (), self.input_size, self.hidden_size)
            zero = zeros(input.shape[0], self.hidden_size, dtype=input.dtype, device=input.device)
            return input, (beside(input, zero),)
        states = tuple(h.unsqueeze(0) for h in states) if single else states
        check_sizes(input, states, self.input_size, self.hidden_size)
        return input, states

    def _next(self, rows: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the states that follow ``states`` for the input ``rows[N, I]``."""
        raise MissingForwardError("RNNCellBase computes nothing itself. Use RNNCell, LSTMCell or GRUCell.")

    @property
    def _weights(self) -> tuple[Tensor | None, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh


class RNNCell(RNNCellBase):
    """``h = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or ``relu``."""

    __constants__ = ("input_size", "hidden_size", "bias", "nonlinearity")

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        device: DeviceLike = None, dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next hidden state."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise ModuleError(f"Unknown nonlinearity: {self.nonlinearity}. Use 'tanh' or 'relu'.")
        (h,) = self._next(*self._states(input, hx))
        return h if input.dim() == 2 else h.squeeze(0)

    def _next(self, rows: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return step(table.rnn_sequence, rows, *states, *self._weights, nonlinearity=self.nonlinearity)


class LSTMCell(RNNCellBase):
    """One step of a long short-term memory: the next hidden state and cell state."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
        """The next ``(h, c)`` for ``input`` and ``hx``, the last ``(h, c)``."""
        rows, states = self._states(input, hx)
        states = states if len(states) == 2 else states * 2
        states = self._next(rows, states)
        return states if input.dim() == 2 else tuple(s.squeeze(0) for s in states)

    def _next(self, rows: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return step(table.lstm_sequence, rows, *states, *self._weights, None)


class GRUCell(RNNCellBase):
    """One step of gated recurrent units: the next hidden state."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next hidden state."""
        (h,) = self._next(*self._states(input, hx))
        return h if input.dim() == 2 else h.squeeze(0)

    def _next(self, rows: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return step(table.gru_sequence, rows, *states, *self._weights)

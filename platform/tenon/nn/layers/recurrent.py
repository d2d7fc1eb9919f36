"""Recurrent layers over sequences: ``RNN``, ``LSTM``, ``GRU``.

Each layer and direction is one op (``tenon.ops.lstm_sequence``, ``gru_sequence`` or ``rnn_sequence``) over
rows in the order of a packed sequence; padded input of ``T`` steps has the same number of rows in each step.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tenon.engine.grad_mode import MODE
from tenon.engine.op import table
from tenon.engine.types import Forwarded
from tenon.errors import MissingForwardError, ModuleTypeError, ModuleValueError, ShapeError
from tenon.kernels.whole_arrays import beside
from tenon.nn import init
from tenon.nn.functional.recurrent import run_layers
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.nn.utils.rnn import PackedSequence
from tenon.ops.dtype_queries import title_of
from tenon.tensors.creation.factories import empty, zeros
from tenon.tensors.precision import runs_in
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.engine.types import Nested

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

#: Rows of a weight matrix per hidden unit.
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """Base class of ``RNN``, ``LSTM`` and ``GRU``: parameters, validation, iteration over layers."""

    __constants__ = (
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout",
        "bidirectional", "proj_size",
    )  # fmt: skip

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: DeviceLike = None, dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ModuleValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being"
                f" zeroed, got {dropout!r}"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects"
                f" num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        for name, value, kind in (
            ("bias", bias, bool), ("batch_first", batch_first, bool), ("input_size", input_size, int),
            ("hidden_size", hidden_size, int),
        ):  # fmt: skip
            if not isinstance(value, kind):
                raise ModuleTypeError(
                    f"{name} should be of type {kind.__name__}, got: {type(value).__name__}"
                )
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
        for name, size in sizes.items():
            if size <= 0:
                raise ModuleValueError(f"{name} must be greater than zero, got {size}")
        if proj_size < 0:
            raise ModuleValueError(
                f"proj_size should be a positive integer or zero to disable projections, got {proj_size}"
            )
        if proj_size >= hidden_size:
            raise ModuleValueError(
                f"proj_size has to be smaller than hidden_size: {proj_size} and {hidden_size}"
            )
        if mode not in _GATES:
            raise ModuleValueError(f"Unrecognized RNN mode: {mode}")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        #: Per layer and direction, the names of its parameters.
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: self._directions]:
                self._add_parameters(layer, f"_l{layer}{suffix}", device, dtype)
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _state_size(self) -> int:
        """Return the width of the hidden state."""
        return self.proj_size or self.hidden_size

    def _add_parameters(self, layer: int, suffix: str, device: DeviceLike, dtype: dtype | None) -> None:
        """Create the parameters of one layer and direction, whose names end in ``suffix``."""
        rows = _GATES[self.mode] * self.hidden_size
        width = self._state_size * self._directions if layer else self.input_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, width),
            "weight_hh": (rows, self._state_size),
        }
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        for name, shape in shapes.items():
            setattr(self, name + suffix, Parameter(empty(shape, device=device, dtype=dtype)))
        self._all_weights.append([name + suffix for name in shapes])

    def reset_parameters(self) -> None:
        """Draw all parameters uniformly within ``1 / sqrt(hidden_size)``."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: parameters need not be contiguous in memory."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Tensor | None]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise ModuleValueError or ShapeError unless ``input`` fits the weights."""
        weight = getattr(self, self._all_weights[0][0])
        if input.dtype != weight.dtype and MODE.casts is None:
            raise ModuleValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert"
                f" input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if input.dim() != expected:
            raise ShapeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.shape[-1]:
            raise ShapeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got"
                f" {input.shape[-1]}"
            )

    def _batch(self, input: Tensor, batch_sizes: Tensor | None) -> int:
        """Return the batch size of padded or packed input."""
        if batch_sizes is not None:
            return int(batch_sizes[0])
        batch: int = input.shape[0 if self.batch_first else 1]
        return batch

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Shape of the hidden state for ``input``."""
        return (self.num_layers * self._directions, self._batch(input, batch_sizes), self._state_size)

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Raise ShapeError, with ``msg``, unless ``hx`` has the expected shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise ShapeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Nested, batch_sizes: Tensor | None) -> None:
        """``check_input`` and ``check_hidden_size``."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Nested, permutation: Tensor | None) -> Nested:
        """The states with their batch axis permuted."""
        return hx if permutation is None else hx.index_select(1, permutation)

    def _initial(self, input: Tensor, batch_sizes: Tensor | None) -> Nested:
        """Return states of zeros."""
        shape = self.get_expected_hidden_size(input, batch_sizes)
        return beside(input, zeros(shape, dtype=input.dtype, device=input.device))

    def _check_ranks(self, input: Tensor, hx: Nested) -> None:
        """Raise ShapeError unless ``hx`` is batched as ``input`` is."""
        if hx is not None and hx.dim() != input.dim():
            rank = input.dim()
            raise ShapeError(
                f"For {'batched' if rank == 3 else 'unbatched'} {rank}-D input, hx should also be {rank}-D"
                f" but got {hx.dim()}-D tensor"
            )

    def _map_states(self, hx: Nested, function: Callable[[Tensor], Tensor]) -> Nested:
        """Return ``function`` of each state in ``hx``."""
        return function(hx)

    def forward(
        self, input: Tensor | PackedSequence, hx: Nested = None
    ) -> tuple[Tensor | PackedSequence, Nested]:
        """Outputs of all steps in the last layer, and the states after the last step in all layers."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ModuleValueError(
                f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D instead"
            )
        self._check_ranks(input, hx)
        batched = input.dim() == 3
        axis = 0 if self.batch_first else 1
        x = input if batched else input.unsqueeze(axis)
        if hx is None:
            hx = self._initial(x, None)
        elif not batched:
            hx = self._map_states(hx, lambda h: h.unsqueeze(1))
        self.check_forward_args(x, hx, None)
        steps_first = x.transpose(0, 1) if self.batch_first else x
        steps, batch = steps_first.shape[:2]
        if not steps:
            raise ShapeError("Expected sequence length to be larger than 0 in RNN")
        rows = steps_first.reshape(steps * batch, self.input_size)
        out, states = self._run_layers(rows, (batch,) * steps, hx)
        out = out.reshape(steps, batch, out.shape[1])
        out = out.transpose(0, 1) if self.batch_first else out
        if not batched:
            return out.squeeze(axis), self._map_states(states, lambda h: h.squeeze(1))
        return out, states

    def _forward_packed(self, packed: PackedSequence, hx: Nested) -> tuple[PackedSequence, Nested]:
        """Return ``forward`` of a packed sequence."""
        data, batch_sizes, order, back = packed
        hx = self._initial(data, batch_sizes) if hx is None else self.permute_hidden(hx, order)
        self.check_forward_args(data, hx, batch_sizes)
        out, states = self._run_layers(data, tuple(batch_sizes.tolist()), hx)
        return PackedSequence(out, batch_sizes, order, back), self.permute_hidden(states, back)

    def _run_layers(self, x: Tensor, sizes: tuple[int, ...], hx: Nested) -> tuple[Tensor, Nested]:
        """Run all layers over packed rows; return the last one's outputs and the final states."""
        states = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        for state in states:
            if state.dtype != x.dtype and MODE.casts is None:
                raise ShapeError(
                    "Input and hidden tensors are not the same dtype, found input tensor with"
                    f" {title_of(x)} and hidden tensor with {title_of(state)}"
                )
        dropout = self.dropout if self.training else 0.0
        out, finals = run_layers(
            self._run_layer, x, sizes, states, self.all_weights, self._directions, dropout
        )
        return out, finals[0] if len(finals) == 1 else finals

    def _run_layer(
        self, x: Tensor, states: list[Tensor], weights: list[Tensor], sizes: tuple[int, ...], reverse: bool
    ) -> tuple[Tensor, ...]:
        """Run one layer in one direction over packed rows; return outputs and final states."""
        raise MissingForwardError("RNNBase computes nothing itself. Use RNN, LSTM or GRU.")

    def extra_repr(self) -> str:
        """Sizes, and what differs from the defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
            ("bidirectional", False),
        ):  # fmt: skip
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("proj_size", 0)


def _with_biases(weights: list[Tensor]) -> Sequence[Tensor | None]:
    """Return ``weight_ih, weight_hh, bias_ih, bias_hh``, with None for absent biases."""
    return weights if len(weights) == 4 else [*weights, None, None]


def _refuse_projection(arguments: dict[str, object]) -> None:
    """Raise ModuleValueError if ``proj_size`` is among the keyword arguments."""
    if "proj_size" in arguments:
        raise ModuleValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """Elman network: ``h = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or ``relu``.

    Arguments: ``input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False,
    dropout=0.0, bidirectional=False, device=None, dtype=None``.
    """

    def __init__(self, *args: Forwarded, **kwargs: Forwarded) -> None:
        _refuse_projection(kwargs)
        if len(args) > 3:
            nonlinearity, args = args[3], args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ModuleValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity

    @runs_in("lower")
    def _run_layer(
        self, x: Tensor, states: list[Tensor], weights: list[Tensor], sizes: tuple[int, ...], reverse: bool
    ) -> tuple[Tensor, ...]:
        attrs = {"sizes": sizes, "reverse": reverse, "nonlinearity": self.nonlinearity}
        return table.rnn_sequence(x, *states, *_with_biases(weights), **attrs)


class GRU(RNNBase):
    """Gated recurrent units: ``h = (1 - z) * n + z * h`` with gates ``r``, ``z``, ``n``.

    Arguments: ``input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
    bidirectional=False, device=None, dtype=None``.
    """

    def __init__(self, *args: Forwarded, **kwargs: Forwarded) -> None:
        _refuse_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)

    @runs_in("widest")
    def _run_layer(
        self, x: Tensor, states: list[Tensor], weights: list[Tensor], sizes: tuple[int, ...], reverse: bool
    ) -> tuple[Tensor, ...]:
        return table.gru_sequence(x, *states, *_with_biases(weights), sizes=sizes, reverse=reverse)


class LSTM(RNNBase):
    """Long short-term memory: cell states ``c = f * c + i * g``, hidden states ``h = o * tanh(c)``.

    Arguments: ``input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
    bidirectional=False, proj_size=0, device=None, dtype=None``; ``proj_size`` projects the hidden states.
    """

    def __init__(self, *args: Forwarded, **kwargs: Forwarded) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Shape of the cell state for ``input``."""
        return (self.num_layers * self._directions, self._batch(input, batch_sizes), self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: Nested, batch_sizes: Tensor | None) -> None:
        """``check_input`` and ``check_hidden_size`` of both states."""
        self.check_input(input, batch_sizes)
        shape = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], shape, "Expected hidden[0] size {}, got {}")
        shape = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(hidden[1], shape, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Nested, permutation: Tensor | None) -> Nested:
        """Both states with their batch axis permuted."""
        return self._map_states(hx, lambda h: RNNBase.permute_hidden(self, h, permutation))

    def _initial(self, input: Tensor, batch_sizes: Tensor | None) -> Nested:
        cells = self.get_expected_cell_size(input, batch_sizes)
        zero = beside(input, zeros(cells, dtype=input.dtype, device=input.device))
        return (super()._initial(input, batch_sizes) if self.proj_size else zero), zero

    def _check_ranks(self, input: Tensor, hx: Nested) -> None:
        rank = input.dim()
        if hx is not None and (hx[0].dim() != rank or hx[1].dim() != rank):
            raise ShapeError(
                f"For {'batched' if rank == 3 else 'unbatched'} {rank}-D input, hx and cx should also be"
                f" {rank}-D but got ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
            )

    def _map_states(self, hx: Nested, function: Callable[[Tensor], Tensor]) -> Nested:
        return function(hx[0]), function(hx[1])

    @runs_in("lower")
    def _run_layer(
        self, x: Tensor, states: list[Tensor], weights: list[Tensor], sizes: tuple[int, ...], reverse: bool
    ) -> tuple[Tensor, ...]:
        projection = weights[-1] if self.proj_size else None
        rest = _with_biases(weights[:-1] if self.proj_size else weights)
        return table.lstm_sequence(x, *states, *rest, projection, sizes=sizes, reverse=reverse)

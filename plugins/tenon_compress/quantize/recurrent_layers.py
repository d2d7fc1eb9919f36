"""Recurrent layers and cells with int8 weights.

Each weight ``weight_ih_l0`` has a scale ``weight_ih_l0_scale``; inputs are quantized at each call, states at
each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tenon import float32, ops
from tenon.nn.functional.recurrent_cells import step
from tenon.nn.layers.recurrent import GRU, LSTM, RNN
from tenon.nn.layers.recurrent_cells import GRUCell, LSTMCell, RNNCell
from tenon.nn.module import Module
from tenon_compress.quantize.integers import check_float32, to_int8
from tenon_compress.quantize.layers import QuantizedLayer, in_float32

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Nested


class DynamicRecurrent(QuantizedLayer):
    """Base class, before the float class, whose constructor arguments are ``named``."""

    named: ClassVar[tuple[str, ...]]

    def __init__(self, *sizes: Any, **options: Any) -> None:  # the float class's arguments
        super().__init__(*sizes, **options)
        self._set_weights({name: self._parameters.pop(name) for name in list(self._parameters)})

    def forward(self, input: Nested, hx: Nested = None) -> Nested:
        """Compute as the float layer does."""
        return in_float32(super().forward, input, hx)

    def reset_parameters(self) -> None:
        """Do nothing: the weights are loaded, not initialized."""

    def _set_weights(self, tensors: Mapping[str, Tensor | None]) -> None:
        for name, tensor in tensors.items():
            if tensor is None or tensor.dim() == 1:
                self.set_buffers(**{name: None if tensor is None else tensor.to(float32)})
                continue
            values, scale = to_int8(tensor)
            self.set_buffers(**{name: values, f"{name}_scale": scale})

    @classmethod
    def of(cls, layer: Module) -> Self:
        """Return the quantized layer of a float one; QuantizationError unless it is float32."""
        weights = dict(layer.named_parameters(recurse=False))
        check_float32(f"this {type(layer).__name__}", next(iter(weights.values())))
        quantized = cls(**{name: getattr(layer, name) for name in cls.named})
        quantized._set_weights(weights)
        return quantized.train(layer.training)

    def numbers(self) -> dict[str, object]:
        """The sizes and options."""
        return {name: getattr(self, name) for name in self.named}


class _Layer(DynamicRecurrent):
    named: ClassVar[tuple[str, ...]] = (
        "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
    )  # fmt: skip
    _all_weights: list[list[str]]

    def __init__(self, *sizes: Any, **options: Any) -> None:  # the float class's arguments
        super().__init__(*sizes, **options)
        # What a call reads of each layer and direction; the first tensor has the dtype of the input.
        self._all_weights = [[f"{n[0]}_scale", n[0], f"{n[1]}_scale", *n[1:]] for n in self._all_weights]

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The buffers of each layer and direction."""
        return [[self.stored(name) for name in names] for names in self._all_weights]


def _ordered(weights: list[Tensor]) -> tuple[Tensor | None, ...]:
    """Return the weights of a layer in the order of the ops' arguments, with None for absent biases."""
    s_ih, w_ih, s_hh, w_hh, *biases = weights
    return w_ih, s_ih, w_hh, s_hh, *(biases or (None, None))


class DynamicLSTM(_Layer, LSTM):
    """``LSTM`` without projection, with int8 weights."""

    def _run_layer(
        self, x: Tensor, states: list[Tensor], weights: list[Tensor], sizes: tuple[int, ...], reverse: bool
    ) -> tuple[Tensor, ...]:
        return ops.int8_lstm_sequence(x, *states, *_ordered(weights), sizes=sizes, reverse=reverse)


class DynamicGRU(_Layer, GRU):
    """``GRU`` with int8 weights."""

    def _run_layer(
        self, x: Tensor, states: list[Tensor], weights: list[Tensor], sizes: tuple[int, ...], reverse: bool
    ) -> tuple[Tensor, ...]:
        return ops.int8_gru_sequence(x, *states, *_ordered(weights), sizes=sizes, reverse=reverse)


class DynamicRNN(_Layer, RNN):
    """``RNN`` with int8 weights."""

    named: ClassVar[tuple[str, ...]] = (*_Layer.named, "nonlinearity")

    def _run_layer(
        self, x: Tensor, states: list[Tensor], weights: list[Tensor], sizes: tuple[int, ...], reverse: bool
    ) -> tuple[Tensor, ...]:
        attrs = {"sizes": sizes, "reverse": reverse, "nonlinearity": self.nonlinearity}
        return ops.int8_rnn_sequence(x, *states, *_ordered(weights), **attrs)


class _Cell(DynamicRecurrent):
    named: ClassVar[tuple[str, ...]] = ("input_size", "hidden_size", "bias")

    @property
    def _weights_and_biases(self) -> tuple[Tensor | None, ...]:
        names = ("weight_ih", "weight_ih_scale", "weight_hh", "weight_hh_scale", "bias_ih", "bias_hh")
        return tuple(self._buffers[name] for name in names)


class DynamicLSTMCell(_Cell, LSTMCell):
    """``LSTMCell`` with int8 weights."""

    def _next(self, rows: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return step(ops.int8_lstm_sequence, rows, *states, *self._weights_and_biases)


class DynamicGRUCell(_Cell, GRUCell):
    """``GRUCell`` with int8 weights."""

    def _next(self, rows: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return step(ops.int8_gru_sequence, rows, *states, *self._weights_and_biases)


class DynamicRNNCell(_Cell, RNNCell):
    """``RNNCell`` with int8 weights."""

    named: ClassVar[tuple[str, ...]] = (*_Cell.named, "nonlinearity")

    def _next(self, rows: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return step(
            ops.int8_rnn_sequence, rows, *states, *self._weights_and_biases, nonlinearity=self.nonlinearity
        )


#: The quantized class of each float class.
DYNAMIC: dict[type[Module], type[DynamicRecurrent]] = {
    LSTM: DynamicLSTM,
    GRU: DynamicGRU,
    RNN: DynamicRNN,
    LSTMCell: DynamicLSTMCell,
    GRUCell: DynamicGRUCell,
    RNNCell: DynamicRNNCell,
}

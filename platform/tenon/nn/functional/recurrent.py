"""Recurrent networks from their weights: ``torch.lstm``, ``gru``, ``rnn_tanh`` and ``rnn_relu``.

``run_layers`` runs all layers and directions; the modules of ``layers/recurrent.py`` use it too. Each
function has torch's two forms: padded sequences ``(input, hx, params, has_biases, num_layers, dropout, train,
bidirectional, batch_first)``, and packed rows ``(data, batch_sizes, hx, params, has_biases, num_layers,
dropout, train, bidirectional)``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.rerouting import register
from tenon.engine.op import table
from tenon.errors import ModuleTypeError, ShapeError
from tenon.nn.functional.dropout import dropout as drop
from tenon.tensors.precision import runs_in
from tenon.tensors.tensor import Tensor

__all__ = ["gru", "lstm", "rnn_relu", "rnn_tanh"]


#: ``run_layer(x, states, weights, sizes, reverse)`` runs one layer in one direction over packed rows, and
#: returns its outputs and final states.
RunLayer: TypeAlias = Callable[..., tuple[Tensor, ...]]


def run_layers(
    run_layer: RunLayer, x: Tensor, sizes: tuple[int, ...], states: tuple[Tensor, ...],
    weights: Sequence[Sequence[Tensor]], directions: int, dropout: float,
) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
    """Run all layers over packed rows; return the last one's outputs, and the final states, stacked by kind.

    ``weights`` has a sequence for each layer and direction.
    """
    ends: list[tuple[Tensor, ...]] = []
    for first in range(0, len(weights), directions):
        outs = []
        for direction in range(directions):
            arguments = [s[first + direction] for s in states]
            out, *last = run_layer(x, arguments, list(weights[first + direction]), sizes, bool(direction))
            outs.append(out)
            ends.append(tuple(last))
        x = outs[0] if len(outs) == 1 else table.cat(*outs, axis=1)
        if dropout and first + directions < len(weights):
            x = drop(x, dropout, True)
    finals = (
        kind[0].unsqueeze(0) if len(kind) == 1 else table.stack(*kind, axis=0)
        for kind in zip(*ends, strict=True)
    )
    return x, tuple(finals)


def _run(
    name: str,
    run_layer: RunLayer,
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    *,
    sizes: tuple[int, ...] | None,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Return outputs and final states for padded input, or for packed rows of ``sizes`` if that is not
    None."""
    states, directions = (hx,) if isinstance(hx, Tensor) else tuple(hx), 2 if bidirectional else 1
    per_layer, remainder = divmod(len(params), num_layers * directions)
    if remainder or not per_layer:
        raise ShapeError(
            f"{name}: {len(params)} weights cannot be those of {num_layers} layers, {directions} directions."
        )
    weights = [params[i : i + per_layer] for i in range(0, len(params), per_layer)]
    dropout = dropout if train else 0.0
    if sizes is not None:
        out, finals = run_layers(run_layer, input, sizes, states, weights, directions, dropout)
        return out, *finals
    rows = input.transpose(0, 1) if batch_first else input
    steps, batch = rows.shape[:2]
    if not steps:
        raise ShapeError("Expected sequence length to be larger than 0 in RNN")
    flat = rows.reshape(steps * batch, rows.shape[2])
    out, finals = run_layers(run_layer, flat, (batch,) * steps, states, weights, directions, dropout)
    out = out.reshape(steps, batch, out.shape[1])
    return out.transpose(0, 1) if batch_first else out, *finals


def _dispatch_form(
    name: str,
    run_layer: RunLayer,
    has_several_states: bool,
    args: tuple[Any, ...],  # of two signatures
) -> tuple[Tensor, ...]:
    """Call ``_run`` with the arguments of the padded or of the packed form.

    In the packed form a tensor, ``batch_sizes``, comes second, and ``hx`` third.
    """
    if len(args) != 9:
        raise ModuleTypeError(
            f"{name}() takes 9 arguments, of padded or of packed sequences, got {len(args)}."
        )
    packed = isinstance(args[1] if has_several_states else args[2], Tensor)
    input, *rest = args
    sizes = tuple(rest.pop(0).tolist()) if packed else None
    hx, params, biased, *more = rest
    batch_first = False if packed else bool(more.pop())
    run_layer = functools.partial(run_layer, biased=bool(biased))
    return _run(name, run_layer, input, hx, params, *more, sizes=sizes, batch_first=batch_first)


@runs_in("lower")
def _lstm(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], sizes: Sequence[int], reverse: bool, *,
    biased: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    layer_weights = weights[:4] if biased else [*weights[:2], None, None]
    projection = weights[4:] if biased else weights[2:]
    return table.lstm_sequence(
        x, *states, *layer_weights, projection[0] if projection else None, sizes=sizes, reverse=reverse
    )


@runs_in("widest")
def _gru(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], sizes: Sequence[int], reverse: bool, *,
    biased: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    layer_weights = weights if biased else [*weights, None, None]
    return table.gru_sequence(x, *states, *layer_weights, sizes=sizes, reverse=reverse)


@runs_in("widest")
def _rnn(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], sizes: Sequence[int], reverse: bool, *,
    biased: bool, nonlinearity: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    layer_weights = weights if biased else [*weights, None, None]
    return table.rnn_sequence(
        x, *states, *layer_weights, sizes=sizes, reverse=reverse, nonlinearity=nonlinearity
    )


def lstm(*args: Tensor | float | Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, final hidden states and final cells of a long short-term memory; see the module for the
    arguments."""
    out, h, c = _dispatch_form("lstm", _lstm, True, args)
    return out, h, c


def gru(*args: Tensor | float | Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Outputs and final states of gated recurrent units; see the module for the arguments."""
    out, h = _dispatch_form("gru", _gru, False, args)
    return out, h


def rnn_tanh(*args: Tensor | float | Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Outputs and final states of an Elman network with tanh; see the module for the arguments."""
    out, h = _dispatch_form("rnn_tanh", functools.partial(_rnn, nonlinearity="tanh"), False, args)
    return out, h


def rnn_relu(*args: Tensor | float | Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Outputs and final states of an Elman network with ReLU; see the module for the arguments."""
    out, h = _dispatch_form("rnn_relu", functools.partial(_rnn, nonlinearity="relu"), False, args)
    return out, h


register("torch", {name: globals()[name] for name in __all__})

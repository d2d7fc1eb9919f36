"""Recurrent networks from their weights: ``torch.lstm``, ``gru``, ``rnn_tanh`` and ``rnn_relu``.

``walk`` goes through the layers and directions; the modules of ``layers/recurrent.py`` use it too. Each
function has torch's two forms: padded sequences ``(input, hx, params, has_biases, num_layers, dropout, train,
bidirectional, batch_first)``, and packed rows ``(data, batch_sizes, hx, params, has_biases, num_layers,
dropout, train, bidirectional)``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.rerouting import register
from tenon.engine.op import table
from tenon.engine.precision import runs_in
from tenon.errors import ModuleTypeError, ShapeError
from tenon.nn.functional.dropout import dropout as drop
from tenon.tensors.tensor import Tensor

__all__ = ["gru", "lstm", "rnn_relu", "rnn_tanh"]


def walk(
    one: Callable[..., Any], x: Tensor, sizes: tuple[int, ...], states: tuple[Any, ...],
    weights: Sequence[Sequence[Any]], directions: int, dropout: float,
) -> tuple[Any, tuple[Any, ...]]:  # fmt: skip
    """All layers over packed rows: the last one's outputs, and the final states, stacked by kind.

    ``one(x, states, weights, sizes, reverse)`` is one layer in one direction, ``weights`` are those of each.
    """
    ends: list[tuple[Any, ...]] = []
    for place in range(0, len(weights), directions):
        outs = []
        for direction in range(directions):
            own = [s[place + direction] for s in states]
            out, *last = one(x, own, list(weights[place + direction]), sizes, bool(direction))
            outs.append(out)
            ends.append(tuple(last))
        x = outs[0] if len(outs) == 1 else table.cat(*outs, axis=1)
        if dropout and place + directions < len(weights):
            x = drop(x, dropout, True)
    finals = (
        kind[0].unsqueeze(0) if len(kind) == 1 else table.stack(*kind, axis=0)
        for kind in zip(*ends, strict=True)
    )
    return x, tuple(finals)


def _run(
    name: str,
    one: Callable[..., Any],
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Any],
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    *,
    sizes: tuple[int, ...] | None,
    batch_first: bool,
) -> tuple[Any, ...]:
    states, directions = (hx,) if isinstance(hx, Tensor) else tuple(hx), 2 if bidirectional else 1
    each, left = divmod(len(params), num_layers * directions)
    if left or not each:
        raise ShapeError(
            f"{name}: {len(params)} weights cannot be those of {num_layers} layers, {directions} directions."
        )
    weights = [params[i : i + each] for i in range(0, len(params), each)]
    dropout = dropout if train else 0.0
    if sizes is not None:
        out, finals = walk(one, input, sizes, states, weights, directions, dropout)
        return out, *finals
    rows = input.transpose(0, 1) if batch_first else input
    steps, batch = rows.shape[:2]
    if not steps:
        raise ShapeError("Expected sequence length to be larger than 0 in RNN")
    flat = rows.reshape(steps * batch, rows.shape[2])
    out, finals = walk(one, flat, (batch,) * steps, states, weights, directions, dropout)
    out = out.reshape(steps, batch, out.shape[1])
    return out.transpose(0, 1) if batch_first else out, *finals


def _either(name: str, one: Callable[..., Any], several: bool, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``_run`` for the padded or the packed form, told apart by what stands second or third."""
    if len(args) != 9:
        raise ModuleTypeError(
            f"{name}() takes 9 arguments, of padded or of packed sequences, got {len(args)}."
        )
    packed = isinstance(args[1] if several else args[2], Tensor)
    input, *rest = args
    sizes = tuple(rest.pop(0).tolist()) if packed else None
    hx, params, biased, *more = rest
    batch_first = False if packed else bool(more.pop())
    one = functools.partial(one, biased=bool(biased))
    return _run(name, one, input, hx, params, *more, sizes=sizes, batch_first=batch_first)


@runs_in("lower")
def _lstm(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    sizes: Sequence[int],
    reverse: bool,
    *,
    biased: bool,
) -> tuple[Tensor, ...]:
    own, left = (weights[:4], weights[4:]) if biased else ([*weights[:2], None, None], weights[2:])
    return table.lstm_sequence(x, *states, *own, left[0] if left else None, sizes=sizes, reverse=reverse)


@runs_in("widest")
def _gru(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    sizes: Sequence[int],
    reverse: bool,
    *,
    biased: bool,
) -> tuple[Tensor, ...]:
    own = weights if biased else [*weights, None, None]
    return table.gru_sequence(x, *states, *own, sizes=sizes, reverse=reverse)


@runs_in("widest")
def _rnn(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    sizes: Sequence[int],
    reverse: bool,
    *,
    biased: bool,
    nonlinearity: str,
) -> tuple[Tensor, ...]:
    own = weights if biased else [*weights, None, None]
    return table.rnn_sequence(x, *states, *own, sizes=sizes, reverse=reverse, nonlinearity=nonlinearity)


def lstm(*args: Tensor | float | Sequence[Tensor]) -> tuple[Any, Any, Any]:
    """Outputs, final hidden states and final cells of a long short-term memory; see the module's forms."""
    out, h, c = _either("lstm", _lstm, True, args)
    return out, h, c


def gru(*args: Tensor | float | Sequence[Tensor]) -> tuple[Any, Any]:
    """Outputs and final states of gated recurrent units; see the module's forms."""
    out, h = _either("gru", _gru, False, args)
    return out, h


def rnn_tanh(*args: Tensor | float | Sequence[Tensor]) -> tuple[Any, Any]:
    """Outputs and final states of a recurrent network of tanh; see the module's forms."""
    out, h = _either("rnn_tanh", functools.partial(_rnn, nonlinearity="tanh"), False, args)
    return out, h


def rnn_relu(*args: Tensor | float | Sequence[Tensor]) -> tuple[Any, Any]:
    """Outputs and final states of a recurrent network of relu; see the module's forms."""
    out, h = _either("rnn_relu", functools.partial(_rnn, nonlinearity="relu"), False, args)
    return out, h


register("torch", {name: globals()[name] for name in __all__})

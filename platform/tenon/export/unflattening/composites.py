"""Layers that consist of several ops: to which layer parameters of given names and shapes may belong, and the
arguments with which it may be called."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import TypeAlias

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.types import Nested
from tenon.errors import TenonError
from tenon.graph.graph import Node, Ref
from tenon.nn.layers.attention import MultiheadAttention
from tenon.nn.layers.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tenon.nn.layers.recurrent import GRU, LSTM, RNN, RNNBase
from tenon.nn.layers.recurrent_cells import GRUCell, LSTMCell, RNNCell
from tenon.nn.module import Module
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor

#: The positional and keyword arguments of a call of a layer: tensors of the right shapes and dtypes.
Example: TypeAlias = tuple[tuple[Nested, ...], dict[str, Nested]]
#: A layer without its tensors, and the ways in which it may be called.
Candidate: TypeAlias = tuple[Module, list[Example]]
#: The nodes of a layer's parameters by their names in it.
Parameters: TypeAlias = Mapping[str, Node]
#: Node -> the calls that read it.
Users: TypeAlias = Mapping[Node, Sequence[Node]]

#: Names of parameters that indicate a kind of layer, with the names of all parameters of that layer.
SIGNS = ("weight_ih_l0", "weight_ih", "in_proj_weight", "q_proj_weight", "weight")


def candidates(sign: str, own: Parameters, users: Users) -> Iterator[Candidate]:
    """Yield the layers to which the parameter ``sign`` with its neighbours ``own`` may belong."""
    try:
        match sign:
            case "weight_ih_l0":
                yield from _recurrent(own, users)
            case "weight_ih":
                yield from _cell(own, users)
            case "weight":
                yield from _transposed(own, users)
            case _:
                yield from _attention(own, users)
    except (TenonError, KeyError, ZeroDivisionError):
        return  # parameters of such names, but not of such a layer


def _reader(own: Parameters, name: str, users: Users) -> Node | None:
    return next(iter(users.get(own[name], ())), None)


def _zeros(*shape: int, like: Node) -> Tensor:
    return wrap(np.zeros(shape, like.avals[0].dtype), device="cpu")


#: Op -> the layer, the cell, and the number of gates.
_SEQUENCES: Mapping[str, tuple[Callable[..., RNNBase], Callable[..., Module], int]] = {
    "lstm_sequence": (LSTM, LSTMCell, 4),
    "gru_sequence": (GRU, GRUCell, 3),
    "rnn_sequence": (RNN, RNNCell, 1),
}


def _recurrent(own: Parameters, users: Users) -> Iterator[Candidate]:
    reader = _reader(own, "weight_ih_l0", users)
    if reader is None or reader.name not in _SEQUENCES or len(set(reader.attrs["sizes"])) != 1:
        return
    kind, _, gates = _SEQUENCES[reader.name]
    weight = own["weight_ih_l0"]
    rows, inputs = weight.avals[0].shape
    hidden = rows // gates
    layers = sum(f"weight_ih_l{n}" in own for n in range(len(own)))
    bidirectional = "weight_ih_l0_reverse" in own
    options: dict[str, object] = {"bias": "bias_ih_l0" in own, "bidirectional": bidirectional}
    projected = hidden
    if "weight_hr_l0" in own:
        projected = own["weight_hr_l0"].avals[0].shape[0]
        options["proj_size"] = projected
    if kind is RNN:
        options["nonlinearity"] = reader.attrs["nonlinearity"]
    length, batch = len(reader.attrs["sizes"]), reader.attrs["sizes"][0]
    states = layers * (1 + bidirectional)
    for rate, batch_first in itertools.product(_rates(users) if layers > 1 else [0.0], (True, False)):
        layer: RNNBase = kind(
            inputs, hidden, layers, batch_first=batch_first, dropout=rate, device="meta", **options
        )
        layer.train(rate > 0)
        shapes: list[tuple[int, ...]] = [(batch, length) if batch_first else (length, batch)]
        shapes += [(length,)] if batch == 1 and not batch_first else []
        examples: list[Example] = []
        for shape in shapes:
            x = _zeros(*shape, inputs, like=weight)
            middle = (batch,) if len(shape) == 2 else ()
            h, c = (_zeros(states, *middle, width, like=weight) for width in (projected, hidden))
            examples += [((x,), {}), ((x, (h, c) if kind is LSTM else h), {})]
        yield layer, examples


def _cell(own: Parameters, users: Users) -> Iterator[Candidate]:
    reader = _reader(own, "weight_ih", users)
    if reader is None or reader.name not in _SEQUENCES or len(reader.attrs["sizes"]) != 1:
        return
    _, kind, gates = _SEQUENCES[reader.name]
    weight, (batch,) = own["weight_ih"], reader.attrs["sizes"]
    rows, inputs = weight.avals[0].shape
    hidden = rows // gates
    options = {"nonlinearity": reader.attrs["nonlinearity"]} if kind is RNNCell else {}
    layer = kind(inputs, hidden, "bias_ih" in own, device="meta", **options).eval()
    examples: list[Example] = []
    for shape in [(batch,), *([()] if batch == 1 else [])]:
        x, h, c = (_zeros(*shape, width, like=weight) for width in (inputs, hidden, hidden))
        examples += [((x,), {}), ((x, (h, c) if kind is LSTMCell else h), {})]
    yield layer, examples


def _transposed(own: Parameters, users: Users) -> Iterator[Candidate]:
    reader = _reader(own, "weight", users)
    if reader is None or reader.name != "conv_input_grad" or reader.args[1] != own["weight"].out():
        return
    inputs, outputs, *kernel = own["weight"].avals[0].shape
    kind = {1: ConvTranspose1d, 2: ConvTranspose2d, 3: ConvTranspose3d}[len(kernel)]
    names = ("sizes", "stride", "padding", "dilation", "groups")
    sizes, stride, padding, dilation, groups = (reader.attrs[name] for name in names)
    x = reader.args[0].aval
    axes = zip(sizes, x.shape[2:], stride, padding, dilation, kernel, strict=True)
    rest = tuple(size - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for size, n, s, p, d, k in axes)
    layer = kind(
        inputs, outputs * groups, tuple(kernel), stride, padding, rest, groups, "bias" in own, dilation,
        device="meta",
    )  # fmt: skip
    yield layer.eval(), [((_zeros(*x.shape, like=reader),), {})]


def _rates(users: Users) -> list[float]:
    """Return the probabilities with which a layer may drop: 0 in evaluation, or those found in the graph."""
    found = {node.attrs["p"] for node in users if node.kind == "call" and node.name == "dropout_mask"}
    return [0.0, *sorted(found)]


#: The number of calls after its first ones in which an attention's head width and masks are searched.
_STEPS = 8


def _attention(own: Parameters, users: Users) -> Iterator[Candidate]:
    separate = "q_proj_weight" in own
    weights = [own[f"{n}_proj_weight"] for n in "qkv"] if separate else [own["in_proj_weight"]]
    width = own["out_proj.weight"].avals[0].shape[0]
    kwidth, vwidth = (weights[n].avals[0].shape[1] if separate else width for n in (1, 2))
    inputs = _projected(weights, users)
    if not inputs or any(len(aval.shape) != 3 for aval in inputs):
        return
    near: list[Node] = weights
    reached = {*near}
    for _ in range(_STEPS):
        near = [n for each in near for n in users.get(each, ()) if n not in reached]
        reached.update(near)
    calls = [node for node in reached if node.kind == "call"]
    avals = {aval for node in calls for aval in node.avals}
    heads = {a.shape[-2] for a in avals if len(a.shape) > 2 and a.shape[-2] * a.shape[-1] == width}
    heads |= {a.shape[1] for a in avals if len(a.shape) == 4 and a.shape[1] * a.shape[-1] == width}
    every = {aval for node in users for aval in node.avals}
    for rate, count, batch_first in itertools.product(_rates(users), sorted(heads), (True, False)):
        layer = MultiheadAttention(
            width, count, dropout=rate, bias="in_proj_bias" in own, add_bias_kv="bias_k" in own, kdim=kwidth,
            vdim=vwidth, batch_first=batch_first, device="meta",
        )  # fmt: skip
        layer.train(rate > 0)
        yield layer, list(_attention_calls(inputs, every, count, batch_first))


def _projected(weights: Sequence[Node], users: Users) -> list[Aval]:
    """Return the query, or query and key, or query, key and value, that are multiplied by the weights."""
    found: dict[tuple[int, int], Aval] = {}
    for number, weight in enumerate(weights):
        for node in users.get(weight, ()):
            for reader in users.get(node, ()) if node.name == "split" else (node,):
                if reader.name == "linear" and isinstance(reader.args[0], Ref):
                    found.setdefault((number, reader.args[1].index), reader.args[0].aval)
    return [found[place] for place in sorted(found)]


def _attention_calls(
    inputs: Sequence[Aval], avals: Set[Aval], heads: int, batch_first: bool
) -> Iterator[Example]:
    """Yield the ways to call an attention layer, with the masks for which there are values of such shapes."""

    def made(aval: Aval) -> Tensor:
        length, batch, width = aval.shape
        shape = (batch, length, width) if batch_first else (length, batch, width)
        return wrap(np.zeros(shape, aval.dtype), device="cpu")

    tensors = [made(aval) for aval in inputs]
    q, k, v = (tensors * 3)[:3] if len(tensors) == 1 else (tensors + tensors[-1:])[:3]
    (length, batch, _), (keys, _, _) = inputs[0].shape, inputs[min(1, len(inputs) - 1)].shape
    kinds = (np.dtype(bool), inputs[0].dtype)
    shapes = [(length, keys), (batch * heads, length, keys)]
    masks = [Aval(shape, kind) for kind in kinds for shape in shapes if Aval(shape, kind) in avals]
    paddings = [Aval((batch, keys), kind) for kind in kinds if Aval((batch, keys), kind) in avals]
    for mask in (None, *masks):
        for padding in (None, *paddings):
            given = {
                name: wrap(np.zeros(aval.shape, aval.dtype), device="cpu")
                for name, aval in (("attn_mask", mask), ("key_padding_mask", padding))
                if aval is not None
            }
            yield (q, k, v), {**given, "need_weights": False}
            yield (q, k, v), given
            yield (q, k, v), {**given, "average_attn_weights": False}
            if mask is not None:
                yield (q, k, v), {**given, "need_weights": False, "is_causal": True}

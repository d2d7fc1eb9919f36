"""Recurrent layers and cells against PyTorch: values, gradients, second order, packed sequences, every option."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tenon
from tenon import nn

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.together,
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]

TOLERANCE = {"float32": 2e-5, "float64": 1e-9}
KINDS = ("RNN", "LSTM", "GRU")


def pair(kind, *args, dtype="float32", seed=3, **options):
    """The same layer in both libraries, from the same seed."""
    made = []
    for library in (tenon, torch):
        library.manual_seed(seed)
        made.append(getattr(library.nn, kind)(*args, **options).to(getattr(library, dtype)))
    return made


def numbers(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def both(array, grad=True):
    return [lib.from_numpy(array.copy()).requires_grad_(grad) for lib in (tenon, torch)]


def flat(result):
    """The tensors in a nested structure of tuples and packed sequences."""
    if isinstance(result, nn.utils.rnn.PackedSequence | torch.nn.utils.rnn.PackedSequence):
        return [result.data]
    if isinstance(result, tuple):
        return [t for r in result for t in flat(r)]
    return [result]


def grads(library, results, leaves, order):
    total = sum(
        (t * library.linspace(-1, 2, t.numel(), dtype=t.dtype).reshape(t.shape)).sum() for t in results
    )
    found = list(library.autograd.grad(total, leaves, create_graph=order > 1))
    if order > 1:
        again = sum((g * g).sum() for g in found)
        found += [g for g in library.autograd.grad(again, leaves, allow_unused=True) if g is not None]
    return found


def same(mine, theirs, tolerance):
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        a, b = a.detach().float().numpy(), b.detach().float().numpy()
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max(initial=0)))


def agree(layers, call, inputs, order=1, tolerance=None):
    """``call(library, layer, *inputs)`` gives the same results and gradients in both libraries."""
    found = []
    for place, (library, layer) in enumerate(zip((tenon, torch), layers, strict=True)):
        own = [pair[place] for pair in inputs]
        results = flat(call(library, layer, *own))
        leaves = [t for t in own if t.requires_grad] + list(layer.parameters())
        found.append([*results, *grads(library, results, leaves, order)])
    dtype = str(found[1][0].dtype).removeprefix("torch.")
    same(*found, TOLERANCE[dtype] if tolerance is None else tolerance)


@pytest.mark.draws
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2},
        {"bidirectional": True},
        {"num_layers": 2, "bidirectional": True, "bias": False},
        {"batch_first": True, "num_layers": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_layer_computes_what_torch_does(kind, dtype, options):
    layers = pair(kind, 5, 7, dtype=dtype, **options)

    agree(layers, lambda _, layer, x: layer(x), [both(numbers(4, 3, 5, dtype=dtype))])


@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_given_states_are_used_and_get_gradients(kind, options):
    layers = pair(kind, 5, 7, **options)
    count = options.get("num_layers", 1) * (2 if "bidirectional" in options else 1)
    x, h, c = both(numbers(4, 4, 5)), both(numbers(count, 4, 7, seed=1)), both(numbers(count, 4, 7, seed=2))

    if kind == "LSTM":
        agree(layers, lambda _, layer, x, h, c: layer(x, (h, c)), [x, h, c])
    else:
        agree(layers, lambda _, layer, x, h: layer(x, h), [x, h])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_projected_lstm_computes_what_torch_does(bias, bidirectional):
    options = {"num_layers": 2, "proj_size": 3, "bias": bias, "bidirectional": bidirectional}
    layers = pair("LSTM", 5, 7, **options)
    count = 2 * (1 + bidirectional)
    states = [both(numbers(count, 3, size, seed=size)) for size in (3, 7)]

    agree(layers, lambda _, layer, x, h, c: layer(x, (h, c)), [both(numbers(4, 3, 5)), *states])


def test_relu_network_computes_what_torch_does():
    for options in ({}, {"num_layers": 2, "bidirectional": True}):
        layers = pair("RNN", 5, 7, nonlinearity="relu", **options)

        agree(layers, lambda _, layer, x: layer(x), [both(numbers(4, 3, 5))])


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_are_torchs(kind):
    options = {"proj_size": 2} if kind == "LSTM" else {}
    layers = pair(kind, 3, 4, dtype="float64", bidirectional=True, **options)

    agree(layers, lambda _, layer, x: layer(x), [both(numbers(3, 2, 3, dtype="float64"))], order=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 3, 5), (4, 1, 5), (6, 5), (4, 0, 5)], ids=str)
def test_one_step_one_sequence_no_batch_and_an_empty_one(kind, shape):
    layers = pair(kind, 5, 7, num_layers=2)

    agree(layers, lambda _, layer, x: layer(x), [both(numbers(*shape))])


@pytest.mark.parametrize("kind", KINDS)
def test_unbatched_input_takes_unbatched_states(kind):
    layers = pair(kind, 5, 7, batch_first=True)
    h, c = both(numbers(1, 7, seed=1)), both(numbers(1, 7, seed=2))

    if kind == "LSTM":
        agree(layers, lambda _, layer, x, h, c: layer(x, (h, c)), [both(numbers(6, 5)), h, c])
    else:
        agree(layers, lambda _, layer, x, h: layer(x, h), [both(numbers(6, 5)), h])


@pytest.mark.parametrize("kind", KINDS)
def test_input_need_not_be_contiguous(kind):
    layers = pair(kind, 5, 7)

    agree(layers, lambda _, layer, x: layer(x.permute(2, 1, 0)[::2]), [both(numbers(5, 3, 8))])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_packed_sequences_give_what_torch_gives(kind, enforce_sorted, bidirectional):
    lengths = [6, 4, 4, 1] if enforce_sorted else [4, 1, 6, 4]
    layers = pair(kind, 5, 7, num_layers=2, bidirectional=bidirectional)
    count = 2 * (1 + bidirectional)
    states = [both(numbers(count, 4, 7, seed=s)) for s in ((1, 2) if kind == "LSTM" else (1,))]

    def call(library, layer, x, *hx):
        rnn = library.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
        out, last = layer(packed, hx if kind == "LSTM" else hx[0])
        padded, _ = rnn.pad_packed_sequence(out, total_length=8, padding_value=0.25)
        return padded, out, last

    agree(layers, call, [both(numbers(6, 4, 5)), *states])


def test_padding_is_not_computed():
    tenon.manual_seed(0)
    layer = nn.LSTM(3, 4)
    x = numbers(5, 2, 3)
    x[2:, 1] = np.nan

    packed = nn.utils.rnn.pack_padded_sequence(tenon.from_numpy(x), [5, 2])
    out, (h, c) = layer(packed)

    assert out.data.shape == (7, 4)
    assert all(bool(t.isfinite().all()) for t in (out.data, h, c))


@pytest.mark.draws
@pytest.mark.parametrize("kind", KINDS)
def test_seed_gives_torchs_parameters_under_torchs_names(kind):
    options = {"proj_size": 2} if kind == "LSTM" else {}

    mine, theirs = pair(kind, 5, 7, num_layers=2, bidirectional=True, **options)

    expected = theirs.state_dict()
    assert list(mine.state_dict()) == list(expected)
    for name, value in mine.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), expected[name].numpy(), err_msg=name)
    assert [[tuple(w.shape) for w in ws] for ws in mine.all_weights] == [
        [tuple(w.shape) for w in ws] for ws in theirs.all_weights
    ]


@pytest.mark.parametrize(
    "text",
    [
        "LSTM(3, 4)",
        "LSTM(3, 4, 2, bias=False, batch_first=True, dropout=0.5, bidirectional=True, proj_size=2)",
        "RNN(3, 4, 2, 'relu', False)",
        "GRU(3, 4, batch_first=True)",
        "RNNCell(3, 4, nonlinearity='relu')",
        "LSTMCell(3, 4, bias=False)",
        "GRUCell(3, 4)",
    ],
)
def test_layers_print_as_torchs(text):
    assert repr(eval(f"tenon.nn.{text}")) == repr(eval(f"torch.nn.{text}"))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("shape", [(3, 5), (5,), (0, 5)], ids=str)
@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells_compute_what_torchs_do(kind, shape, given, bias):
    cells = pair(kind, 5, 7, bias=bias)
    states = [both(numbers(*shape[:-1], 7, seed=s)) for s in ((1, 2) if kind == "LSTMCell" else (1,))]
    states = states if given else []

    def call(_, cell, x, *hx):
        return cell(x, *((hx if len(hx) == 2 else hx[0],) if hx else ()))

    agree(cells, call, [both(numbers(*shape)), *states])


def test_relu_cell_computes_what_torchs_does():
    agree(pair("RNNCell", 5, 7, nonlinearity="relu"), lambda _, cell, x: cell(x), [both(numbers(3, 5))])


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_stays_close_to_float32(kind):
    tenon.manual_seed(0)
    layer = getattr(nn, kind)(5, 7, num_layers=2)
    short = copy.deepcopy(layer).bfloat16()
    x = tenon.randn(4, 3, 5)

    out, short_out = layer(x)[0], short(x.bfloat16())[0]
    out.sum().backward()
    short_out.sum().backward()

    assert short_out.dtype == tenon.bfloat16
    assert float((short_out.float() - out).abs().max()) < 0.02
    for p, q in zip(layer.parameters(), short.parameters(), strict=True):
        assert q.grad.dtype == tenon.bfloat16
        assert float((q.grad.float() - p.grad).abs().max()) < 0.05 * max(1.0, float(p.grad.abs().max()))


@pytest.mark.parametrize("kind", [*KINDS, "LSTMCell", "GRUCell"])
def test_autocast_gives_torchs_dtypes(kind):
    layers = pair(kind, 5, 7)
    shape = (3, 5) if kind.endswith("Cell") else (4, 3, 5)
    made = []
    for library, layer in zip((tenon, torch), layers, strict=True):
        with library.autocast("cpu", dtype=library.bfloat16):
            try:
                made.append([str(t.dtype) for t in flat(layer(library.ones(*shape)))])
            except RuntimeError as error:
                if library is not torch or "could not create a primitive" not in str(error):
                    raise
                pytest.skip("torch has no LSTM in bfloat16 for this processor")

    assert made[0] == made[1]


def test_dropout_applies_between_layers_and_only_in_training():
    tenon.manual_seed(0)
    layer = nn.GRU(4, 16, num_layers=2, dropout=1.0)
    zeroed = layer(tenon.randn(3, 2, 4))[0]
    second = nn.GRU(16, 16)
    second.load_state_dict({k[:-1] + "0": v for k, v in layer.state_dict().items() if k.endswith("l1")})

    tenon.testing.assert_close(zeroed, second(tenon.zeros(3, 2, 16))[0])
    layer.eval()
    x = tenon.randn(3, 2, 4)
    tenon.testing.assert_close(layer(x)[0], layer(x)[0])
    assert not bool((layer(x)[0] == zeroed).all())
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        nn.LSTM(2, 3, dropout=0.5)


def test_layer_survives_copies_pickles_and_other_dtypes():
    tenon.manual_seed(0)
    layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    layer.flatten_parameters()
    x = tenon.randn(5, 2, 3)
    expected = layer(x)[0]

    tenon.testing.assert_close(copy.deepcopy(layer)(x)[0], expected)
    tenon.testing.assert_close(pickle.loads(pickle.dumps(layer))(x)[0], expected)
    tenon.testing.assert_close(layer.double()(x.double())[0].float(), expected)


def test_states_may_come_in_a_list():
    layer, x = nn.LSTM(3, 4), tenon.randn(5, 2, 3)
    states = [tenon.randn(1, 2, 4), tenon.randn(1, 2, 4)]

    tenon.testing.assert_close(layer(x, states), layer(x, tuple(states)))


def test_functional_call_uses_the_weights_it_is_given():
    layer = nn.LSTM(3, 4)
    weights = {n: tenon.zeros_like(p).requires_grad_() for n, p in layer.named_parameters()}

    out, _ = tenon.func.functional_call(layer, weights, (tenon.randn(5, 2, 3),))

    assert not out.any()


REFUSED = {
    "rank": lambda T: T.nn.LSTM(3, 4)(T.randn(2, 2, 2, 3)),
    "width": lambda T: T.nn.GRU(3, 4)(T.randn(2, 2, 5)),
    "dtype": lambda T: T.nn.GRU(3, 4)(T.randn(2, 2, 3).double()),
    "hidden": lambda T: T.nn.RNN(3, 4)(T.randn(2, 2, 3), T.randn(1, 3, 4)),
    "hidden rank": lambda T: T.nn.RNN(3, 4)(T.randn(2, 2, 3), T.randn(2, 4)),
    "unbatched hidden rank": lambda T: T.nn.GRU(3, 4)(T.randn(2, 3), T.randn(1, 2, 4)),
    "cell size": lambda T: T.nn.LSTM(3, 4)(T.randn(2, 2, 3), (T.randn(1, 2, 4), T.randn(1, 2, 5))),
    "cell rank": lambda T: T.nn.LSTM(3, 4)(T.randn(2, 2, 3), (T.randn(2, 4), T.randn(2, 4))),
    "no steps": lambda T: T.nn.LSTM(3, 4)(T.randn(0, 2, 3)),
    "hidden of a packed one": lambda T: T.nn.GRU(3, 4)(
        T.nn.utils.rnn.pack_sequence([T.randn(2, 3)]), T.randn(1, 2, 4)
    ),
    "bias": lambda T: T.nn.LSTM(3, 4, bias=1),
    "batch_first": lambda T: T.nn.LSTM(3, 4, batch_first=0),
    "input_size type": lambda T: T.nn.LSTM(3.0, 4),
    "input_size": lambda T: T.nn.LSTM(0, 4),
    "hidden_size": lambda T: T.nn.LSTM(3, 0),
    "num_layers": lambda T: T.nn.LSTM(3, 4, num_layers=0),
    "dropout": lambda T: T.nn.LSTM(3, 4, 2, dropout=1.5),
    "proj_size": lambda T: T.nn.LSTM(3, 4, proj_size=4),
    "negative proj_size": lambda T: T.nn.LSTM(3, 4, proj_size=-1),
    "proj_size of a GRU": lambda T: T.nn.GRU(3, 4, proj_size=2),
    "nonlinearity": lambda T: T.nn.RNN(3, 4, nonlinearity="sin"),
    "cell input": lambda T: T.nn.LSTMCell(3, 4)(T.randn(2, 5)),
    "cell input rank": lambda T: T.nn.LSTMCell(3, 4)(T.randn(2, 2, 3)),
    "cell hidden rank": lambda T: T.nn.GRUCell(3, 4)(T.randn(2, 3), T.randn(1, 2, 4)),
    "cell hx rank": lambda T: T.nn.LSTMCell(3, 4)(T.randn(2, 3), (T.randn(1, 2, 4), T.randn(2, 4))),
    "cell batch": lambda T: T.nn.GRUCell(3, 4)(T.randn(2, 3), T.randn(1, 4)),
    "cell hidden": lambda T: T.nn.LSTMCell(3, 4)(T.randn(2, 3), (T.randn(2, 4), T.randn(2, 5))),
    "cell dtype": lambda T: T.nn.GRUCell(3, 4)(T.randn(2, 3), T.randn(2, 4).double()),
    "cell nonlinearity": lambda T: T.nn.RNNCell(3, 4, nonlinearity="sin")(T.randn(2, 3)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_torch_refuses_is_refused_in_its_words(case):
    with pytest.raises(Exception) as theirs:
        REFUSED[case](torch)
    with pytest.raises(type(theirs.value)) as mine:
        REFUSED[case](tenon)

    assert str(mine.value).startswith(str(theirs.value).rstrip("."))

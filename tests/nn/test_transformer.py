"""The transformer layers: torch's weights for a seed, values and gradients, masks, and their copies."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

import tenon
from tenon import nn

E, H, N, S, T = 8, 4, 2, 5, 4
OPTIONS = {
    "plain": {},
    "norm first": {"norm_first": True, "batch_first": True, "activation": "gelu"},
    "no bias": {"bias": False, "activation": lambda x: x.sigmoid() * x},
    "batch first": {"batch_first": True, "layer_norm_eps": 1e-3},
    "dropout": {"dropout": 0.3},
}
MASKS = ("none", "causal", "padding", "both", "boolean", "hint")


class Side:
    """One library: weights and inputs of one seed, and the results."""

    def __init__(self, lib, make, batch_first=False, unbatched=False):
        self.lib, self.draw, self.leaves = lib, np.random.default_rng(5), []
        self.batch_first, self.unbatched = batch_first, unbatched
        lib.manual_seed(0)
        self.made = make(lib)

    def sequence(self, length):
        shape = (N, length, E) if self.batch_first else (length, N, E)
        given = self.draw.standard_normal((length, E) if self.unbatched else shape).astype(np.float64)
        self.leaves.append(self.lib.from_numpy(given).requires_grad_())
        return self.leaves[-1]

    def padding(self, length):
        hidden = np.zeros((N, length), bool)
        hidden[0, length - 2 :] = True
        return self.lib.from_numpy(hidden[0] if self.unbatched else hidden)

    def causal(self, length):
        return self.lib.nn.Transformer.generate_square_subsequent_mask(length, dtype=self.lib.float64)

    def masks(self, kind, length, prefix):
        given = {}
        if kind in ("causal", "both", "hint"):
            given[f"{prefix}mask"] = self.causal(length)
        if kind in ("padding", "both"):
            given[f"{prefix}key_padding_mask"] = self.padding(length)
        if kind == "boolean":
            given[f"{prefix}mask"] = self.causal(length) != 0
        return given

    def results(self, out):
        weights = self.lib.arange(out.numel()).reshape(out.shape).to(out.dtype).cos()
        (out * weights).sum().backward()
        tensors = [out, *(x.grad for x in self.leaves), *(p.grad for p in self.made.parameters())]
        return [None if t is None else t.detach().numpy() for t in tensors]


def both(make, call, **form):
    """Compare what ``call(side)`` returns, its gradients and the made weights in both libraries."""
    torch = pytest.importorskip("torch")
    sides = [Side(lib, make, **form) for lib in (tenon, torch)]
    ours, theirs = (side.made for side in sides)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    found = []
    for side in sides:
        side.lib.manual_seed(1)
        found.append(side.results(call(side)))
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


@pytest.fixture(autouse=True)
def quiet():
    """Ignore the warnings of torch about its fast path."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="enable_nested_tensor|The PyTorch API of nested")
        warnings.filterwarnings("ignore", message="Support for mismatched")
        yield


@pytest.mark.together
@pytest.mark.draws
@pytest.mark.oracle
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("name", OPTIONS)
def test_an_encoder_layer_is_torchs(name, masks):
    options = {"dropout": 0.0, **OPTIONS[name]}

    def call(side):
        given = side.masks(masks, S, "src_")
        return side.made(side.sequence(S), is_causal=masks == "hint", **given)

    both(
        lambda t: t.nn.TransformerEncoderLayer(E, H, 12, dtype=t.float64, **options),
        call,
        batch_first=options.get("batch_first", False),
    )


@pytest.mark.together
@pytest.mark.draws
@pytest.mark.oracle
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_decoder_layer_is_torchs(name, masks):
    options = {"dropout": 0.0, **OPTIONS[name]}

    def call(side):
        given = side.masks(masks, T, "tgt_")
        given |= side.masks("padding" if masks != "none" else "none", S, "memory_")
        return side.made(side.sequence(T), side.sequence(S), tgt_is_causal=masks == "hint", **given)

    both(
        lambda t: t.nn.TransformerDecoderLayer(E, H, 12, dtype=t.float64, **options),
        call,
        batch_first=options.get("batch_first", False),
    )


@pytest.mark.draws
@pytest.mark.oracle
@pytest.mark.parametrize("form", ["sequence first", "batch first", "unbatched"])
def test_the_whole_is_torchs(form):
    options = {"batch_first": form == "batch first", "norm_first": form == "unbatched"}

    def call(side):
        masks = {**side.masks("causal", S, "src_"), **side.masks("both", T, "tgt_"),
                 **side.masks("padding", S, "memory_")}  # fmt: skip
        return side.made(side.sequence(S), side.sequence(T), **masks)

    both(
        lambda t: t.nn.Transformer(E, H, 2, 1, 12, 0.0, dtype=t.float64, **options),
        call,
        batch_first=options["batch_first"],
        unbatched=form == "unbatched",
    )


@pytest.mark.oracle
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_hidden_places_come_out_as_torchs_fast_path_leaves_them(nested, right):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (tenon, torch):
        lib.manual_seed(0)
        layer = lib.nn.TransformerEncoderLayer(E, H, 12, batch_first=True)
        norm = lib.nn.LayerNorm(E)
        encoder = lib.nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=nested).eval()
        x = lib.from_numpy(np.random.default_rng(0).standard_normal((2, 4, E)).astype(np.float32))
        padding = lib.tensor([[False] * 4, [False, True, right, True]])
        with lib.no_grad():
            found.append(encoder(x, src_key_padding_mask=padding))
        assert encoder.use_nested_tensor == nested

    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=1e-5, atol=1e-5)
    assert bool((found[0][1, 3] == 0).all()) == (nested and right)


def test_captured_and_compiled_encoders_leave_hidden_places_as_eager_execution_does():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, 12, batch_first=True), 2).eval()
    x, right = tenon.randn(2, 4, E), tenon.tensor([[False] * 4, [False, False, True, True]])
    inner = tenon.tensor([[False, True, False, True], [False] * 4])

    def encoded(x, padding):
        return encoder(x, src_key_padding_mask=padding)

    graph, compiled = tenon.export.capture(encoded, x, right), tenon.compile(encoded)

    with tenon.no_grad():
        for padding in (right, inner, right, inner):
            expected = encoded(x, padding)
            assert bool((expected[padding] == 0).all()) == (padding is right)
            tenon.testing.assert_close(graph.run(x, padding), expected)
            tenon.testing.assert_close(compiled(x, padding), expected)


def test_layers_are_copies_that_learn_apart():
    layer = nn.TransformerEncoderLayer(E, H, 12)
    encoder = nn.TransformerEncoder(layer, 2)

    assert tenon.equal(encoder.layers[0].linear1.weight, encoder.layers[1].linear1.weight)
    assert encoder.layers[0].linear1.weight is not encoder.layers[1].linear1.weight
    assert layer.linear1.weight is not encoder.layers[0].linear1.weight


def test_a_block_can_be_overridden():
    class Gated(nn.TransformerEncoderLayer):
        def _ff_block(self, x):
            return 0 * super()._ff_block(x)

        def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
            return 0 * super()._sa_block(x, attn_mask, key_padding_mask, is_causal)

    x = tenon.randn(3, 2, E)

    assert tenon.equal(Gated(E, H, 12, norm_first=True)(x), x)


@pytest.mark.slow
def test_a_compiled_model_computes_the_same():
    tenon.manual_seed(0)
    model = nn.Transformer(E, H, 1, 1, 12, 0.0, batch_first=True)
    src, tgt = tenon.randn(N, S, E), tenon.randn(N, T, E)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    hidden = tenon.tensor([[False] * S, [False] * 3 + [True] * 2])
    given = {"tgt_mask": mask, "src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
    compiled = tenon.compile(lambda s, t: model(s, t, **given), fullgraph=True)

    for _ in range(3):
        out = compiled(src, tgt)
        out.square().sum().backward()
        ours = [p.grad.numpy().copy() for p in model.parameters()]
        model.zero_grad()
        expected = model(src, tgt, **given)
        expected.square().sum().backward()
        np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
        for a, p in zip(ours, model.parameters(), strict=True):
            np.testing.assert_allclose(a, p.grad.numpy(), rtol=1e-4, atol=1e-4)
        model.zero_grad()
    assert compiled.programs


REFUSED = {
    "activation": lambda t: t.nn.TransformerEncoderLayer(4, 2, activation="tanh"),
    "batches": lambda t: t.nn.Transformer(4, 2, 1, 1, 8)(t.zeros(3, 2, 4), t.zeros(3, 1, 4)),
    "batches first": lambda t: t.nn.Transformer(4, 2, 1, 1, 8, batch_first=True)(
        t.zeros(3, 2, 4), t.zeros(1, 2, 4)
    ),
    "widths": lambda t: t.nn.Transformer(4, 2, 1, 1, 8)(t.zeros(3, 2, 4), t.zeros(3, 2, 6)),
    "integer mask": lambda t: t.nn.TransformerEncoderLayer(4, 2)(
        t.zeros(3, 2, 4), src_mask=t.zeros(3, 3, dtype=t.int64)
    ),
}


@pytest.mark.oracle
@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses_what_torch_refuses(refuse, what):
    refuse(lambda lib, functional: REFUSED[what](lib))


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["Transformer", "TransformerEncoder", "TransformerDecoder",
    "TransformerEncoderLayer", "TransformerDecoderLayer", "MultiheadAttention"])  # fmt: skip
def test_signatures_are_torchs(name):
    torch = pytest.importorskip("torch")
    for method in ("__init__", "forward"):
        ours, theirs = (inspect.signature(getattr(getattr(lib.nn, name), method)) for lib in (tenon, torch))

        assert list(ours.parameters) == list(theirs.parameters)


@pytest.mark.oracle
def test_subsequent_masks_are_torchs():
    torch = pytest.importorskip("torch")
    for name in ("float32", "float64", "bfloat16", "bool"):
        made = [
            lib.nn.Transformer.generate_square_subsequent_mask(3, dtype=getattr(lib, name))
            for lib in (tenon, torch)
        ]

        assert made[0].tolist() == made[1].tolist()
        assert str(made[0].dtype) == str(made[1].dtype)

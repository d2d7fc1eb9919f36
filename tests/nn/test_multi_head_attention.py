"""``MultiheadAttention`` and ``F.multi_head_attention_forward``: torch's weights for a seed, values, gradients,
masks and refusals."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import tenon
from tenon import nn

pytestmark = pytest.mark.together

L, S, N, E, H = 3, 5, 2, 8, 4
OPTIONS = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "learned key": {"add_bias_kv": True, "batch_first": True},
    "zero key": {"add_zero_attn": True},
    "other keys": {"kdim": 6, "batch_first": True},
    "other values": {"vdim": 5, "bias": False},
    "all": {"add_bias_kv": True, "add_zero_attn": True, "kdim": 5, "vdim": 3},
}
MASKS = ("none", "padding", "boolean", "per head", "both", "float", "causal")


class Inputs:
    """The same arrays for both libraries, as tensors that need a gradient."""

    def __init__(self, lib, unbatched=False, batch_first=False):
        self.lib, self.draw, self.leaves = lib, np.random.default_rng(3), []
        self.unbatched, self.batch_first = unbatched, batch_first

    def sequence(self, length, width):
        shape = (N, length, width) if self.batch_first else (length, N, width)
        return self.tensor(*((length, width) if self.unbatched else shape))

    def tensor(self, *shape):
        made = self.lib.from_numpy(self.draw.standard_normal(shape)).requires_grad_()
        self.leaves.append(made)
        return made

    def mask(self, *shape):
        made = self.draw.random(shape) > 0.6
        made[..., 0] = False
        return self.lib.from_numpy(made)

    def masks(self, kind, sources):
        lib, given = self.lib, {}
        if kind in ("padding", "both"):
            given["key_padding_mask"] = self.mask(*(() if self.unbatched else (N,)), sources)
        if kind in ("boolean", "both"):
            given["attn_mask"] = self.mask(L, sources)
        if kind == "per head":
            given["attn_mask"] = self.mask(H if self.unbatched else N * H, L, sources)
        if kind == "float":
            given["attn_mask"] = self.tensor(L, sources)
        if kind == "causal":
            full = lib.full((L, sources), float("-inf"), dtype=lib.float64)
            given |= {"attn_mask": lib.triu(full, diagonal=1), "is_causal": True}
        return given


def outcome(lib, options, form, masks, call):
    """Outputs and gradients of one call of a layer made after ``manual_seed(0)``."""
    lib.manual_seed(0)
    layer = lib.nn.MultiheadAttention(E, H, dtype=lib.float64, **options)
    inputs = Inputs(lib, form == "unbatched", options.get("batch_first", False))
    query = inputs.sequence(L, E)
    if form == "self":
        key = value = query
    elif form == "encoded":
        key = value = inputs.sequence(S, E)
    else:
        key, value = inputs.sequence(S, layer.kdim), inputs.sequence(S, layer.vdim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = layer(query, key, value, **inputs.masks(masks, key.shape[-2 if form == "unbatched" else
                      1 if layer.batch_first else 0]), **call)  # fmt: skip
    total = 0
    for out in found:
        if out is not None:
            total = total + (out * lib.arange(out.numel()).reshape(out.shape).to(out.dtype).cos()).sum()
    total.backward()
    tensors = [*layer.parameters(), *found, *(p.grad for p in layer.parameters()),
               *(x.grad for x in inputs.leaves)]  # fmt: skip
    return [None if t is None else t.detach().numpy() for t in tensors], layer


@pytest.mark.oracle
@pytest.mark.parametrize("form", ["self", "encoded", "apart", "unbatched"])
@pytest.mark.parametrize("name", OPTIONS)
def test_values_and_gradients_are_torchs(name, form):
    torch = pytest.importorskip("torch")
    options = OPTIONS[name]
    if form in ("self", "encoded") and ("kdim" in options or "vdim" in options):
        form = "apart"

    for position, masks in enumerate(MASKS):
        call = ({}, {"need_weights": False}, {"average_attn_weights": False})[position % 3]
        ours, layer = outcome(tenon, options, form, masks, call)
        theirs, other = outcome(torch, options, form, masks, call)

        assert repr(layer) == repr(other)
        assert list(layer.state_dict()) == list(other.state_dict())
        for a, b in zip(ours, theirs, strict=True):
            assert (a is None) == (b is None), masks
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11, err_msg=masks)


@pytest.mark.oracle
@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_draws_as_torch_does(need_weights):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (tenon, torch):
        lib.manual_seed(0)
        layer = lib.nn.MultiheadAttention(E, H, dropout=0.4)
        x = lib.from_numpy(np.random.default_rng(3).standard_normal((L, N, E)).astype(np.float32))
        found.append(layer(x, x, x, need_weights=need_weights)[0].detach().numpy())

    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan")])
@pytest.mark.parametrize("need_weights", [True, False])
def test_what_is_no_probability_is_refused(p, need_weights):
    layer, x = nn.MultiheadAttention(E, H), tenon.randn(L, N, E)
    layer.dropout = p

    with pytest.raises(ValueError, match=f"has to be between 0 and 1, but got {p}"):
        layer(x, x, x, need_weights=need_weights)
    with pytest.raises(ValueError, match=f"has to be between 0 and 1, but got {p}"):
        nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=p)


def test_evaluation_computes_what_training_does():
    layer = nn.MultiheadAttention(E, H, batch_first=True)
    x, padding = tenon.randn(N, L, E), tenon.tensor([[True] * L, [False, False, True]])

    trained = layer(x, x, x, key_padding_mask=padding, need_weights=False)[0]
    with tenon.no_grad():
        evaluated = layer.eval()(x, x, x, key_padding_mask=padding, need_weights=False)[0]

    assert tenon.equal(trained, evaluated)
    assert not evaluated.isnan().any()


REFUSED = {
    "no width": lambda t: t.nn.MultiheadAttention(0, 1),
    "indivisible": lambda t: t.nn.MultiheadAttention(5, 2),
    "four axes": lambda t: t.nn.MultiheadAttention(4, 2)(*[t.zeros(1, 2, 3, 4)] * 3),
    "ranks differ": lambda t: t.nn.MultiheadAttention(4, 2)(t.zeros(3, 2, 4), *[t.zeros(3, 4)] * 2),
    "flat ranks differ": lambda t: t.nn.MultiheadAttention(4, 2)(t.zeros(3, 4), *[t.zeros(3, 2, 4)] * 2),
    "padding of rank 1": lambda t: t.nn.MultiheadAttention(4, 2)(
        *[t.zeros(3, 2, 4)] * 3, key_padding_mask=t.zeros(3).bool()
    ),
    "padding of a wrong size": lambda t: t.nn.MultiheadAttention(4, 2)(
        *[t.zeros(3, 2, 4)] * 3, key_padding_mask=t.zeros(2, 4).bool()
    ),
    "mask of rank 4": lambda t: t.nn.MultiheadAttention(4, 2)(
        *[t.zeros(3, 2, 4)] * 3, attn_mask=t.zeros(1, 1, 3, 3)
    ),
    "mask of a wrong size": lambda t: t.nn.MultiheadAttention(4, 2)(
        *[t.zeros(3, 2, 4)] * 3, attn_mask=t.zeros(3, 4)
    ),
    "mask of wrong heads": lambda t: t.nn.MultiheadAttention(4, 2)(
        *[t.zeros(3, 2, 4)] * 3, attn_mask=t.zeros(2, 3, 3)
    ),
    "flat mask of wrong heads": lambda t: t.nn.MultiheadAttention(4, 2)(
        *[t.zeros(3, 4)] * 3, attn_mask=t.zeros(1, 3, 3)
    ),
    "integer mask": lambda t: t.nn.MultiheadAttention(4, 2)(
        *[t.zeros(3, 2, 4)] * 3, attn_mask=t.zeros(3, 3).long()
    ),
    "causal without a mask": lambda t: t.nn.MultiheadAttention(4, 2)(*[t.zeros(3, 2, 4)] * 3, is_causal=True),
    "wrong width": lambda t: t.nn.MultiheadAttention(4, 2)(*[t.zeros(3, 2, 6)] * 3),
    "keys unlike values": lambda t: t.nn.MultiheadAttention(4, 2)(
        t.zeros(3, 2, 4), t.zeros(3, 2, 4), t.zeros(5, 2, 4)
    ),
    "separate keys unlike values": lambda t: t.nn.MultiheadAttention(4, 2, kdim=3)(
        t.zeros(3, 2, 4), t.zeros(3, 2, 3), t.zeros(5, 2, 4)
    ),
}


@pytest.mark.oracle
@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses_what_torch_refuses(refuse, what):
    refuse(lambda lib, functional: REFUSED[what](lib))


@pytest.mark.oracle
@pytest.mark.parametrize("weighted", [True, False])
def test_a_mask_of_another_dtype_is_refused(weighted):
    torch = pytest.importorskip("torch")
    for lib in (tenon, torch):
        layer, x = lib.nn.MultiheadAttention(4, 2), lib.zeros(3, 2, 4)

        with pytest.raises(RuntimeError, match="dtype"):
            layer(x, x, x, attn_mask=lib.zeros(3, 3, dtype=lib.float64), need_weights=weighted)


@pytest.mark.oracle
def test_masks_of_two_kinds_warn():
    torch = pytest.importorskip("torch")
    for lib in (tenon, torch):
        layer, x = lib.nn.MultiheadAttention(4, 2), lib.zeros(3, 2, 4)

        with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
            layer(x, x, x, key_padding_mask=lib.zeros(2, 3).bool(), attn_mask=lib.zeros(3, 3))


@pytest.mark.oracle
@pytest.mark.parametrize("weighted", [True, False])
def test_static_keys_and_values_are_attended(agree, rng, weighted):
    weight, out = rng.standard_normal((3 * E, E)), rng.standard_normal((E, E))
    x, k, v = rng.standard_normal((L, N, E)), *rng.standard_normal((2, N * H, S, E // H))

    def call(t, F, x, weight, out, k, v):
        made = F.multi_head_attention_forward(
            x, x, x, E, H, weight, None, None, None, False, 0.0, out, None,
            need_weights=weighted, static_k=k, static_v=v,
        )  # fmt: skip
        return made[0] if made[1] is None else made

    agree(call, x, weight, out, k, v)


def test_it_compiles_to_the_same():
    layer = nn.MultiheadAttention(16, 4, batch_first=True)
    x = tenon.randn(2, 9, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(9)

    def attend(x):
        return layer(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]

    compiled = tenon.compile(attend, fullgraph=True)
    for _ in range(3):
        np.testing.assert_allclose(
            compiled(x).detach().numpy(), attend(x).detach().numpy(), rtol=1e-5, atol=1e-6
        )
    assert compiled.programs


def test_it_copies_and_pickles():
    layer = nn.MultiheadAttention(4, 2, add_bias_kv=True)
    x = tenon.randn(3, 2, 4)
    expected = layer(x, x, x)[0]

    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert tenon.equal(other(x, x, x)[0], expected)


def test_masks_merge_into_one():
    layer, query = nn.MultiheadAttention(4, 2), tenon.zeros(3, 5, 4)
    mask, padding = tenon.zeros(5, 5), tenon.ones(3, 5)

    assert layer.merge_masks(None, None, query) == (None, None)
    assert layer.merge_masks(None, padding, query)[1] == 1
    merged, kind = layer.merge_masks(mask, padding, query)
    assert (tuple(merged.shape), kind) == ((3, 2, 5, 5), 2)
    assert bool((merged == 1).all())

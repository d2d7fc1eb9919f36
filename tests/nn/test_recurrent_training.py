"""Recurrent layers at work: trained beside PyTorch's, data parallel, with hooks, with parts of it frozen."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.errors import ModifiedValueError
from tenon.nn.parallel import DistributedDataParallel

KINDS = ("RNN", "LSTM", "GRU")


def losses(library, kind, packed):
    """A tagger of sequences, trained for ten steps."""
    library.manual_seed(5)
    T = library.nn
    embed, cells = T.Embedding(30, 24), getattr(T, kind)(24, 32, num_layers=2, bidirectional=True)
    head = T.Linear(64, 4)
    net = T.ModuleList([embed, cells, head])
    optimizer = library.optim.Adam(net.parameters(), lr=1e-2)
    draw = np.random.default_rng(0)
    words = library.from_numpy(draw.integers(0, 30, (15, 12)))
    tags = library.from_numpy(draw.integers(0, 4, (15, 12)))
    lengths = sorted(draw.integers(3, 16, 12).tolist(), reverse=True)
    lengths[0] = 15
    found = []
    for _ in range(10):
        optimizer.zero_grad()
        x, y = embed(words), tags
        if packed:
            pack = T.utils.rnn.pack_padded_sequence
            out, y = cells(pack(x, lengths))[0].data, pack(tags, lengths).data
        else:
            out, y = cells(x)[0].reshape(-1, 64), tags.reshape(-1)
        loss = T.functional.cross_entropy(head(out), y)
        loss.backward()
        T.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "LSTM" else pytest.mark.slow) for kind in KINDS]
)
def test_tagger_trains_as_in_torch(kind, packed):
    torch = pytest.importorskip("torch")

    mine = losses(tenon, kind, packed)

    assert mine == pytest.approx(losses(torch, kind, packed), abs=1e-4)
    assert mine[-1] < 0.8 * mine[0]


def whole_batch(kind):
    tenon.manual_seed(1)
    return getattr(nn, kind)(6, 8, bidirectional=True), tenon.randn(5, 4, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_data_parallel_gives_the_gradients_of_the_whole_batch(kind):
    layer, x = whole_batch(kind)
    copies = [copy.deepcopy(layer) for _ in range(2)]
    layer(x)[0].square().mean().backward()

    def work(communicator):
        model = DistributedDataParallel(copies[communicator.rank])
        part = x[:, communicator.rank :: 2]
        model(part)[0].square().mean().backward()
        return [p.grad for p in model.parameters()]

    for grads in run_ranks(2, work):
        for mine, p in zip(grads, layer.parameters(), strict=True):
            tenon.testing.assert_close(mine, p.grad, rtol=1e-4, atol=1e-6)


def test_hooks_see_outputs_states_and_gradients():
    layer, x = whole_batch("LSTM")
    seen = []
    layer.register_forward_hook(lambda module, args, out: seen.append([tuple(t.shape) for t in out[1]]))
    layer.weight_hh_l0.register_hook(lambda g: seen.append(tuple(g.shape)))
    out, (h, _) = layer(x.requires_grad_())
    h.register_hook(lambda g: g * 0)

    (h.sum() + 0 * out.sum()).backward()

    assert seen == [[(2, 4, 8), (2, 4, 8)], (32, 8)]
    assert not x.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_needs_a_gradient_gets_one(kind):
    layer, x = whole_batch(kind)
    expected = copy.deepcopy(layer)
    expected(x)[0].sum().backward()
    layer.requires_grad_(False)
    layer.weight_hh_l0.requires_grad_()
    layer.bias_hh_l0_reverse.requires_grad_()

    layer(x)[0].sum().backward()

    for name, p in layer.named_parameters():
        if name in ("weight_hh_l0", "bias_hh_l0_reverse"):
            tenon.testing.assert_close(p.grad, dict(expected.named_parameters())[name].grad)
        else:
            assert p.grad is None


@pytest.mark.parametrize("kind", KINDS)
def test_backward_can_be_repeated_on_a_retained_graph(kind):
    layer, x = whole_batch(kind)
    out = layer(x)[0].sum()
    out.backward(retain_graph=True)
    once = [p.grad.clone() for p in layer.parameters()]

    out.backward()

    for first, p in zip(once, layer.parameters(), strict=True):
        tenon.testing.assert_close(p.grad, 2 * first)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_changed_in_place_are_refused_in_backward(kind):
    layer, x = whole_batch(kind)
    out = layer(x)[1] if kind != "LSTM" else layer(x)[1][1]
    weight = layer.weight_hh_l0

    with tenon.no_grad():
        weight.mul_(2)

    with pytest.raises(ModifiedValueError, match="modified by an inplace operation"):
        out.sum().backward()


def test_anomaly_in_a_layer_names_its_module():
    net = nn.Sequential(nn.Identity(), nn.GRU(3, 4))

    with pytest.raises(RuntimeError, match=r"Expected 3, got 5 .*module 1"):
        net(tenon.randn(2, 2, 5))


@pytest.mark.oracle
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", pytest.param("GRU", marks=pytest.mark.slow)])
def test_large_layers_compute_what_torchs_do(kind, reverse):
    torch = pytest.importorskip("torch")
    found = []
    for library in (tenon, torch):
        library.manual_seed(2)
        layer = getattr(library.nn, kind)(48, 96, bidirectional=reverse)
        x = library.from_numpy(np.random.default_rng(3).standard_normal((20, 33, 48)).astype(np.float32))
        out = layer(x.requires_grad_())[0]
        (out * library.linspace(-1, 1, out.numel()).reshape(out.shape)).sum().backward()
        found.append([out, x.grad, *(p.grad for p in layer.parameters())])

    for mine, theirs in zip(*found, strict=True):
        theirs = theirs.detach().numpy()
        scale = max(1.0, float(np.abs(theirs).max()))
        np.testing.assert_allclose(mine.detach().numpy(), theirs, rtol=1e-4, atol=2e-5 * scale)

"""Recurrent layers in compiled programs: the same numbers as eagerly, trained, packed, without gradients."""

from __future__ import annotations

import pytest

import tenon
from tenon import nn
from tenon.errors import TenonWarning
from tenon.nn.utils.rnn import pack_sequence

KINDS = ("RNN", "LSTM", "GRU")


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells = getattr(nn, kind)(24, 40, num_layers=2, bidirectional=True)
        self.head = nn.Linear(80, 5)

    def forward(self, x):
        return self.head(self.cells(x)[0].mean(0))


def trained(kind, compiled, steps=6):
    tenon.manual_seed(0)
    net = Tagger(kind)
    optimizer = tenon.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x, y = tenon.randn(12, 18, 24), tenon.randint(0, 5, (18,))

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = tenon.compile(step) if compiled else step
    return [run(x, y).item() for _ in range(steps)], [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("kind", [pytest.param("RNN", marks=pytest.mark.slow), "LSTM", "GRU"])
def test_compiled_training_is_eager_training(kind):
    losses, parameters = trained(kind, compiled=True)

    expected, others = trained(kind, compiled=False)
    assert losses == pytest.approx(expected, rel=1e-4)
    assert losses[-1] < losses[0]
    for p, q in zip(parameters, others, strict=True):
        tenon.testing.assert_close(p, q, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_inference_follows_its_input(kind):
    tenon.manual_seed(0)
    layer = getattr(nn, kind)(24, 40, batch_first=True)
    forward = tenon.compile(lambda x: layer(x)[0])

    with tenon.no_grad():
        for _ in range(4):
            x = tenon.randn(18, 12, 24)
            tenon.testing.assert_close(forward(x), layer(x)[0])


def test_packed_sequences_run_eagerly_because_their_lengths_are_values():
    tenon.manual_seed(0)
    layer = nn.LSTM(24, 40)
    packed = pack_sequence([tenon.randn(n, 24) for n in (20, 9, 9, 4)])
    forward = tenon.compile(lambda packed: layer(packed)[0].data)

    forward(packed)  # the second call is recorded
    with pytest.warns(TenonWarning, match="runs eagerly: Python reads the value of a tensor"):
        made = forward(packed)

    tenon.testing.assert_close(made, layer(packed)[0].data)


def test_dropout_between_compiled_layers_differs_from_call_to_call():
    tenon.manual_seed(0)
    layer = nn.GRU(24, 40, num_layers=2, dropout=0.5)
    x = tenon.randn(12, 18, 24)
    forward = tenon.compile(lambda x: layer(x)[0])

    made = [forward(x).clone() for _ in range(4)]

    assert not any(bool((a == b).all()) for i, a in enumerate(made) for b in made[:i])

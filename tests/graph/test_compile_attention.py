"""Compiled steps with attention: selection of the kernel, surrounding ops, observers."""

import numpy as np
import pytest

import tenon
from tenon import nn, optim
from tenon.nn import functional as F

LENGTH, WIDTH = 70, 32


class Block(nn.Module):
    """Attention of two heads with a residual."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.heads, self.causal, self.mask, self.rate = 2, True, None, 0.0

    def forward(self, x):
        batch, length, _ = x.shape
        each = (batch, length, self.heads, WIDTH // self.heads)
        q, k, v = (p.view(each).transpose(1, 2) for p in self.qkv(x).split(WIDTH, dim=2))
        made = F.scaled_dot_product_attention(q, k, v, self.mask, self.rate, self.causal)
        return x + self.out(made.transpose(1, 2).contiguous().view(batch, length, WIDTH))


def training(twins, change=lambda i, net: None, length=lambda i: LENGTH, about=None):
    """``build`` of a train step of a block; ``change(i, net)`` runs before call ``i``."""

    def build():
        net = Block()
        optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

        def plain(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        def arguments(i):
            change(i, net)
            return twins.batch(i, 3, length(i), WIDTH), twins.batch(i + 50, 3, length(i), WIDTH)

        return about(net, optimizer) if about else plain, arguments, (net, optimizer)

    return build


def test_a_step_attends_in_one_call_each_way(twins):
    pytest.importorskip("llvmlite")

    step = twins.check(training(twins), fullgraph=True)

    names = [node.name for node in step.programs[0].graph.calls]
    assert names.count("attention") == names.count("attention_grad") == 1
    assert "softmax" not in names
    assert "attention_grad" in step.programs[0].source


CHANGES = {
    "causal": lambda net: setattr(net, "causal", False),
    "heads": lambda net: setattr(net, "heads", 1),
    "dropout": lambda net: setattr(net, "rate", 0.3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_attributes_of_the_attention_are_guarded(twins, name):
    twins.check(training(twins, lambda i, net: CHANGES[name](net) if i == 5 else None), calls=11, programs=2)


def test_masks_are_exchanged_and_filled_between_calls(twins):
    def change(i, net):
        if i in (0, 9):
            net.causal, net.mask = False, twins.batch(i, LENGTH, LENGTH) > 0
        if i in (5, 7):
            net.mask.copy_(net.mask.flip(0))

    twins.check(training(twins, change), calls=14, programs=None)


def test_other_lengths_have_programs_of_their_own(twins):
    twins.check(training(twins, length=lambda i: 66 if i % 4 == 3 else LENGTH), calls=20, programs=2)


def test_accumulation_autocast_and_clipping_inside_a_step(twins):
    def about(net, optimizer):
        def step(x, y):
            for _ in range(2):
                with tenon.autocast("cpu", dtype=tenon.bfloat16):
                    loss = F.mse_loss(net(x).float(), y)
                (loss / 2).backward()
                x = x + 1
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    twins.check(training(twins, about=about), calls=10, tolerance=2e-3, fullgraph=True)


def test_outputs_are_the_callers_own():
    def function(x):
        made = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return made, made, made[0], made.transpose(-1, -2), x

    compiled = tenon.compile(function)
    x = tenon.randn(2, 2, LENGTH, 16)
    kept = [compiled(x * (i + 1)) for i in range(6)]
    compiled(x)[0].zero_()

    for i, found in enumerate(kept):
        for mine, eager in zip(found, function(x * (i + 1)), strict=True):
            np.testing.assert_allclose(mine.numpy(), eager.numpy(), rtol=1e-5, atol=1e-6)


def test_a_profile_sees_both_ops():
    pytest.importorskip("llvmlite")
    net = Block()

    @tenon.compile
    def step(x):
        net(x).sum().backward()

    x = tenon.randn(3, LENGTH, WIDTH)
    for _ in range(5):
        step(x)
    with tenon.profiler.profile() as profile:
        step(x)

    assert {"attention", "attention_grad"} <= {event.key.split("::")[-1] for event in profile.key_averages()}

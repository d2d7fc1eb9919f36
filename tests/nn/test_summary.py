"""``tenon.summary``: numbers computed by hand, and a model that is not changed."""

import pytest

import tenon
from tenon import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU()
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(128, 10))

    def forward(self, x, scale=1.0):
        return self.head(self.act(self.act(self.norm(self.conv(x))) * scale))


def test_rows_and_totals_are_those_computed_by_hand(capsys):
    found = tenon.summary(Net(), tenon.randn(2, 3, 4, 4))

    assert found["conv"].flops == 2 * (2 * 8 * 4 * 4) * (3 * 3 * 3)
    assert found["head.1"].flops == 2 * 2 * 128 * 10
    assert found["head.0"].flops == 0
    assert found["act"].calls == 2
    assert found["act"].output_bytes == 2 * 4 * (2 * 8 * 4 * 4)
    assert found["head"].output_shapes == ((2, 10),)
    assert found["head"].parameters == 1290
    assert found.parameters == found.trainable == 216 + 16 + 1290
    assert found.parameter_bytes == 4 * found.parameters
    assert found.buffer_bytes == 2 * 8 * 4 + 8
    assert (
        found.flops == found[""].flops == sum(found[p].flops for p in ("conv", "norm", "act", "head")) + 256
    )
    printed = capsys.readouterr().out
    assert "act: ReLU x2" in printed
    assert printed.split("\n")[:5] == str(found).split("\n")[:5]


def test_the_model_stays_as_it_was():
    net = Net()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    numbers = tenon.get_rng_state()

    tenon.summary(net, tenon.randn(2, 3, 4, 4, generator=tenon.Generator().manual_seed(1)))

    assert net.training
    assert all(tenon.equal(value, state[name]) for name, value in net.state_dict().items())
    assert tenon.equal(tenon.get_rng_state(), numbers)
    assert all(p.grad is None for p in net.parameters())
    assert not net._forward_hooks


def test_a_forward_that_reads_values_runs_and_is_restored():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x, extra=None):
            return {"y": self.norm(x), "largest": x.max().item(), "noise": tenon.rand(2)}

    net = Reads()
    numbers = tenon.get_rng_state()

    found = tenon.summary(net, {"x": tenon.arange(12.0).reshape(4, 3)})

    assert found[""].output_shapes == ((4, 3), (2,))
    assert net.norm.running_mean.tolist() == [0.0] * 3
    assert net.norm.num_batches_tracked.item() == 0
    assert tenon.equal(tenon.get_rng_state(), numbers)


def test_on_the_meta_device_nothing_is_needed():
    net = nn.Sequential(nn.Linear(1 << 20, 1 << 20, device="meta"), nn.GELU())

    found = tenon.summary(net, tenon.empty(8, 1 << 20, device="meta"))

    assert found["0"].flops == 2 * 8 * 2**40
    assert found.parameter_bytes == 4 * (2**40 + 2**20)


def test_shared_modules_and_weights_count_once():
    shared = nn.Linear(3, 3)
    tied = nn.Linear(3, 3)
    tied.weight = shared.weight
    net = nn.Sequential(shared, shared, tied)

    found = tenon.summary(net, tenon.ones(1, 3))

    assert [row.path for row in found.rows] == ["", "0", "2"]
    assert found["0"].calls == 2
    assert found.parameters == 9 + 3 + 3


def test_lazy_modules_are_counted_and_stay_lazy():
    net = nn.Sequential(nn.LazyLinear(5), nn.LSTM(5, 4))

    found = tenon.summary(net, tenon.randn(3, 2, 7))

    assert found["0"].parameters == 40
    assert found["1"].output_shapes == ((3, 2, 4), (1, 2, 4), (1, 2, 4))
    assert isinstance(net[0].weight, nn.UninitializedParameter)


def test_an_error_in_the_model_comes_out_with_its_place():
    with pytest.raises(RuntimeError, match=r"cannot be multiplied.*in module head\.1 \(Linear\)"):
        tenon.summary(Net(), tenon.randn(2, 3, 5, 5))

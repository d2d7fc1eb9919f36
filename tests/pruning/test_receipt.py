"""Receipts: measurements and text."""

import io
import time

import pytest
from rich.console import Console

import tenon
from tenon import nn
from tenon.compress import receipt_of
from tenon.errors import ArgumentError


class Sleepy(nn.Linear):
    """A linear layer that sleeps in each call."""

    def forward(self, x):
        time.sleep(0.003)
        return super().forward(x)


def pair():
    tenon.manual_seed(0)
    wide = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 3))
    narrow = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))
    return wide, narrow


def test_a_receipt_counts_parameters_bytes_and_outputs_before_and_after():
    wide, narrow = pair()
    x = tenon.randn(5, 6)

    receipt = receipt_of(wide, narrow, x, batch_sizes=(1, 5, 7), seconds=0.0, notes=["seen"])

    assert receipt["0"].parameters.before == 280 and receipt["0"].parameters.after == 140
    assert receipt["2"].bytes.after == 4 * (20 * 3 + 3)
    assert receipt[""].parameters.ratio == pytest.approx((140 + 63) / (280 + 123))
    assert receipt[""].bytes.after < receipt[""].bytes.before
    assert set(receipt[""].seconds) == set(receipt["0"].seconds) == {1, 5, 7}
    assert receipt.output_change == pytest.approx(float((wide(x) - narrow(x)).abs().max()))
    assert "0: Linear" in str(receipt) and "Note: seen" in str(receipt)


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8-weights", "int4-weights", "bfloat16-weights"])
def test_weights_of_few_bits_are_as_many_as_they_were(scheme):
    wide, _ = pair()

    receipt = tenon.quantize(wide, scheme, example=tenon.randn(5, 6)).receipt

    assert receipt["0"].parameters.after == receipt["0"].parameters.before == 280
    assert receipt[""].parameters.ratio == 1 and receipt["0"].bytes.ratio < 0.8


def test_a_receipt_says_what_got_slower():
    wide, _ = pair()
    slow = nn.Sequential(Sleepy(6, 40), nn.ReLU(), wide[2])

    receipt = receipt_of(wide, slow, tenon.randn(4, 6), seconds=0.0)

    assert any(s.startswith("the model takes") for s in receipt.slower)
    assert any(s.startswith("0 takes") for s in receipt.slower)
    assert "Slower: " in str(receipt) and "Linear -> Sleepy" in str(receipt)


def test_accuracy_is_of_batches_or_of_a_function_and_modes_stay():
    wide, narrow = pair()
    wide[2].eval()
    x = tenon.randn(8, 6)
    labels = wide(x).argmax(1)

    receipt = receipt_of(wide, narrow, x, data=iter([(x, labels)]), seconds=0.0)
    counted = receipt_of(wide, narrow, x, data=lambda model: model[0].out_features, seconds=0.0)

    assert receipt.accuracy.before == 1.0 and receipt.accuracy.after <= 1.0
    assert (counted.accuracy.before, counted.accuracy.after) == (40.0, 20.0)
    assert [m.training for m in wide] == [True, True, False] and narrow.training


def test_bad_batch_sizes_and_empty_data_are_refused():
    wide, narrow = pair()
    with pytest.raises(ArgumentError, match="batch sizes"):
        receipt_of(wide, narrow, tenon.ones(1, 6), batch_sizes=[0])
    with pytest.raises(ArgumentError, match="no labels"):
        receipt_of(wide, narrow, tenon.ones(1, 6), data=[], seconds=0.0)


def test_a_table_is_as_wide_as_the_terminal(monkeypatch):
    wide, narrow = pair()
    receipt = receipt_of(wide, narrow, tenon.randn(4, 6), batch_sizes=(1, 32), seconds=0.0)
    screen = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr("tenon.compress.receipt.Console", lambda **_: screen)

    receipt.show()

    lines = screen.file.getvalue().splitlines()
    assert {len(line) for line in lines if line[:1] in "┏│└"} == {80} and lines[0].endswith("┓")

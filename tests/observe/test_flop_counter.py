"""``tenon.utils.flop_counter``: what is counted, under which names, and where."""

from __future__ import annotations

import functools

import pytest

import tenon
from tenon.nn import functional
from tenon.ops import aten
from tenon.utils import flop_counter
from tenon.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from tenon.utils.flop_counter import FlopCounterMode, register_flop_formula


def counted(work, **options):
    """The counts under "Global" of what ``work`` does."""
    with FlopCounterMode(display=False, **options) as counter:
        work()
    return counter.get_flop_counts().get("Global", {})


def ones(*shape):
    """A leaf."""
    return tenon.ones(*shape, requires_grad=True)


def test_products_count_by_torchs_formulas_under_its_names():
    image, kernel, bias = ones(2, 4, 9, 9), ones(6, 2, 3, 3), ones(6)
    conv = lambda: functional.conv2d(image, kernel, bias, groups=2, stride=2)  # noqa: E731
    turned = lambda: functional.conv_transpose2d(image, ones(4, 6, 3, 3), bias)  # noqa: E731

    assert counted(lambda: ones(2, 3) @ ones(3, 4)) == {aten.mm: flop_counter.mm_flop((2, 3), (3, 4))}
    assert counted(lambda: ones(5, 2, 3) @ ones(5, 3, 4)) == {aten.bmm: 240}
    assert counted(lambda: ones(2, 3) @ ones(5, 3, 4)) == {aten.mm: 240}
    assert counted(lambda: functional.linear(ones(7, 3), ones(4, 3), ones(4))) == {aten.addmm: 168}
    assert counted(conv) == {
        aten.convolution: flop_counter.conv_flop_count(image.shape, kernel.shape, [2, 6, 4, 4])
    }
    assert counted(turned) == {
        aten.convolution: flop_counter.conv_flop_count(image.shape, [4, 6, 3, 3], [2, 6, 11, 11], True)
    }
    assert (
        counted(lambda: conv().sum().backward())[aten.convolution_backward]
        == 2 * counted(conv)[aten.convolution]
    )
    assert counted(lambda: (ones(3).exp() @ ones(3)).cos()) == {}


def test_attention_and_recurrent_layers_count_their_products(monkeypatch):
    query, key = ones(2, 4, 8, 16), ones(2, 4, 10, 16)
    backend = query._backend
    forward = flop_counter.sdpa_flop_count(query.shape, key.shape, key.shape)
    backward = flop_counter.sdpa_backward_flop_count(query.shape, query.shape, key.shape, key.shape)
    attend = lambda: functional.scaled_dot_product_attention(query, key, key).sum().backward()  # noqa: E731
    layer = tenon.nn.LSTM(3, 4)

    monkeypatch.setattr(backend, "has_attention_kernel", lambda *arrays: True, raising=False)
    whole = counted(attend)
    monkeypatch.setattr(backend, "has_attention_kernel", lambda *arrays: False, raising=False)
    parts = counted(attend)
    made = counted(lambda: layer(ones(5, 2, 3))[0].sum().backward())

    assert list(whole.values()) == [forward, backward]
    assert parts == {aten.bmm: 3 * forward}  # the weights were kept
    assert made == {aten.addmm: 2 * 10 * 16 * 7, aten.mm: 4 * 10 * 16 * 7}


def test_counts_are_kept_by_module_and_counters_may_be_nested(capsys):
    model = tenon.nn.Sequential(tenon.nn.Linear(3, 4), tenon.nn.Sequential(tenon.nn.Linear(4, 5, bias=False)))

    with FlopCounterMode(depth=2) as outer:
        ones(100, 30) @ ones(30, 100)
        with FlopCounterMode(display=False) as inner:
            model(ones(2, 3)).sum().backward()
    counts = outer.get_flop_counts()

    assert counts["Sequential"] == counts["Sequential.0"] | counts["Sequential.1"] | {aten.mm: 96 + 160 + 80}
    assert counts["Sequential.1.0"] == {aten.mm: 3 * 80}
    assert outer.get_total_flops() == inner.get_total_flops() + 600_000 == 600_384
    printed = capsys.readouterr().out
    assert printed == outer.get_table() + "\n"
    assert printed.splitlines()[2] == "Global           600.384K    100.00%"
    assert "Sequential.1.0" not in printed
    assert "Sequential.1.0" in outer.get_table(depth=3)
    with outer:
        pass
    assert outer.get_total_flops() == 0


def test_what_a_checkpoint_computes_again_counts_and_what_it_kept_does_not():
    x, weight, kernel = ones(4, 4), ones(4, 4), ones(1, 1, 3, 3)
    function = lambda t: (t @ weight).sin().sum()  # noqa: E731
    keeping = functools.partial(create_selective_checkpoint_contexts, [aten.mm.default])
    image = lambda t: functional.conv2d(t.reshape(1, 1, 4, 4), kernel).sin()  # noqa: E731

    def total(**options):
        return counted(lambda: checkpoint(function, x, use_reentrant=False, **options).backward())

    assert counted(lambda: function(x).backward()) == {aten.mm: 3 * 128}
    assert total() == {aten.mm: 4 * 128}
    assert total(context_fn=keeping) == {aten.mm: 3 * 128}
    again = counted(lambda: checkpoint(image, x, use_reentrant=False).sum().backward())
    assert again == {aten.convolution: 2 * 72, aten.convolution_backward: 2 * 72}


def test_formulas_may_be_added_and_replaced():
    before = dict(flop_counter.flop_registry)
    takes_tensors = lambda *args, out_val: out_val.numel()  # noqa: E731
    takes_tensors._get_raw = True
    try:
        register_flop_formula(aten.cos)(lambda shape, out_shape=None: 3 * shape.numel())

        assert counted(lambda: ones(4, 5).cos()) == {aten.cos: 60}
        with pytest.raises(RuntimeError, match=r"duplicate registrations for aten\.cos"):
            register_flop_formula([aten.cos])(takes_tensors)
    finally:
        flop_counter.flop_registry.clear()
        flop_counter.flop_registry.update(before)
    custom = {aten.add: takes_tensors, aten.mm: lambda a, b, out_shape: a[0] + out_shape[1]}
    assert counted(lambda: ones(4, 5) + 1, custom_mapping=custom) == {aten.add: 20}
    assert counted(lambda: ones(4, 5) @ ones(5, 7), custom_mapping=custom) == {aten.mm: 11}
    with pytest.raises(ValueError, match="expected each target to be OpOverloadPacket"):
        register_flop_formula("mm")(takes_tensors)

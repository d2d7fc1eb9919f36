"""Custom Functions in autocast regions: what forward and backward see, as in torch."""

from __future__ import annotations

import pytest

import tenon
from tenon.errors import ArgumentError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def product(T, cast_inputs, seen):
    """A custom matrix product that notes the dtypes it meets."""
    amp = T.amp

    class Product(T.autograd.Function):
        @staticmethod
        @amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            made = a @ b
            seen.append(("forward", str(a.dtype), str(made.dtype), T.is_autocast_enabled("cpu")))
            return made

        @staticmethod
        @amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            left = grad @ b.t()
            seen.append(("backward", str(grad.dtype), str(left.dtype), T.is_autocast_enabled("cpu")))
            return left, a.t() @ grad

    return Product


@pytest.mark.parametrize("inside", [True, False], ids=["backward inside", "backward outside"])
@pytest.mark.parametrize("cast_inputs", [None, "float32", "float16"])
@pytest.mark.parametrize("enabled", [True, False])
def test_dtypes_and_state_are_torchs(cast_inputs, enabled, inside):
    seen = {}
    for T in (torch, tenon):
        notes = seen[T.__name__] = []
        function = product(T, cast_inputs and getattr(T, cast_inputs), notes)
        a, b = (T.full((2, 2), v, requires_grad=True) for v in (0.5, 2.0))
        with T.autocast("cpu", dtype=T.bfloat16, enabled=enabled):
            loss = function.apply(a, b).float().sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        notes.append((str(a.grad.dtype), a.grad.tolist(), b.grad.tolist()))

    assert seen["tenon"] == seen["torch"]


def test_arguments_in_nests_are_cast_too():
    seen = []

    class Sum(tenon.autograd.Function):
        @staticmethod
        @tenon.amp.custom_fwd(device_type="cpu", cast_inputs=tenon.float16)
        def forward(ctx, parts, name):
            seen.append(([p.dtype for p in parts["x"]], name))
            return parts["x"][0]

    with tenon.autocast("cpu"):
        Sum.apply(
            {"x": [tenon.ones(2), tenon.ones(2, dtype=tenon.float64), tenon.ones(2, dtype=tenon.int64)]}, "n"
        )

    assert seen == [([tenon.float16, tenon.float64, tenon.int64], "n")]


def test_a_backward_without_its_forward_is_refused():
    class Half(tenon.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @tenon.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            return grad * 2

    y = Half.apply(tenon.ones(2, requires_grad=True))
    with pytest.raises(ArgumentError, match="Decorate both"):
        y.sum().backward()


def test_the_device_type_must_be_a_known_name():
    for decorator in (tenon.amp.custom_fwd, tenon.amp.custom_bwd):
        with pytest.raises(ValueError, match="of type `str`"):
            decorator(device_type=3)

"""A checkpointed part saves the results that a policy selects, and recomputes the others."""

import functools
import gc
import weakref

import pytest

import tenon
from tenon.nn import functional as F
from tenon.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

aten = tenon.ops.aten
EVERYTHING = {"save": CheckpointPolicy.MUST_SAVE, "offload": CheckpointPolicy.MUST_CPU_OFFLOAD}


def selective(policy, function, *args, **options):
    contexts = functools.partial(create_selective_checkpoint_contexts, policy, **options)
    return checkpoint(function, *args, use_reentrant=False, context_fn=contexts)


def always(choice):
    return lambda context, op, *args, **attrs: choice


@pytest.fixture
def weights():
    tenon.manual_seed(0)
    return [tenon.randn(*shape, requires_grad=True) for shape in ((4, 6), (6, 6), (6,))]


def block(x, w, b):
    hidden = tenon.sigmoid(x @ w) * x
    hidden = F.layer_norm(F.linear(hidden, w, b), (6,))
    return F.dropout(hidden.exp(), 0.5) + hidden.softmax(-1)


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("choice", ["list", "save", "offload"])
def test_gradients_are_those_of_a_plain_call(weights, choice, nested, amp):
    policy = [aten.mm.default, aten._softmax.default] if choice == "list" else always(EVERYTHING[choice])

    def inner(x, w, b):
        return block(selective(policy, block, x, w, b), w, b)

    def plain(x, w, b):
        return block(block(x, w, b), w, b)

    def of(function, *args):
        tenon.manual_seed(1)
        with tenon.autocast("cpu", dtype=tenon.bfloat16, enabled=amp):
            out = function(*args)
        return tenon.autograd.grad(out.square().sum(), weights)

    expected = of(plain, *weights)
    found = of(selective, policy, inner if nested else plain, *weights)

    assert all(tenon.equal(x, y) for x, y in zip(expected, found, strict=True))


def test_a_kept_product_is_not_computed_again():
    x = tenon.tensor([[1.0, 2.0]], requires_grad=True)
    matrices = {"w": tenon.eye(2)}

    def function(x):
        return (x @ matrices["w"]).sin()

    kept = selective([aten.mm.default], function, x)
    again = selective([aten.sin.default], function, x)
    matrices["w"] = 2 * tenon.eye(2)
    of_kept, of_again = (tenon.autograd.grad(out.sum(), x)[0] for out in (kept, again))

    assert tenon.allclose(of_kept, 2 * x.cos())
    assert tenon.allclose(of_again, 2 * (2 * x).cos())


def test_a_policy_sees_torchs_operators_and_their_results_once(weights):
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint as torchs
    from torch.utils.checkpoint import create_selective_checkpoint_contexts as contexts

    seen, expected = [], []

    def function(x, w, b, f):
        y = f.linear(x @ w, w, b).relu() * 2
        y = f.layer_norm(y, (6,)).softmax(-1) - (y[None] @ y.T[None])[0].sum()
        return f.gelu(f.linear(y, w)).tanh().mean()

    def policy(context, op, *args, **attrs):
        assert not context.is_recompute
        seen.append((op, tuple(context.op_output.shape)))
        return True

    def torchs_policy(context, op, *args, **kwargs):
        out, name = context.op_output, str(op).split(".")[1]
        if name not in ("t", "unsqueeze", "select", "view", "transpose", "expand", "permute", "_unsafe_view"):
            shape = tuple((out[0] if isinstance(out, tuple) else out).shape)
            expected.append((getattr(aten, name).default, shape))
        return True

    given = [torch.tensor(w.detach().numpy(), requires_grad=True) for w in weights]
    torchs(
        function, *given, torch.nn.functional, use_reentrant=False,
        context_fn=functools.partial(contexts, torchs_policy),
    ).backward()  # fmt: skip
    selective(policy, function, *weights, F).backward()

    assert seen == expected
    for mine, other in zip(weights, given, strict=True):
        torch.testing.assert_close(torch.tensor(mine.grad.numpy()), other.grad)


def test_kept_results_serve_one_backward_pass(weights):
    x, w, b = weights
    out = selective(always(True), block, x, w, b).sum()

    out.backward(retain_graph=True)

    with pytest.raises(RuntimeError, match="backward an extra time"):
        out.backward()


def test_a_kept_result_must_stay_as_it_was(weights):
    x, w, _ = weights

    def function(x, w):
        product = x @ w
        product.mul_(2)
        return product.sin()

    with pytest.raises(RuntimeError, match=r"has been mutated.*matmul was modified in place"):
        selective([aten.mm.default], function, x, w).sum().backward()

    allowed = selective([aten.mul.Tensor], function, x, w, allow_cache_entry_mutation=True)
    allowed.sum().backward()
    assert tenon.allclose(x.grad, tenon.autograd.grad(function(x, w).sum(), x)[0])


def test_a_part_that_does_something_else_again_is_refused(weights):
    x, w, _ = weights
    calls = []

    def function(x, w):
        calls.append(1)
        return (x @ w).sin() if len(calls) == 1 else x.exp().sin() @ w

    with pytest.raises(RuntimeError, match="second run calls exp where the first one called matmul"):
        selective(always(True), function, x, w).sum().backward()


def test_what_is_kept_goes_with_the_graph():
    x = tenon.ones(16, 16, requires_grad=True)
    kept = []

    def policy(context, op, *args, **attrs):
        kept.append(weakref.ref(context.op_output.raw))
        return op == aten.mm.default

    out = selective(policy, lambda x: (x @ x).sin().exp(), x)
    gc.collect()
    assert [r() is not None for r in kept] == [True, False, True]

    del out
    gc.collect()
    assert [r() for r in kept] == [None, None, None]


@pytest.mark.parametrize("bad", [[2], "mm", 3, [aten.mm]])
def test_what_is_not_a_policy_is_refused(bad):
    kind = ValueError if isinstance(bad, list) else TypeError
    with pytest.raises(kind, match=r"Expected op in `op_list`|either a function or a list of ops"):
        create_selective_checkpoint_contexts(bad)

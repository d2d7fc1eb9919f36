"""Forward and backward hooks: the same programs on tenon and on PyTorch."""

import warnings

import pytest

pytestmark = pytest.mark.oracle
PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


@program
def order_of_forward_hooks(t):
    _, Double, _ = t.small()
    seen = []

    def pre(name):
        return lambda m, args: seen.append((name, len(args)))

    def post(name):
        return lambda m, args, out: seen.append((name, out is None))

    module = Double()
    everything = [
        module.register_forward_pre_hook(pre("own pre 1")),
        module.register_forward_pre_hook(pre("own pre 0"), prepend=True),
        module.register_forward_pre_hook(
            lambda m, a, k: seen.append(("kw pre", sorted(k))), with_kwargs=True
        ),
        module.register_forward_hook(post("own 1")),
        module.register_forward_hook(post("own 0"), prepend=True),
        module.register_forward_hook(lambda m, a, k, o: seen.append(("kw", sorted(k))), with_kwargs=True),
        module.register_forward_hook(post("always"), always_call=True),
        t.nn.modules.module.register_module_forward_pre_hook(pre("global pre")),
        t.nn.modules.module.register_module_forward_hook(post("global")),
        t.nn.modules.module.register_module_forward_hook(post("global always"), always_call=True),
    ]
    module(t.ones(1), scale=3.0)
    module.forward = lambda x, scale: 1 / 0
    try:
        module(t.ones(1), scale=3.0)
    except ZeroDivisionError:
        seen.append("raised")
    for handle in everything:
        handle.remove()
    del module.forward
    module(t.ones(1))
    return seen


@program
def hooks_replace_values(t):
    _, Double, _ = t.small()
    module = Double()
    module.register_forward_pre_hook(lambda m, args: args[0] + 1)
    module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": 10.0}), with_kwargs=True)
    module.register_forward_hook(lambda m, args, out: out + args[0])
    module.register_forward_hook(lambda m, args, kwargs, out: out * kwargs["scale"], with_kwargs=True)
    out = module(t.ones(2))
    bad = Double()
    bad.register_forward_pre_hook(lambda m, args, kwargs: 5, with_kwargs=True)
    return out.tolist(), t.error(lambda: bad(t.ones(1)))


@program
def order_of_backward_hooks(t):
    Affine, Double, _ = t.small()
    seen = []

    def values(grads):
        return [None if g is None else g.tolist() for g in grads]

    module = t.nn.Sequential(Affine(), Double())
    handles = [
        t.nn.modules.module.register_module_full_backward_pre_hook(
            lambda m, go: seen.append(("global pre", type(m).__name__, values(go)))
        ),
        t.nn.modules.module.register_module_full_backward_hook(
            lambda m, gi, go: seen.append(("global", type(m).__name__, values(gi), values(go)))
        ),
    ]
    for child in module:
        name = type(child).__name__
        child.register_full_backward_hook(
            lambda m, gi, go, name=name: seen.append((name, values(gi), values(go)))
        )
        child.register_full_backward_hook(
            lambda m, gi, go, name=name: seen.append((name, "first")), prepend=True
        )
        child.register_full_backward_pre_hook(lambda m, go, name=name: seen.append((name, "pre", values(go))))
    x = t.ones(1, 2, requires_grad=True)
    module(x).sum().backward()
    for handle in handles:
        handle.remove()
    return seen, x.grad.tolist(), module[0].weight.grad.tolist()


@program
def backward_hooks_replace_gradients(t):
    _, Double, _ = t.small()
    module = Double()
    module.register_full_backward_pre_hook(lambda m, go: (go[0] * 10,))
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] + go[0],))
    x = t.ones(2, requires_grad=True)
    module(x).sum().backward()
    return x.grad.tolist()


@program
def backward_hooks_with_several_arguments(t):
    class Mix(t.nn.Module):
        def forward(self, x, z, word):
            return x * 2, z * 3, x * z * 5

    seen = []

    def values(grads):
        return [None if g is None else g.tolist() for g in grads]

    module = Mix()
    module.register_full_backward_hook(lambda m, gi, go: seen.append((values(gi), values(go))))
    x, z = t.ones(2, requires_grad=True), t.ones(2)
    first, second, third = module(x, z, "word")
    seen.append((first.requires_grad, second.requires_grad, third.requires_grad))
    first.sum().backward(retain_graph=True)
    third.sum().backward()
    return seen


@program
def backward_hook_without_inputs(t):
    Affine, _, _ = t.small()
    seen = []
    module = Affine()
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, [g.tolist() for g in go])))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module(t.ones(1, 2)).sum().backward()
    return seen, [(w.category.__name__, str(w.message)) for w in caught]


@program
def backward_hook_errors(t):
    _, Double, _ = t.small()

    def run(hook, x):
        module = Double()
        module.register_full_backward_hook(hook)
        return t.error(lambda: module(x).sum().backward())

    x = t.ones(1, requires_grad=True)
    return [
        run(lambda m, gi, go: (gi[0], gi[0]), x),
        run(lambda m, gi, go: None, x),
    ]


@program
def second_order_through_backward_hooks(t):
    class Square(t.nn.Module):
        def forward(self, x):
            return x * x

    seen = []
    module = Square()
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    x = t.ones(2, requires_grad=True)
    (grad,) = t.autograd.grad((module(x) ** 2).sum(), x, create_graph=True)
    grad.sum().backward()
    return seen[0], grad.tolist(), x.grad.tolist()


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_program_sees_the_same_on_both(run, same_on_both):
    same_on_both(run)

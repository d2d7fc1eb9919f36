"""What a module registers, prints and finds: the same programs on tenon and on PyTorch."""

import copy
import pickle

import pytest

pytestmark = pytest.mark.oracle
PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


@program
def repr_of_a_tree(t):
    _, _, Net = t.small()
    return repr(Net())


@program
def repr_with_many_extra_lines(t):
    class Talks(t.nn.Module):
        def extra_repr(self):
            return "a=1\nb=2"

    outer = t.nn.Sequential(Talks())
    outer.add_module("none", None)
    return repr(outer), repr(Talks())


@program
def names_of_everything(t):
    _, _, Net = t.small()
    net = Net()
    return (
        [name for name, _ in net.named_parameters()],
        [name for name, _ in net.named_parameters(prefix="p", remove_duplicate=False)],
        [name for name, _ in net.named_parameters(recurse=False)],
        [name for name, _ in net.named_buffers()],
        [name for name, _ in net.named_modules()],
        [name for name, _ in net.named_modules(prefix="p", remove_duplicate=False)],
        [name for name, _ in net.named_children()],
        len(list(net.modules())),
        len(list(net.parameters())),
        len(list(net.buffers())),
    )


@program
def registration_errors(t):
    Affine, Double, Net = t.small()
    net = Net()

    class Early(t.nn.Module):
        def __init__(self, what):
            self.x = what

    affine = Affine()
    needs_grad = t.ones(2, requires_grad=True) * 2
    leafless = t.nn.Parameter(t.ones(2))
    return [
        t.error(lambda: Early(t.nn.Parameter(t.ones(1)))),
        t.error(lambda: Early(Double())),
        t.error(lambda: net.register_parameter("first", t.nn.Parameter(t.ones(1)))),
        t.error(lambda: net.register_parameter("a.b", t.nn.Parameter(t.ones(1)))),
        t.error(lambda: net.register_parameter("", t.nn.Parameter(t.ones(1)))),
        t.error(lambda: net.register_parameter(5, t.nn.Parameter(t.ones(1)))),
        t.error(lambda: net.register_parameter("p", 5)),
        t.error(lambda: net.register_parameter("p", t.ones(1))),
        t.error(lambda: net.register_buffer("first", t.ones(1))),
        t.error(lambda: net.register_buffer("a.b", t.ones(1))),
        t.error(lambda: net.register_buffer("", t.ones(1))),
        t.error(lambda: net.register_buffer(5, t.ones(1))),
        t.error(lambda: net.register_buffer("b", 5)),
        t.error(lambda: net.add_module("a.b", Double())),
        t.error(lambda: net.add_module("", Double())),
        t.error(lambda: net.add_module(5, Double())),
        t.error(lambda: net.add_module("m", 5)),
        t.error(lambda: net.add_module("forward", Double())),
        t.error(lambda: net.add_module("training", Double())),
        t.error(lambda: setattr(net, "first", 5)),
        t.error(lambda: setattr(affine, "weight", t.ones(3, 2))),
        t.error(lambda: setattr(affine, "bias", 5)),
        t.error(lambda: setattr(affine, "calls", 5)),
        t.error(lambda: net.missing),
        t.error(lambda: delattr(net, "missing")),
        t.error(lambda: net(t.ones(1), t.ones(1), nope=1) and None)[-60:],
        t.error(lambda: t.nn.Module()(1)),
        t.error(lambda: t.nn.Module(1)),
        t.error(lambda: t.nn.Module(a=1)),
        t.error(lambda: Affine().train("yes"))[:39],
        needs_grad.is_leaf,
        leafless.is_leaf,
    ]


@program
def finding_errors(t):
    _, Double, Net = t.small()
    net = Net()
    return [
        t.error(lambda: net.get_submodule("first.nothing_here")),
        t.error(lambda: net.get_submodule("first.weight")),
        t.error(lambda: net.get_parameter("first.calls")),
        t.error(lambda: net.get_parameter("first.nope")),
        t.error(lambda: net.get_buffer("first.weight")),
        t.error(lambda: net.get_buffer("nope.weight")),
        t.error(lambda: net.set_submodule("", Double())),
        t.error(lambda: net.set_submodule("first.weight", Double())),
        t.error(lambda: net.set_submodule("first.new", Double(), strict=True)),
        t.error(lambda: net.set_submodule("first", 5)).split("<")[0],
        net.get_submodule("") is net,
        net.get_buffer("first.calls").tolist(),
    ]


@program
def plain_assignment_keeps_a_buffer(t):
    Affine, _, _ = t.small()
    module = Affine()
    module.calls = t.ones(4)
    module.scratch = t.ones(4)
    kept = list(module.state_dict()), sorted(module._buffers), module.calls.tolist()
    module.calls = None
    return (
        kept,
        list(module.state_dict()),
        sorted(module._buffers),
        t.error(lambda: setattr(module, "calls", "x")),
    )


@program
def one_name_moves_between_registries(t):
    Affine, Double, _ = t.small()
    module = Affine()
    steps = []
    for value in (Double(), t.nn.Parameter(t.ones(2)), t.nn.Parameter(t.ones(1))):
        module.scratch = value
        steps.append(
            (
                sorted(module._parameters),
                sorted(module._buffers),
                sorted(module._modules),
                list(module.state_dict()),
            )
        )
    del module.scratch
    steps.append((sorted(module._parameters), sorted(module._non_persistent_buffers_set)))
    module.scratch = 5
    steps.append(module.scratch)
    module.scratch = Double()
    return steps, "scratch" in dict(module.named_children())


@program
def buffer_class(t):
    module = t.nn.Module()
    module.kept = t.nn.Buffer(t.ones(1))
    module.lost = t.nn.Buffer(t.ones(1), persistent=False)
    return (
        list(module.state_dict()),
        [name for name, _ in module.named_buffers()],
        isinstance(module.kept, t.nn.Buffer),
        isinstance(module.kept, t.nn.Parameter),
        isinstance(t.ones(1), t.nn.Buffer),
        module.kept.requires_grad,
        repr(module.kept),
    )


@program
def registries_can_be_edited(t):
    Affine, Double, _ = t.small()
    module = Affine()
    weight = t.nn.Parameter(t.zeros(1))
    module._parameters["weight"] = weight
    same = module.weight is weight
    del module._parameters["weight"]
    gone = hasattr(module, "weight")
    module._modules["child"] = Double()
    found = type(module.child).__name__
    module._modules.clear()
    module._buffers.update(calls=t.ones(3))
    popped = module._buffers.pop("calls").tolist()
    return same, gone, found, hasattr(module, "child"), popped, hasattr(module, "calls")


@program
def training_mode_and_apply(t):
    _, _, Net = t.small()
    net = Net()
    names = []
    net.apply(lambda m: names.append(type(m).__name__))
    modes = [m.training for m in net.modules()]
    net.eval()
    modes += [m.training for m in net.modules()]
    net.first.train()
    modes += [m.training for m in net.modules()]
    net.requires_grad_(False)
    return names, modes, [p.requires_grad for p in net.parameters()], net.train() is net


@program
def registration_hooks(t):
    module_ns = t.nn.modules.module
    seen = []
    handles = [
        module_ns.register_module_buffer_registration_hook(
            lambda m, n, b: seen.append(("buffer", n)) or b * 2
        ),
        module_ns.register_module_parameter_registration_hook(lambda m, n, p: seen.append(("parameter", n))),
        module_ns.register_module_module_registration_hook(lambda m, n, c: seen.append(("module", n))),
    ]
    module = t.nn.Module()
    module.register_buffer("b", t.ones(1))
    module.b = t.ones(1)
    module.p = t.nn.Parameter(t.ones(1))
    module.register_parameter("q", None)
    module.m = t.nn.Module()
    module.add_module("n", None)
    for handle in handles:
        handle.remove()
    module.m2 = t.nn.Module()
    return seen, module.b.tolist()


@program
def parameter_behaviour(t):
    data = t.ones(2)
    with t.no_grad():
        parameter = t.nn.Parameter(data)
    frozen = t.nn.Parameter(data, requires_grad=False)
    clone = copy.deepcopy(parameter)
    again = pickle.loads(pickle.dumps(parameter))
    data.fill_(3)
    empty = t.nn.Parameter()
    return (
        parameter.requires_grad,
        frozen.requires_grad,
        repr(parameter),
        repr(frozen),
        repr(clone),
        repr(again),
        type(again).__name__,
        type(parameter * 2).__name__,
        type(parameter.data).__name__,
        type(parameter.detach()).__name__,
        isinstance(parameter, t.Tensor),
        tuple(empty.shape),
        parameter.is_leaf,
        repr(t.nn.Parameter(t.ones(1, dtype=t.float64))),
    )


@program
def zero_grad(t):
    module = t.nn.Module()
    module.p = t.nn.Parameter(t.ones(2))
    (module.p * 2).sum().backward()
    grad = module.p.grad
    module.zero_grad(set_to_none=False)
    zeros = grad.tolist(), module.p.grad is grad
    module.zero_grad()
    return zeros, module.p.grad


@program
def dir_of_a_module(t):
    Affine, _, _ = t.small()
    module = t.nn.Sequential(Affine())
    module.plain = 1
    names = [n for n in dir(module) if not n.startswith("_")]
    return [n for n in names if n in ("plain", "0", "forward", "weight")], "weight" in dir(module[0])


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_program_sees_the_same_on_both(run, same_on_both):
    same_on_both(run)

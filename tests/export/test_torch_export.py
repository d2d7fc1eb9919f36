"""Programs of the same modules in tenon and in PyTorch: signatures, state, structures and values."""

import copy
import re
import sys
from pathlib import Path

import pytest

import tenon
from tenon.export import Dim, export
from tenon.tensors.pytree import tree_leaves

sys.path.append(str(Path(__file__).parent))
from torch_models import models

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # PyTorch's own
NAMES = list(models(tenon))


@pytest.fixture(scope="module")
def theirs():
    """PyTorch's programs; those that change something in the form that has the new values as outputs."""
    programs = {name: torch.export.export(*each) for name, each in models(torch).items()}
    for name in ("training norm", "counter", "mutating"):
        programs[name] = programs[name].run_decompositions({})
    return programs


def name_of(argument):
    """The name of a placeholder; one of the name ``input``, which Python has, gets a number here."""
    return argument.name.removesuffix("_1") if argument.name == "input_1" else argument.name


def inputs_of(program):
    return [
        (spec.kind.name, name_of(spec.arg), spec.target, spec.persistent, getattr(spec.arg, "value", None))
        for spec in program.graph_signature.input_specs
    ]


def outputs_of(program):
    return [(spec.kind.name, spec.target) for spec in program.graph_signature.output_specs]


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_pytorchs(name, theirs):
    module, args, kwargs = models(tenon)[name]

    program = export(module, args, kwargs)

    other = theirs[name]
    if name == "recurrent":  # its first state is a constant here, and a call of zeros in PyTorch
        assert program.graph_signature.lifted_tensor_constants == ("lifted_tensor_0",)
        return
    assert inputs_of(program) == inputs_of(other)
    mine, own = outputs_of(program), outputs_of(other)
    assert sorted(mine, key=str) == sorted(own, key=str)
    signature, wanted = program.graph_signature, other.graph_signature
    for field in ("parameters", "buffers", "non_persistent_buffers", "lifted_tensor_constants"):
        assert getattr(signature, field) == tuple(getattr(wanted, field)), field
    for field in ("inputs_to_parameters", "inputs_to_buffers", "inputs_to_lifted_tensor_constants"):
        assert dict(getattr(signature, field)) == dict(getattr(wanted, field)), field
    for field in ("buffers_to_mutate", "user_inputs_to_mutate"):
        assert sorted(getattr(signature, field).values()) == sorted(getattr(wanted, field).values()), field
    assert len(signature.user_outputs) == len(wanted.user_outputs)
    assert list(program.state_dict) == list(other.state_dict)
    assert set(program.constants) == set(other.constants)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_pytorchs(name):
    module, args, kwargs = models(tenon)[name]
    other, other_args, other_kwargs = models(torch)[name]
    other.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in module.state_dict().items()})
    leaves = zip(
        tree_leaves((args, kwargs)), torch.utils._pytree.tree_leaves((other_args, other_kwargs)), strict=True
    )
    for mine, own in leaves:
        if isinstance(mine, tenon.Tensor):
            own.copy_(torch.from_numpy(mine.numpy().copy()))
    mine = export(module, copy.deepcopy(args), copy.deepcopy(kwargs)).module()
    own = torch.export.export(other, copy.deepcopy(other_args), copy.deepcopy(other_kwargs)).module()

    for _ in range(2):  # buffers and arguments change
        with tenon.no_grad(), torch.no_grad():
            results, wanted = mine(*args, **kwargs), own(*other_args, **other_kwargs)
        pairs = zip(
            tree_leaves((results, args)), torch.utils._pytree.tree_leaves((wanted, other_args)), strict=True
        )
        for a, b in pairs:
            if isinstance(a, tenon.Tensor):
                assert torch.allclose(torch.from_numpy(a.numpy()), b, atol=1e-5)
            else:
                assert a == b


#: Module, arguments, dynamic_shapes as a function of Dim, and the axes that may change in PyTorch.
SHAPES = {
    "dict": lambda D: {"x": {0: D("b", min=2, max=64)}},
    "tuple": lambda D: ({0: D("b", min=2, max=64)},),
    "list": lambda D: [{0: D("b", min=2, max=64)}],
    "all axes": lambda D: ((D("b", min=2, max=64), None),),
    "a given size": lambda D: ((D("b", min=2, max=64), 4),),
    "static": lambda D: {"x": {0: D("b", min=2, max=64), 1: D.STATIC}},
    "from the end": lambda D: {"x": {-2: D("b", min=2, max=64)}},
    "automatic": lambda D: {"x": {0: D.AUTO, 1: D.AUTO}},
    "dynamic": lambda D: {"x": {0: D.DYNAMIC}},
    "none": lambda D: {"x": None},
    "nothing": lambda D: None,
    "unknown name": lambda D: {"y": {0: D("b")}},
    "too many": lambda D: (None, None),
    "wrong size": lambda D: ((D("b"), 5),),
    "too short": lambda D: ((D("b"),),),
    "not in range": lambda D: {"x": {0: D("b", min=4)}},
    "fixed by the program": lambda D: {"x": {0: D("b"), 1: D("c")}},
    "dynamic but fixed": lambda D: {"x": {0: D.DYNAMIC, 1: D.DYNAMIC}},
}


def accepted(lib, shapes):
    """Which other batches than the example's a program takes; the error if it cannot be made."""
    module, (x,), _ = models(lib)["perceptron"]
    try:
        program = lib.export.export(module, (x,), dynamic_shapes=shapes(lib.export.Dim))
    except RuntimeError as error:
        return error
    sizes = []
    for batch in (2, 3, 64, 65):
        try:
            program.module()(lib.ones(batch, 4))
            sizes.append(batch)
        except (AssertionError, RuntimeError):
            pass
    return sizes


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_dynamic_shapes_are_pytorchs(shapes):
    mine, own = accepted(tenon, shapes), accepted(torch, shapes)

    assert isinstance(mine, Exception) == isinstance(own, Exception), (mine, own)
    if not isinstance(own, Exception):
        assert mine == own
    elif "Constraints violated" in str(own):
        violated = re.compile(r"Constraints violated \((?:L\['(\w+)'\])?([^)]*\)?[^)]*)\)!")
        assert violated.search(str(mine)) and violated.search(str(own))


def pair(lib):
    class Sum(lib.nn.Module):
        def forward(self, x, y):
            return x + y

    return Sum(), (lib.ones(3, 4), lib.ones(3, 4))


@pytest.mark.parametrize("lib", [tenon, torch], ids=["tenon", "torch"])
def test_equal_sizes_are_found_out(lib):
    module, args = pair(lib)
    auto = {0: lib.export.Dim.AUTO}

    program = lib.export.export(module, args, dynamic_shapes={"x": auto, "y": dict(auto)})

    assert len(program.range_constraints) == 1
    assert tuple(program.module()(lib.ones(7, 4), lib.ones(7, 4)).shape) == (7, 4)
    with pytest.raises((AssertionError, RuntimeError)):
        program.module()(lib.ones(7, 4), lib.ones(5, 4))


@pytest.mark.parametrize("lib", [tenon, torch], ids=["tenon", "torch"])
def test_sizes_that_must_be_equal_are_named(lib):
    module, args = pair(lib)
    b, c = lib.export.Dim("b"), lib.export.Dim("c")

    with pytest.raises(RuntimeError, match=r"(?s)Constraints violated .*Suggested fixes:\n +c = b"):
        lib.export.export(module, args, dynamic_shapes={"x": {0: b}, "y": {0: c}})


def test_a_fixed_size_is_suggested():
    module, args, _ = models(tenon)["perceptron"]

    with pytest.raises(RuntimeError, match=r"(?s)Constraints violated \(c\)! .*Suggested fixes:\n  c = 4"):
        export(module, args, dynamic_shapes={"x": {0: Dim("b"), 1: Dim("c")}})


def computed(m):
    b = m.Dim("batch", min=2, max=16)
    return [2 * b, b * 2, b + 1, 1 + b, b - 1, 2 * b + 1, 2 * (b + 1), (b + 1) * 2 - 2, b + 0]


def test_computed_dims_are_those_of_torch():
    for own, their in zip(computed(tenon.export), computed(torch.export), strict=True):
        assert (own.__name__, own.min, own.max) == (their.__name__, their.min, their.max)


@pytest.mark.parametrize(
    "compute",
    [lambda b: 1 - b, lambda b: b * -1, lambda b: b * 0, lambda b: b + 1.5, lambda b: b * 1.5],
)
def test_other_computed_dims_are_refused_in_the_words_of_torch(compute):
    with pytest.raises(NotImplementedError) as theirs:
        compute(torch.export.Dim("batch"))
    with pytest.raises(NotImplementedError) as ours:
        compute(Dim("batch"))
    assert str(ours.value) == str(theirs.value)


def tied(m):
    model = m.nn.Sequential(m.nn.Linear(3, 3), m.nn.Linear(3, 3)).eval()
    model[1].weight = model[0].weight
    return model, (m.ones(2, 3),)


def test_tied_weights_have_the_names_that_torch_gives_them():
    model, args = tied(tenon)
    own, their = export(model, args), torch.export.export(*tied(torch))

    assert set(own.state_dict) == set(their.state_dict)
    assert set(own.module().state_dict()) == set(their.module().state_dict())
    assert len(list(own.module().parameters())) == len(list(their.module().parameters()))

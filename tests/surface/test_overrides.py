"""``__torch_function__``: classes and modes that override functions, and no change without them."""

import copy
import inspect
import pickle
import subprocess
import sys

import pytest

import tenon
from tenon import overrides
from tenon.compat import rerouting
from tenon.errors import TenonWarning
from tenon.nn import functional as F

stack = tenon.stack  # held from before any class asks


@pytest.fixture(autouse=True)
def classes_are_asked():
    rerouting.reroute_permanently()  # the classes below were defined long before the test


class Tagged(tenon.Tensor):
    """A subclass that is preserved by functions and records their calls."""

    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(overrides.resolve_name(func))
        return super().__torch_function__(func, types, args, kwargs)


class Kept(tenon.Tensor):
    """A subclass that does not define ``__torch_function__``."""


class Money:
    """Not a tensor, but defines ``__torch_function__``."""

    known: dict = {}

    def __init__(self, amount):
        self.amount = amount

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in cls.known:
            return NotImplemented
        return cls.known[func](*args, **(kwargs or {}))


Money.known[tenon.add] = lambda a, b: Money(a.amount + b.amount)
Money.known[tenon.mean] = lambda money: money.amount
Money.known[F.relu] = lambda money: Money(max(money.amount, 0))


@pytest.fixture
def tagged():
    x = tenon.tensor([[1.0, 2.0], [3.0, 4.0]]).as_subclass(Tagged)
    Tagged.calls.clear()
    return x


def test_a_subclass_sees_each_public_call_once_and_keeps_its_class(tagged):
    plain = tenon.ones(2, 2)
    results = [
        tagged + 1, 2 - tagged, plain @ tagged, tagged[0], tagged.T, F.relu(tagged), tenon.linalg.inv(tagged),
        stack([plain, tagged]), tagged.mul_(2), tagged.max(0).values, tenon.zeros_like(input=tagged),
    ]  # fmt: skip

    assert all(type(r) is Tagged for r in results) and tagged.shape == (2, 2)
    assert Tagged.calls == [
        "torch.Tensor.add", "torch.Tensor.__rsub__", "torch.Tensor.matmul", "torch.Tensor.__getitem__",
        "torch.Tensor.T.__get__", "torch.nn.functional.relu", "torch.linalg.inv", "torch.stack",
        "torch.Tensor.mul_", "torch.Tensor.max", "torch.zeros_like", "torch.Tensor.shape.__get__",
    ]  # fmt: skip
    tagged.requires_grad = False
    assert Tagged.calls[-1] == "torch.Tensor.requires_grad.__set__"
    assert type(tenon.tensor(tagged)) is type(plain + 1) is tenon.Tensor


def test_a_subclass_takes_part_in_gradients_layers_and_copies():
    x = tenon.rand(3, 2).as_subclass(Kept)
    weight = tenon.ones(2, 2, requires_grad=True)
    loss = tenon.nn.Linear(2, 1)(x @ weight).sum()
    loss.backward()

    assert type(loss) is Kept and weight.grad is not None and list(map(type, x)) == [Kept] * 3
    assert type(copy.deepcopy(x)) is type(copy.copy(x)) is type(pickle.loads(pickle.dumps(x))) is Kept
    assert repr(tenon.ones(2).as_subclass(Kept)) == "Kept([1., 1.])"


def test_subclasses_come_before_what_they_derive_from_and_strangers_are_refused():
    class Nearer(Kept):
        pass

    class Other(tenon.Tensor):
        pass

    class Silent(tenon.Tensor):
        __torch_function__ = tenon._C._disabled_torch_function_impl

    near, kept, other, silent = (tenon.ones(2).as_subclass(c) for c in (Nearer, Kept, Other, Silent))

    assert type(kept + near) is type(tenon.add(near, kept)) is Nearer
    with pytest.raises(TypeError, match=r"'torch\.add'.*Kept.*Other.*Multiple dispatch failed"):
        tenon.add(kept, other)
    assert type(silent + 1) is type(tenon.nn.Parameter(tenon.ones(2)) + 1) is tenon.Tensor
    assert overrides.has_torch_function((kept,)) and not overrides.has_torch_function((silent, tenon.ones(1)))
    with tenon._C.DisableTorchFunctionSubclass():
        assert type(kept + 1) is tenon.Tensor and not overrides.has_torch_function((kept,))


def test_a_class_that_is_not_a_tensor_overrides_the_first_function_that_receives_it():
    rerouting.restore_all()

    assert tenon.mean(Money(3)) == 3
    assert tenon.add(Money(1), Money(2)).amount == 3 and F.relu(Money(-1)).amount == 0
    with pytest.raises(TypeError, match=r"no implementation found for 'torch\.stack'.*Money"):
        stack([Money(1), tenon.ones(1)])
    with pytest.raises(TypeError, match=r"argument 'input'.*must be Tensor, not str"):
        tenon.mean("three")


def test_a_mode_sees_factories_too_and_functions_have_their_own_code_afterwards():
    seen = []

    class Seeing(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((func.__name__, types))
            return func(*args, **(kwargs or {}))

    rerouting.restore_all()
    code = tenon.Tensor.exp.__code__
    with Seeing(), overrides.BaseTorchFunctionMode():
        assert tenon.Tensor.exp.__code__ is not code
        y = tenon.ones(2).exp().shape
    with (
        pytest.raises(NotImplementedError, match="defines no __torch_function__"),
        overrides.TorchFunctionMode(),
    ):
        tenon.ones(2)
    with Seeing(), tenon._C.DisableTorchFunction():
        tenon.ones(2)

    assert seen == [("ones", ()), ("exp", ()), ("__get__", ())] and y == (2,)
    assert tenon.Tensor.exp.__code__ is code


def test_functions_written_with_the_protocol_ask_as_tenons_own():
    @overrides.wrap_torch_function(lambda a, b: (a, b))
    def sold(a, b):
        return "nobody asked"

    Money.known[sold] = lambda a, b: a.amount * b

    assert sold(1, 2) == "nobody asked" and sold(Money(3), 2) == 6
    assert overrides.handle_torch_function(tenon.mean, (Money(4),), Money(4)) == 4
    assert overrides.is_tensor_like(Money(1)) and overrides.is_tensor_like(tenon.ones(1))
    assert overrides.is_tensor_method_or_property(tenon.Tensor.add)

    class Older:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return "asked"

    with pytest.warns(DeprecationWarning, match="plain method is deprecated"):
        assert tenon.sin(Older()) == "asked"
    assert overrides.is_tensor_method_or_property(tenon.Tensor.shape.__get__)
    assert not overrides.is_tensor_method_or_property(tenon.add) and overrides.resolve_name(print) is None


def test_the_lists_name_functions_and_signatures_survive():
    before = inspect.signature(F.linear)
    listed = overrides.get_overridable_functions()
    dummies = overrides.get_testing_overrides()

    assert tenon.add in listed[tenon] and tenon.Tensor.add in listed[tenon.Tensor] and F.relu in listed[F]
    assert tenon.ones not in listed[tenon] and tenon.ones in overrides.get_ignored_functions()
    assert inspect.signature(F.linear) == before == inspect.signature(dummies[F.linear])
    assert dummies[tenon.add]() == -1 and F.linear(tenon.ones(1, 2), tenon.ones(1, 2)).item() == 2


def test_shifts_take_numbers_first_and_write_in_place():
    bits = tenon.tensor([1, 2])
    held = bits

    assert (3 << bits).tolist() == [6, 12] and (16 >> bits).tolist() == [8, 4]
    held <<= 2
    held >>= 1
    assert held is bits and bits.tolist() == [2, 4]


def test_compiled_functions_are_eager_where_somebody_is_asked():
    class Kept(tenon.Tensor):
        pass

    class Counting(overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    compiled = tenon.compile(lambda x: (x * 2).relu())
    plain = tenon.ones(3)
    for _ in range(4):
        compiled(plain)
    with pytest.warns(TenonWarning, match="runs eagerly: __torch_function__ of a class or mode"):
        kinds = {type(compiled(plain.as_subclass(Kept))) for _ in range(4)}
    with Counting():
        compiled(plain)

    assert len(compiled.programs) == 1 and kinds == {Kept}
    assert Counting.calls == 2 and type(compiled(plain)) is tenon.Tensor


@pytest.fixture
def unnoticed():
    """No class or mode has been noticed yet; each call reverts to that."""
    tenon.add  # noqa: B018 - the top-level functions are registered with their first use
    yield rerouting.restore_all
    rerouting.reroute_permanently()


class Logged:
    """Not a tensor, but overrides all functions: the result is the function's name and the arguments."""

    shape = (2,)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, len(args), sorted(kwargs or {})


def test_the_first_object_that_overrides_functions_is_noticed_wherever_it_is_passed(unnoticed):
    x, it, linalg = tenon.ones(2, 3), Logged(), tenon.linalg
    calls = {
        "relu": lambda: F.relu(it), "pad": lambda: F.pad(it, (1, 1)), "where": lambda: tenon.where(it, x, x),
        "norm": lambda: linalg.norm(it), "fft": lambda: tenon.fft.fft(it), "inv": lambda: linalg.inv(it),
        "add": lambda: tenon.add(x, it), "linear": lambda: F.linear(x, it), "cat": lambda: tenon.cat([x, it]),
        "cross_entropy": lambda: F.cross_entropy(x, it), "layer_norm": lambda: F.layer_norm(it, (3,)),
        "grid_sample": lambda: F.grid_sample(it, x, align_corners=True), "meshgrid": lambda: tenon.meshgrid(it, x),
        "clamp": lambda: tenon.clamp(x, it), "einsum": lambda: tenon.einsum("ij->i", it), "mul": lambda: x * it,
        "sub": lambda: x - it, "matmul": lambda: x @ it, "pow": lambda: x**it, "lt": lambda: x < it,
        "__getitem__": lambda: x[it], "mul_": lambda: x.mul_(it), "index_select": lambda: x.index_select(0, it),
    }  # fmt: skip

    for name, call in calls.items():
        unnoticed()
        first = call()
        assert (
            first[0] == name and call()[0] == name
        )  # repeated after a failure, then noticed before the call

    unnoticed()
    assert F.relu(it) == ("relu", 1, [])
    unnoticed()
    assert F.layer_norm(it, (3,), eps=1.0) == ("layer_norm", 2, ["eps"])
    unnoticed()
    assert F.softmax(it, dim=0, dtype=tenon.float64)[2] == ["dtype"]
    unnoticed()
    assert tenon.nn.Linear(3, 2)(it)[0] == "linear"  # the layer's function, not one inside


def test_overrides_that_are_turned_off_leave_the_error_of_the_call(unnoticed):
    unnoticed()
    with tenon._C.DisableTorchFunction(), pytest.raises(AttributeError):
        F.relu(Logged())
    unnoticed()
    with pytest.raises(TypeError, match="must be Tensor, not int"):
        F.relu(3)
    assert not rerouting._reasons


def test_what_torch_has_elsewhere_is_there():
    x = tenon.ones(2, requires_grad=True)
    reference = tenon._C._WeakTensorRef(x * 2)

    assert tenon.functional.einsum is tenon.einsum and "split" in tenon.functional.__all__
    assert not (x.is_mps or x.is_nested or x.is_sparse_csr or x.is_mkldnn)
    assert reference.expired() and not tenon._C._WeakTensorRef(x).expired()
    assert isinstance(x.exp().grad_fn.next_functions[0][0], tenon._C._functions.AccumulateGrad)
    assert overrides.resolve_name(tenon.nn.init.uniform_) == "torch.nn.init.uniform_"


def test_locals_of_a_guarded_function_can_be_inspected():
    with pytest.raises(TypeError) as caught:
        tenon.addcdiv(tenon.ones(2), 1, 2, 3, 4)
    frame = next(
        f for f in caught.traceback if f.frame.code.name == "function"
    ).frame  # it has closed over names
    assert frame.f_locals["name"] == "addcdiv"


@pytest.mark.slow
def test_a_subclass_defined_before_any_op_is_imported_is_asked_about_operators():
    program = """
from tenon.tensors.tensor import Tensor

class Logged(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)

import tenon
x = tenon.tensor([5.0, 7.0]).as_subclass(Logged)
x % 3
x.sin()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout.split() == ["remainder", "sin"]


@pytest.mark.slow
def test_functions_notice_the_first_object_that_overrides_them_wherever_it_is_in_a_fresh_process():
    program = """
import os, tenon

class Named:
    shape = (2,)
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__

x = tenon.ones(2, 2, requires_grad=True)
calls = (
    "zeros_like(Named())", "rand_like(Named())", "normal(0.0, Named())", "full_like(Named(), 1)",
    "zeros(2, Named())", "full((2,), Named())", "eye(Named())", "randint(0, Named(), (2,))", "linspace(0, 1, Named())",
    "arange(Named())", "can_cast(Named(), tenon.int8)", "result_type(Named(), 1)", "autograd.grad(Named(), x)",
    "autograd.grad(x.sum(), [x, Named()])", "Tensor.reshape(x, [2, Named()])", "Tensor.to(x, Named())",
    "Tensor.softmax(x, Named())", "Tensor.sum(x, Named())", "Tensor.view(x, 2, Named())", "roll(x, Named())",
    "Tensor.__setitem__(tenon.ones(2), 0, Named())",
)
for call in calls:
    if os.fork() == 0:
        print(eval("tenon." + call), flush=True)
        os._exit(0)
    os.wait()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout.split() == [
        "zeros_like", "rand_like", "normal", "full_like", "zeros", "full", "eye", "randint", "linspace", "arange",
        "can_cast", "result_type", "grad", "grad", "reshape", "to", "softmax", "sum", "view", "roll", "__setitem__",
    ]  # fmt: skip

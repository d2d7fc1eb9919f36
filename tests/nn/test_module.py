"""Module: registration, storage and traversal."""

import gc
import weakref
from collections import OrderedDict

import pytest

import tenon
from tenon import nn


class Affine(nn.Module):
    def __init__(self, inputs=2, outputs=3):
        super().__init__()
        self.weight = nn.Parameter(tenon.ones(outputs, inputs))
        self.register_parameter("bias", None)
        self.register_buffer("calls", tenon.zeros(1))

    def forward(self, x):
        return x @ self.weight.t()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Affine()
        self.second = Affine(3, 1)

    def forward(self, x):
        return self.second(self.first(x))


# Storage: members live in __dict__, the registries write through.


def test_members_are_ordinary_attributes():
    net = Net()

    assert net.__dict__["first"] is net._modules["first"]
    assert net.first.__dict__["weight"] is net.first._parameters["weight"]
    assert net.first.__dict__["calls"] is net.first._buffers["calls"]
    assert net.first.__dict__["bias"] is None


def test_registries_are_dicts_in_order_of_registration():
    module = Affine()

    assert isinstance(module._parameters, dict)
    assert list(module._parameters) == ["weight", "bias"]
    assert {**module._parameters} == dict(module._parameters.items())


@pytest.mark.parametrize(
    "edit",
    [
        lambda members, p: members.__setitem__("weight", p),
        lambda members, p: members.update(weight=p),
        lambda members, p: members.update([("weight", p)]),
        lambda members, p: (members.pop("weight"), members.setdefault("weight", p)),
        lambda members, p: members.__ior__({"weight": p}),
        lambda members, p: (members.clear(), members.__setitem__("weight", p)),
        lambda members, p: (members.__delitem__("weight"), members.__setitem__("weight", p)),
    ],
)
def test_every_way_to_edit_a_registry_shows_in_the_attribute(edit):
    module, parameter = Affine(), nn.Parameter(tenon.zeros(1))

    edit(module._parameters, parameter)

    assert module.weight is parameter
    assert dict(module.named_parameters()) == {"weight": parameter}


@pytest.mark.parametrize(
    "remove",
    [
        lambda m: m._parameters.pop("weight"),
        lambda m: m._parameters.__delitem__("weight"),
        lambda m: m._parameters.clear(),
        lambda m: (m._parameters.pop("bias"), m._parameters.popitem()),
        lambda m: delattr(m, "weight"),
        lambda m: setattr(m, "_parameters", {}),
        lambda m: setattr(m, "_parameters", OrderedDict()),
    ],
)
def test_every_way_to_remove_a_parameter_removes_the_attribute(remove):
    module = Affine()

    remove(module)

    assert not hasattr(module, "weight")
    assert "weight" not in module.__dict__
    assert list(module.parameters()) == []


def test_an_assigned_registry_writes_through_again():
    module = Affine()

    module._buffers = OrderedDict(other=tenon.ones(1))
    module._buffers["late"] = tenon.ones(2)

    assert not hasattr(module, "calls")
    assert module.other.tolist() == [1.0]
    assert module.late.shape == (2,)


def test_a_plain_attribute_hides_a_registry_entry_of_the_same_name():
    module = nn.Module()
    module.plain = "text"

    module._parameters["plain"] = nn.Parameter(tenon.ones(1))

    assert module.plain == "text"
    assert [name for name, _ in module.named_parameters()] == ["plain"]
    del module.__dict__["plain"]
    assert isinstance(module.plain, nn.Parameter)


def test_parameters_come_before_buffers_of_the_same_name():
    module = nn.Module()
    module._buffers["twice"] = tenon.zeros(1)
    module._parameters["twice"] = parameter = nn.Parameter(tenon.ones(1))

    assert module.twice is parameter
    del module._parameters["twice"]
    assert module.twice is module._buffers["twice"]


def test_a_class_with_its_own_getattr_sees_every_read_of_a_member():
    seen = []

    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(tenon.ones(1))
            self.inner = Affine()

        def __getattr__(self, name):
            seen.append(name)
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name == "inner":
                    raise
                return getattr(self.inner, name)

    module = Watched()
    seen.clear()

    assert module.weight.shape == (1,)
    assert module.calls.shape == (1,)
    assert seen == ["weight", "calls", "inner"]
    assert "weight" not in module.__dict__


def test_members_are_found_after_the_class_is_exchanged():
    class Watched(Affine):
        def __getattr__(self, name):
            return super().__getattr__(name)

    module = Watched()
    module.__class__ = Affine

    assert module.weight is module._parameters["weight"]
    module.weight = other = nn.Parameter(tenon.zeros(1))
    assert module.weight is other


def test_a_module_is_freed_without_the_garbage_collector():
    gc.disable()
    try:
        module = Net()
        weight = weakref.ref(module.first.weight)
        del module

        assert weight() is None
    finally:
        gc.enable()


def test_calling_init_again_forgets_the_members():
    module = Affine()

    nn.Module.__init__(module)

    assert not hasattr(module, "weight")
    assert list(module.parameters()) == []


def test_exchanging_the_whole_dict_gives_a_replica_of_its_own():
    module = Net()
    replica = module.__new__(type(module))
    replica.__dict__ = module.__dict__.copy()

    replica._modules["first"] = replaced = Affine()

    assert replica.first is replaced
    assert module.first is not replaced
    assert replica.second is module.second


# Registration.


def test_assigning_before_init_names_what_to_call():
    class Early(nn.Module):
        def __init__(self, value):
            self.x = value

    for value, text in (
        (nn.Parameter(tenon.ones(1)), "cannot assign parameters before Module.__init__"),
        (nn.Module(), "cannot assign module before Module.__init__"),
        (nn.Buffer(tenon.ones(1)), "cannot assign buffer before Module.__init__"),
    ):
        with pytest.raises(AttributeError, match=text):
            Early(value)
    bare = nn.Module.__new__(nn.Module)
    with pytest.raises(AttributeError, match=r"cannot assign buffer before Module.__init__"):
        bare.register_buffer("b", tenon.ones(1))
    with pytest.raises(AttributeError, match=r"cannot assign parameter before Module.__init__"):
        bare.register_parameter("p", None)
    bare.plain = 5
    assert bare.plain == 5


def test_errors_are_also_the_builtin_exceptions_that_torch_raises():
    module = Affine()

    with pytest.raises(KeyError, match=r"attribute 'forward' already exists"):
        module.register_buffer("forward", None)
    with pytest.raises(TypeError, match=r"is not a Module subclass"):
        module.add_module("m", 5)
    with pytest.raises(TypeError, match=r"cannot assign 'torch.FloatTensor' as parameter 'weight'"):
        module.weight = tenon.ones(1)
    with pytest.raises(ValueError, match=r"Cannot assign non-leaf Tensor to parameter 'w'"):
        parameter = nn.Parameter(tenon.ones(1))
        parameter._node, parameter._index = (parameter * 2).grad_fn, 0
        module.register_parameter("w", parameter)


def test_none_reserves_a_name_and_stays_out_of_the_state():
    module = Affine()

    assert module.bias is None
    assert "bias" not in module.state_dict()
    with pytest.raises(TypeError, match=r"cannot assign"):
        module.bias = 5
    module.bias = nn.Parameter(tenon.ones(1))
    assert "bias" in module.state_dict()


def test_a_failed_registration_changes_nothing():
    module = Affine()
    before = dict(module.__dict__)

    with pytest.raises(TypeError):
        module.register_buffer("late", "text")
    with pytest.raises(KeyError):
        module.register_parameter("weight.x", nn.Parameter(tenon.ones(1)))

    assert module.__dict__ == before


def test_buffer_persistence_can_be_changed_by_registering_again():
    module = Affine()

    module.register_buffer("calls", tenon.ones(1), persistent=False)
    assert "calls" not in module.state_dict()
    module.calls = tenon.ones(2)
    assert "calls" not in module.state_dict()
    module.register_buffer("calls", tenon.ones(1))
    assert "calls" in module.state_dict()


def test_buffer_assignment_calls_an_overridden_register_buffer():
    class Old(nn.Module):
        def register_buffer(self, name, tensor):
            super().register_buffer(name, tensor)

    module = Old()
    module.register_buffer("b", tenon.zeros(1))
    module.b = tenon.ones(1)

    assert module.b.tolist() == [1.0]
    with pytest.raises(RuntimeError, match=r"register_buffer.. without the persistent argument"):
        module.c = nn.Buffer(tenon.ones(1), persistent=False)


def test_missing_attribute_says_which_class_and_offers_the_near_name():
    with pytest.raises(AttributeError, match=r"'Affine' object has no attribute 'wieght'") as caught:
        Affine().wieght  # noqa: B018
    assert caught.value.name == "wieght"


def test_init_refuses_arguments_unless_call_super_init():
    class Other:
        def __init__(self, value):
            self.value = value

    class Both(nn.Module, Other):
        call_super_init = True

    with pytest.raises(TypeError, match=r"__init__\(\) takes 1 positional argument but 2 were given"):
        nn.Module(5)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'a'"):
        nn.Module(a=5)
    assert Both(7).value == 7


# Traversal.


def test_shared_modules_and_parameters_come_once_unless_asked_for():
    net = Net()
    net.again = net.first

    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert len(list(net.parameters())) == 2
    assert len(list(net.named_parameters(remove_duplicate=False))) == 3
    assert len(list(net.modules())) == 3
    assert len(list(net.modules(remove_duplicate=False))) == 4


def test_set_submodule_replaces_and_adds_by_path():
    net, new = Net(), Affine()

    net.set_submodule("first.extra", new)
    net.set_submodule("second", new, strict=True)

    assert net.get_submodule("first.extra") is new
    assert net.second is new


def test_get_parameter_and_get_buffer_follow_the_path():
    net = Net()

    assert net.get_parameter("first.weight") is net.first.weight
    assert net.get_buffer("second.calls") is net.second.calls
    with pytest.raises(AttributeError, match=r"`calls` is not an nn.Parameter"):
        net.get_parameter("first.calls")


def test_train_needs_a_boolean():
    with pytest.raises(ValueError, match=r"training mode is expected to be boolean"):
        Net().train("yes")


def test_compile_replays_the_calls_of_a_module_in_place():
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    x = tenon.randn(2, 3)
    expected = plain(x)

    plain.compile()

    for _ in range(4):
        assert tenon.allclose(plain(x), expected)
    assert plain(x).grad_fn.name() == "CompiledFunctionBackward"
    assert list(plain.state_dict()) == ["0.weight", "0.bias"]


def test_import_paths_of_torch_exist():
    assert nn.modules.module.Module is nn.Module
    assert nn.modules.container.Sequential is nn.Sequential
    assert nn.modules.Sequential is nn.Sequential
    assert nn.parameter.Parameter is nn.Parameter
    assert nn.modules.lazy.LazyModuleMixin.__name__ == "LazyModuleMixin"
    assert nn.modules.module._EXTRA_STATE_KEY_SUFFIX == "_extra_state"
    assert nn.modules.batchnorm._BatchNorm in nn.BatchNorm2d.__mro__
    assert nn.modules.linear.Linear is nn.modules.Linear is nn.Linear
    with pytest.raises(AttributeError, match=r"nothing_like_it"):
        nn.modules.nothing_like_it  # noqa: B018


def test_what_acts_as_a_tensor_may_be_a_buffer():
    class Acting:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    first, second = Acting(), Acting()
    module = tenon.nn.Module()
    module.register_buffer("state", first)
    assert module.get_buffer("state") is first

    module.state = second
    assert module.get_buffer("state") is second

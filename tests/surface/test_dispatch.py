"""``__torch_dispatch__``: tensor subclasses that wrap others, and modes that receive every op."""

import numpy as np
import pytest

import tenon
from tenon.compat import torch_dispatch
from tenon.overrides import enable_reentrant_dispatch
from tenon.utils._mode_utils import no_dispatch
from tenon.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from tenon.utils._pytree import tree_map

aten = tenon.ops.aten


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    torch_dispatch.unregister_all()


class Noted(tenon.Tensor):
    """Wraps ``elem`` and records the operators that are called on it."""

    met: list = []

    @staticmethod
    def __new__(cls, elem, requires_grad=False):
        made = tenon.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            dtype=elem.dtype,
            device=elem.device,
            requires_grad=requires_grad,
        )
        made.elem = elem
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.met.append(func)
        args, kwargs = tree_map(lambda e: e.elem if isinstance(e, cls) else e, (args, kwargs or {}))
        return tree_map(lambda e: cls(e) if isinstance(e, tenon.Tensor) else e, func(*args, **kwargs))


@pytest.fixture
def met(monkeypatch):
    monkeypatch.setattr(Noted, "met", [])
    return Noted.met


def test_ops_ask_the_class_and_keep_it(met):
    x = Noted(tenon.arange(6.0).reshape(2, 3).t())
    assert (x.shape, x.stride(), x.dtype, x.requires_grad) == ((3, 2), (1, 3), tenon.float32, False)
    y = (x * 2)[1:]
    assert type(y) is Noted and met[0] == aten.mul.Tensor and met[0].overloadpacket == aten.mul
    assert y.elem.tolist() == [[2.0, 8.0], [4.0, 10.0]]
    assert type(tenon.stack([y, y])) is Noted and type(y.detach()) is Noted and type(y.clone()) is Noted
    parts = x.split(2)
    assert [type(p) for p in parts] == [Noted, Noted] and parts[1].elem.tolist() == [[2.0, 5.0]]
    assert type(tenon.nn.Linear(2, 4)(x)) is Noted  # beside plain tensors


def test_data_is_copied_out_by_the_class(met):
    x = Noted(tenon.tensor([1.0, 2.0]))
    assert x.tolist() == [1.0, 2.0] and x.sum().item() == 3.0 and met[-1].name == "copy_"
    assert np.asarray(x).tolist() == x.numpy().tolist() == (x.raw + 0).tolist() == [1.0, 2.0]
    assert tenon.equal(x, tenon.tensor([1.0, 2.0])) and not tenon.equal(x, tenon.tensor([1.0, 3.0]))
    with pytest.raises(AssertionError, match="not close"):
        tenon.testing.assert_close(x, tenon.tensor([1.0, 3.0]), check_device=False)
    assert repr(x) == "Noted([1., 2.])" and type(x.data) is Noted
    shell = Noted(tenon.ones(2)).raw
    with pytest.raises(ReferenceError, match=r"shape \[2\].*was freed"):
        np.asarray(shell)


def test_changes_in_place_reach_the_wrapped_tensor():
    x = Noted(tenon.tensor([1.0, 2.0]))
    x.mul_(3)
    x += tenon.ones(2)
    x[0] = 9
    assert x.elem.tolist() == [9.0, 7.0]


def test_gradients_are_those_of_the_data():
    x = Noted(tenon.tensor([1.0, 2.0]), requires_grad=True)
    y = (x**3).sum()
    assert type(y) is Noted and y.requires_grad
    y.backward(retain_graph=True)
    assert x.grad.tolist() == [3.0, 12.0]
    (slope,) = tenon.autograd.grad(y, x, create_graph=True)
    assert tenon.autograd.grad(slope, x, Noted(tenon.ones(2)))[0].tolist() == [6.0, 12.0]
    with tenon.no_grad():
        assert not (x * 2).requires_grad


def test_the_wrapped_tensor_may_have_a_history_of_its_own():
    class Open(Noted):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            with enable_reentrant_dispatch():
                return super().__torch_dispatch__(func, types, args, kwargs)

    leaf = tenon.tensor([1.0, 2.0], requires_grad=True)
    (Open(leaf) * 3).sum().elem.backward()
    assert leaf.grad.tolist() == [3.0, 3.0]


def test_classes_may_leave_it_to_others():
    class Shy(Noted):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    one = tenon.ones(2)
    with pytest.raises(TypeError, match=r"aten\.add.*NotImplemented: Shy"):
        Shy(one) + 1
    with pytest.raises(RuntimeError, match="must define __torch_dispatch__ on Tensor"):
        tenon.Tensor._make_wrapper_subclass(tenon.Tensor, (2,))
    assert not is_traceable_wrapper_subclass(Noted(one)) and not is_traceable_wrapper_subclass(one)


class Counted(tenon.Tensor):
    """A subclass with its own data that counts operators."""

    count = 0

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.count += 1
        with no_dispatch():
            return func(*args, **(kwargs or {}))


def test_tensors_with_data_ask_their_class_too(monkeypatch):
    monkeypatch.setattr(Counted, "count", 0)
    x = tenon.Tensor._make_subclass(Counted, tenon.tensor([1.0, 2.0]), True)
    (x * x).sum().backward()
    assert (Counted.count, x.grad.tolist()) == (1, [2.0, 4.0])  # the product is a plain tensor
    y = tenon.ones(2).as_subclass(Counted)
    assert (y + 1).tolist() == [2.0, 2.0] and Counted.count == 2


class Names(TorchDispatchMode):
    """Records the names of the operators that are called."""

    def __init__(self):
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        assert (tenon.ones(1) + 1).item() == 2.0  # the mode is off here
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_every_op_and_may_change_results():
    x = tenon.tensor([1.0, -2.0], requires_grad=True)
    with Names() as mode:
        y = (x * 3).relu()
        y.sum().backward()
    assert mode.names[:3] == ["mul.default", "relu.default", "sum.default"] and len(mode.names) > 3
    assert x.grad.tolist() == [3.0, 0.0]

    class Zeros(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **kwargs)
            return made * 0 if func == aten.mul.Tensor else made

    with Zeros():
        assert (x * 3).tolist() == [0.0, 0.0] and (x + 1).tolist() == [2.0, -1.0]
    assert (x * 3).tolist() == [3.0, -6.0]
    with pytest.raises(NotImplementedError, match="must define __torch_dispatch__"), TorchDispatchMode():
        x * 1


def test_modes_see_wrapper_tensors(met):
    with Names() as mode:
        assert type(Noted(tenon.ones(2)) * 2) is Noted
    assert mode.names == ["mul.default"] and met[0] == aten.mul

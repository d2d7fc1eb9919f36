"""functional_call, skip_init, and parameters as a vector."""

import pytest

import tenon
from tenon import nn
from tenon.errors import UnsupportedError
from tenon.func import functional_call, stack_module_state
from tenon.nn.utils import parameters_to_vector, skip_init, vector_to_parameters


class Scale(nn.Module):
    def __init__(self, size=1, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(tenon.ones(size, device=device, dtype=dtype))
        self.register_buffer("seen", tenon.zeros(size, device=device, dtype=dtype))

    def forward(self, x, plus=0.0):
        self.seen = self.seen + 1
        return x * self.weight + plus


def test_functional_call_uses_the_given_tensors_and_restores_the_modules_own():
    net = nn.Sequential(Scale(), Scale())
    own = net[0].weight
    given = {"0.weight": tenon.full((1,), 3.0, requires_grad=True)}

    out = functional_call(net, given, tenon.ones(1))
    out.sum().backward()

    assert out.tolist() == [3.0]
    assert given["0.weight"].grad.tolist() == [1.0]
    assert net[0].weight is own and own.grad is None


def test_functional_call_restores_after_an_error():
    module = Scale()
    own = module.weight

    with pytest.raises(TypeError):
        functional_call(module, {"weight": tenon.zeros(1)}, (1, 2, 3, 4))

    assert module.weight is own


def test_functional_call_returns_assigned_buffers_in_the_dict():
    module = Scale()
    given = {"seen": tenon.full((1,), 5.0)}

    functional_call(module, given, (tenon.ones(1),), {"plus": 1.0})

    assert given["seen"].tolist() == [6.0]
    assert module.seen.tolist() == [0.0]


def test_functional_call_strict_names_what_is_wrong():
    with pytest.raises(RuntimeError) as caught:
        functional_call(Scale(), {"weight": tenon.ones(1), "more": tenon.ones(1)}, tenon.ones(1), strict=True)

    assert str(caught.value) == (
        "Error(s) in reparametrizing for Scale:\n\tUnexpected key(s): 'more'.\n\tMissing key(s): 'seen'."
    )


@pytest.mark.parametrize(
    "given, kind, text",
    [
        (5, ValueError, r"to be a dict, or a list/tuple of dicts"),
        ([{"weight": None}, 5], ValueError, r"all elements .* to be dictionaries"),
        ([{"weight": None}, {"weight": None}], ValueError, r"\['weight'\] appeared in multiple dictionaries"),
        ({"weight": 5}, TypeError, r"is not an instance of torch.Tensor"),
        ({"a.weight": None}, AttributeError, r"Scale has no attribute `a`"),
        ({"forward": None}, TypeError, r"attribute `forward`"),
    ],
)
def test_functional_call_refuses(given, kind, text):
    module = Scale()
    before = dict(module.__dict__)

    with pytest.raises(kind, match=text):
        functional_call(module, given, tenon.ones(1))

    assert module.__dict__ == before


def test_old_path_of_functional_call_warns():
    with pytest.warns(FutureWarning, match=r"stateless.functional_call. is deprecated"):
        out = nn.utils.stateless.functional_call(Scale(), {"weight": tenon.zeros(1)}, tenon.ones(1))

    assert out.tolist() == [0.0]


def test_the_inner_names_of_stateless_replace_without_a_warning():
    layer, zero = Scale(), tenon.zeros(1)
    own = layer.weight

    assert nn.utils.stateless._functional_call(layer, {"weight": zero}, tenon.ones(1)).item() == 0.0
    with nn.utils.stateless._reparametrize_module(layer, {"weight": zero}):
        assert layer.weight is zero
    assert layer.weight is own
    with pytest.raises(UnsupportedError, match="stack_weights"):
        nn.utils.stateless._reparametrize_module(layer, {}, stack_weights=True)


def test_stacked_state_is_new_leaves_by_name():
    parameters, buffers = stack_module_state([Scale(), Scale(), Scale()])

    assert parameters["weight"].shape == (3, 1) and parameters["weight"].is_leaf
    assert parameters["weight"].requires_grad and not buffers["seen"].requires_grad
    with pytest.raises(RuntimeError, match=r"at least one model"):
        stack_module_state([])
    with pytest.raises(RuntimeError, match=r"same training/eval mode"):
        stack_module_state([Scale(), Scale().eval()])
    with pytest.raises(RuntimeError, match=r"same class"):
        stack_module_state([Scale(), nn.Module()])


def test_skip_init_makes_real_memory_of_the_right_shape():
    module = skip_init(Scale, 3, dtype=tenon.float64)

    assert module.weight.shape == (3,) and module.weight.dtype is tenon.float64
    assert module.weight.device.type == "cpu" and module.weight.requires_grad
    assert skip_init(Scale, 3, device="meta").weight.device.type == "meta"


def test_skip_init_needs_a_module_class_with_a_device():
    with pytest.raises(RuntimeError, match=r"Expected a Module; got"):
        skip_init(dict)
    with pytest.raises(RuntimeError, match=r"must support a 'device' arg"):
        skip_init(nn.Sequential)


def test_parameters_become_a_vector_and_back():
    net = nn.Sequential(Scale(2), Scale(3))

    vector = parameters_to_vector(net.parameters())
    vector_to_parameters(tenon.arange(5, dtype=tenon.float32), net.parameters())

    assert vector.shape == (5,) and vector.requires_grad
    assert net[1].weight.tolist() == [2.0, 3.0, 4.0]
    with pytest.raises(TypeError, match=r"expected torch.Tensor, but got: list"):
        vector_to_parameters([1.0], net.parameters())
    with pytest.raises(ValueError, match=r"have 5 elements in all, the vector only 4"):
        vector_to_parameters(tenon.zeros(4), net.parameters())
    assert net[1].weight.tolist() == [2.0, 3.0, 4.0]

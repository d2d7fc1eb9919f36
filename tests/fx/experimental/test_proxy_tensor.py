"""Graphs of operators, from running a function on examples."""

import operator
import pickle

import pytest

import tenon
from tenon import nn
from tenon.fx.experimental import meta_tracer
from tenon.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from tenon.testing import samples


def targets(traced):
    return [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]


def test_operators_have_the_names_and_arguments_of_pytorch():
    traced = make_fx(lambda x: (x + 1).sum(dim=1, keepdim=True).relu().mm(x[:1]))(tenon.rand(2, 2))

    assert targets(traced)[:3] == ["aten.add.Tensor", "aten.sum.dim_IntList", "aten.relu.default"]
    assert traced.graph.find_nodes(op="call_function", target=tenon.ops.aten.mm)
    total = next(node for node in traced.graph.nodes if node.name == "sum_1")
    assert list(total.args[1:]) == [[1], True]
    assert tuple(total.meta["tensor_meta"].shape) == (2, 1)


def test_backward_passes_are_traced():
    def slope(x, w):
        return tenon.autograd.grad((x @ w).relu().sum(), [w])

    x, w = tenon.randn(3, 4), tenon.randn(4, 2, requires_grad=True)
    traced = make_fx(slope)(x, w)

    other = tenon.randn(3, 4)
    assert traced(other, w)[0].allclose(slope(other, w)[0])


def test_changes_in_place_stay_changes():
    def program(x, y):
        z = x + 1
        part = z[0]
        z.add_(y)
        part.mul_(2)
        y.copy_(z)
        return part.sum()

    traced = make_fx(program)(tenon.rand(2, 2), tenon.rand(2, 2))
    assert [t for t in targets(traced) if t.startswith("aten") and t.split(".")[1].endswith("_")] == [
        "aten.add_.Tensor",
        "aten.mul_.Tensor",
        "aten.copy_.default",
    ]

    x, y = tenon.rand(2, 2), tenon.rand(2, 2)
    again = y.clone()
    assert traced(x, y).equal(program(x, again)) and y.equal(again)


def test_random_numbers_are_drawn_by_every_run():
    traced = make_fx(lambda x: x + tenon.randn(64))(tenon.zeros(64))

    assert "aten.randn.default" in targets(traced)
    assert not traced(tenon.zeros(64)).equal(traced(tenon.zeros(64)))


def test_data_made_inside_is_fresh_in_every_run():
    def program(x):
        count = tenon.tensor(3)
        count.add_(1)
        return x * count

    traced = make_fx(program)(tenon.ones(1))

    assert traced(tenon.ones(1)).item() == traced(tenon.ones(1)).item() == 4.0


def test_tensors_from_outside_are_attributes():
    layer, shift = nn.Linear(2, 3), tenon.rand(3)
    traced = make_fx(lambda x: layer(x) + shift)(tenon.rand(4, 2))

    assert traced._param_constant0 is layer.weight and traced._param_constant1 is layer.bias
    assert traced._tensor_constant0.equal(shift)
    x = tenon.rand(5, 2)
    assert traced(x).allclose(layer(x) + shift)


def test_arguments_can_be_nested():
    def program(pair, table):
        return {"sum": pair[0] + table["a"], "same": pair[1]}

    traced = make_fx(program)((tenon.ones(2), tenon.zeros(2)), {"a": tenon.ones(2)})

    assert [n.target for n in traced.graph.nodes if n.op == "placeholder"] == ["pair_1", "pair_2", "table_1"]
    out = traced((tenon.ones(2), tenon.zeros(2)), {"a": tenon.full((2,), 4.0)})
    assert out["sum"].tolist() == [5.0, 5.0] and out["same"].tolist() == [0.0, 0.0]


def test_arguments_are_left_alone_in_the_other_modes():
    x = tenon.zeros(2)

    for mode in ("fake", "symbolic"):
        make_fx(lambda x: x.add_(1), tracing_mode=mode)(x)

    assert x.tolist() == [0.0, 0.0]
    with pytest.raises(AssertionError, match="tracing_mode is 'real', 'fake' or 'symbolic'; got 'dream'"):
        make_fx(lambda x: x, tracing_mode="dream")


def test_operators_are_decomposed_by_a_table():
    table = {tenon.ops.aten.relu: lambda x: tenon.clamp(x, min=0.0)}
    traced = make_fx(lambda x: x.relu() + 1, decomposition_table=table)(tenon.randn(3))

    assert "aten.relu.default" not in targets(traced) and "clamp" in targets(traced)[0]
    x = tenon.randn(3)
    assert traced(x).equal(x.relu() + 1)


def test_the_mode_is_known_while_it_runs():
    seen = []
    make_fx(lambda x: seen.append(get_proxy_mode()) or x)(tenon.ones(1))

    assert seen[0] is not None and get_proxy_mode() is None


def test_traced_operators_can_be_pickled():
    traced = make_fx(lambda x: nn.functional.conv2d(x, x).sum())(tenon.rand(1, 1, 3, 3))
    conv = next(node for node in traced.graph.nodes if node.op == "call_function").target

    again = pickle.loads(pickle.dumps(conv))
    assert again == conv == tenon.ops.aten.convolution and again.op_name == "conv"


def test_results_of_several_tensors_are_taken_apart():
    traced = make_fx(lambda x: x.split([1, 2]))(tenon.arange(3))

    assert [n.target for n in traced.graph.nodes if n.op == "call_function"][1:] == [operator.getitem] * 2
    assert [t.tolist() for t in traced(tenon.arange(3) * 2)] == [[0], [2, 4]]


NAMES = [
    "add",
    "sub",
    "mul",
    "div",
    "exp",
    "relu",
    "gelu",
    "sum",
    "mean",
    "cat",
    "reshape",
    "transpose",
    "permute",
    "expand",
    "split",
    "softmax",
    "where",
    "cast",
    "matmul",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_traced_op_computes_what_the_op_does(name):
    op = getattr(tenon.ops, name)
    for case in samples.of(name):
        args = [tenon.tensor(a) if hasattr(a, "__array__") else a for a in case.arrays()]
        attrs = case.attrs
        tensors = [a for a in args if isinstance(a, tenon.Tensor)]

        def program(*given, args=args, attrs=attrs):
            left = iter(given)
            return op(*(next(left) if isinstance(a, tenon.Tensor) else a for a in args), **attrs)

        traced, expected = make_fx(program)(*tensors), program(*tensors)
        got = traced(*tensors)
        for a, b in zip(_tuple(got), _tuple(expected), strict=True):
            tenon.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def _tuple(value):
    return value if isinstance(value, (tuple, list)) else (value,)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        e = self.table(x)
        e = self.norm(e + tenon.arange(e.shape[-1], dtype=tenon.float32, device=e.device))
        return tenon.relu(e) if e.shape[0] < 3 and e.dim() == 2 else tenon.sigmoid(e)


@pytest.mark.parametrize("size", [2, 5])
def test_branches_on_known_shapes_are_followed(size):
    net, x = Branching(), tenon.randint(0, 10, (size,))

    traced = meta_tracer.symbolic_trace(net, meta_args={"x": x.to("meta")})

    assert traced(x).allclose(net(x))
    wanted = tenon.relu if size < 3 else tenon.sigmoid
    assert any(node.target is wanted for node in traced.graph.nodes)


def test_draws_checks_and_named_results_are_recorded():
    x = tenon.rand(3) + 0.5

    def draw(x):
        normal = tenon.distributions.Normal(x, x)
        return tenon.poisson(x) + tenon._sample_dirichlet(x) + normal.log_prob(x), x.reshape(1, 3).max(1)

    traced = make_fx(draw)(x)
    assert "aten.poisson" in str(traced.graph) and "aten._sample_dirichlet" in str(traced.graph)
    for seed in (1, 2):
        tenon.manual_seed(seed)
        expected, (best, _) = draw(x)
        tenon.manual_seed(seed)
        drawn, (values, _) = traced(x)
        assert tenon.equal(drawn, expected) and tenon.equal(values, best)


def test_modules_may_assign_tensors_to_attributes():
    class Keeps(tenon.nn.Module):
        def forward(self, x):
            self.last = x * 2
            return self.last + 1

    assert tenon.equal(make_fx(Keeps())(tenon.ones(3))(tenon.zeros(3)), tenon.ones(3))

"""``torch.jit.trace``: traced functions and modules compute, train, move and copy as what was traced."""

import copy
import io
import pickle
from collections import OrderedDict, namedtuple

import pytest

import tenon
from tenon import fx, jit, nn
from tenon.errors import CaptureError, DTypeError, UnsavableError, UnsupportedError

Pair = namedtuple("Pair", "first second")


@pytest.fixture(autouse=True)
def _seed():
    tenon.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("offset", tenon.ones(4), persistent=False)
        self.plain = tenon.full((4,), 2.0)
        self.unused = nn.Linear(2, 2)
        self.setting = 5

    def forward(self, x):
        return self.norm(self.first(x)).relu() * self.plain + self.offset

    def scaled(self, x, factor):
        return self.first(x) * factor


def test_a_function_becomes_a_script_function_with_code_and_graph():
    def double(x):
        """Its own text."""
        return 2 * x.relu()

    traced = jit.trace(double, tenon.ones(3))

    assert isinstance(traced, jit.ScriptFunction) and traced.name == traced.__name__ == "double"
    assert traced.code.splitlines()[0] == "def double(x):"
    assert "relu" in str(traced.graph) and str(traced.inlined_graph) == str(traced.graph)
    assert traced(tenon.tensor([-1.0, 2.0])).tolist() == [0, 4]
    assert jit.trace(traced, tenon.ones(3)) is traced


def test_a_module_keeps_names_parameters_and_buffers():
    net = Net().eval()
    traced = jit.trace(net, tenon.randn(4, 3))

    assert type(traced).__name__ == "TopLevelTracedModule" and isinstance(traced, jit.ScriptModule)
    assert isinstance(traced, jit.TopLevelTracedModule) and isinstance(traced.first, jit.TracedModule)
    assert [n for n, _ in traced.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert [n for n, _ in traced.named_buffers()] == [n for n, _ in net.named_buffers()]
    assert [n for n, _ in traced.named_modules()] == [n for n, _ in net.named_modules()]
    assert list(traced.state_dict()) == list(net.state_dict())
    assert traced.first.weight is net.first.weight
    assert traced.original_name == "Net" and traced.first.original_name == "Linear"
    assert str(traced).startswith("Net(\n  original_name=Net\n  (first): Linear(original_name=Linear)")
    x = tenon.randn(7, 3)
    assert tenon.equal(traced(x), net(x))
    for missing in ("setting", "scaled", "nothing"):
        assert not hasattr(traced, missing)
    with pytest.raises(UnsupportedError, match="Linear is part of a trace"):
        traced.unused(x)


def test_code_reads_as_python_and_names_constants():
    traced = jit.trace(Net().eval(), tenon.randn(4, 3))

    assert traced.code.startswith("def forward(self, x):\n    first_weight = self.first.weight\n")
    code, constants = traced.code_with_constants
    assert code == traced.code and "self.CONSTANTS.t0" in code
    assert constants.t0.tolist() == [2, 2, 2, 2]
    assert traced.forward.code == traced.code
    assert "first.weight" in str(traced.graph)


def test_a_trace_trains_the_parameters_of_the_module():
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    traced = jit.trace(net, tenon.randn(5, 3))
    other = copy.deepcopy(net)
    x, y = tenon.randn(16, 3), tenon.randn(16, 1)
    for model in (traced, other):
        optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

    assert tenon.allclose(traced(x), other(x), atol=1e-6)
    assert tenon.equal(net(x), traced(x))


def test_running_statistics_are_written_and_carry_no_history():
    net = Net().train()
    before = net.norm.running_mean.clone()
    x = tenon.randn(4, 3)
    traced = jit.trace(net, x)
    assert tenon.equal(net.norm.running_mean, before)  # tracing leaves them

    traced(x)
    expected = copy.deepcopy(net)
    expected.norm.reset_running_stats()
    expected(x)

    assert tenon.allclose(traced.norm.running_mean, expected.norm.running_mean)
    assert traced.norm.num_batches_tracked.item() == 1
    assert not traced.norm.running_mean.requires_grad and traced.norm.running_mean.grad_fn is None


def test_train_and_eval_set_the_flag_and_nothing_else():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval()
    traced = jit.trace(net, tenon.ones(2, 3))
    assert not traced.training
    x = tenon.ones(2, 3)
    result = traced(x)
    assert traced.train().training and traced.get_submodule("1").training
    assert tenon.equal(traced(x), result)


@pytest.mark.parametrize("tracked", [True, False])
def test_gradients_stop_where_they_did(tracked):
    weight = tenon.tensor([3.0], requires_grad=True)

    def function(x):
        with tenon.no_grad():
            scale = x * 2
        return (x.detach() * x + scale * x) * weight

    example = tenon.ones(2)
    traced = jit.trace(function, example)
    a = tenon.tensor([1.0, 2.0], requires_grad=tracked)
    b = tenon.tensor([1.0, 2.0], requires_grad=tracked)
    traced(a).sum().backward()
    own, weight.grad = weight.grad, None
    function(b).sum().backward()

    assert tenon.equal(own, weight.grad)
    assert not tracked or tenon.equal(a.grad, b.grad)


def test_a_trace_made_without_gradients_has_them_nevertheless():
    net = nn.Linear(3, 2)
    with tenon.no_grad():
        traced = jit.trace(net, tenon.ones(1, 3))
    assert not traced.weight.grad
    traced(tenon.ones(1, 3)).sum().backward()
    assert tenon.equal(net.weight.grad, tenon.ones(2, 3))


def test_changes_in_place_inside_have_their_gradient():
    def function(x):
        y = x.clone()
        y[0] = 1
        y[:, 1].mul_(3)
        return y * y

    traced = jit.trace(function, tenon.ones(2, 3))
    a = tenon.arange(6.0).reshape(2, 3).requires_grad_()
    b = a.detach().clone().requires_grad_()
    result = traced(a)
    assert tenon.equal(result, function(b))
    result.sum().backward()
    function(b).sum().backward()
    assert tenon.equal(a.grad, b.grad)


def test_results_have_memory_of_their_own_where_they_had():
    constant = tenon.ones(2)

    def function(x):
        return x.clone(), x * 1, tenon.zeros(2), x, constant + 0 * x

    example = tenon.ones(2)
    traced = jit.trace(function, example)
    x = tenon.ones(2)
    for result in traced(x)[:3]:
        result.fill_(9)
    assert x.tolist() == [1, 1] and traced(x)[2].tolist() == [0, 0]
    assert [r.tolist() for r in traced(x)] == [r.tolist() for r in function(x)]
    assert traced(x)[3].data_ptr() == x.data_ptr()


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (lambda d: d["a"] + 2 * d["b"], ({"a": tenon.ones(2), "b": tenon.zeros(2)},)),
        (lambda pair, z: pair[0] * pair[1] + z, ((tenon.ones(2), tenon.ones(2)), tenon.ones(2))),
        (lambda nest: nest[0]["x"][1] - nest[1], ([{"x": [tenon.ones(2), tenon.ones(2)]}, tenon.ones(2)],)),
        (lambda *xs: xs[0] - xs[1], (tenon.ones(2), tenon.zeros(2))),
    ],
)
def test_arguments_may_be_nested(function, call):
    traced = jit.trace(function, call)

    given = tenon.utils._pytree.tree_map(lambda t: t + tenon.arange(2.0), call)
    assert tenon.equal(traced(*given), function(*given))


def test_a_nest_of_another_structure_is_refused():
    traced = jit.trace(lambda pair: pair[0] + pair[1], ((tenon.ones(2), tenon.ones(2)),))
    with pytest.raises(ValueError, match=r"takes \(\(\*, \*\)\), but was given \(\*\)"):
        traced(tenon.ones(2))
    with pytest.raises(TypeError):
        traced()


def test_results_may_be_tuples_lists_and_dicts():
    x = tenon.ones(2)
    assert isinstance(jit.trace(lambda x: (x, [x * 2]), x)(x), tuple)
    assert type(jit.trace(lambda x: Pair(x, x + 1), x)(x)) is tuple
    with pytest.raises(RuntimeError, match="pass strict=False"):
        jit.trace(lambda x: {"a": x}, x)
    result = jit.trace(lambda x: OrderedDict(a=x * 2), x, strict=False)(x)
    assert type(result) is dict and result["a"].tolist() == [2, 2]
    for bad in (lambda x: (x, None), lambda x: (x, 3), lambda x: "text"):
        with pytest.raises(RuntimeError, match="Only tensors, lists, tuples of tensors"):
            jit.trace(bad, x)


def test_examples_are_tensors_alone():
    x = tenon.ones(2)
    with pytest.raises(RuntimeError, match=r"Type 'Tuple\[Tensor, int\]' cannot be traced"):
        jit.trace(lambda x, k: x * k, (x, 2))
    with pytest.raises(TypeError, match="no examples"):
        jit.trace(lambda x: x)
    with pytest.raises(ValueError, match="not both"):
        jit.trace(lambda x: x, x, example_kwarg_inputs={"x": x})


def test_examples_by_name_come_in_the_order_of_the_function():
    def function(a, b, c=2):
        return a - 2 * b * c

    traced = jit.trace(function, example_kwarg_inputs={"b": tenon.ones(2), "a": tenon.zeros(2)})
    a, b = tenon.tensor([5.0, 6.0]), tenon.tensor([1.0, 2.0])
    assert tenon.equal(traced(a, b), function(a, b))
    assert tenon.equal(traced(b=b, a=a), function(a, b))
    assert tenon.equal(traced(a, b=b), function(a, b))


def test_several_methods_are_traced_by_name():
    net = Net().eval()
    x, factor = tenon.randn(2, 3), tenon.randn(4)
    traced = jit.trace_module(net, {"forward": x, "scaled": (x, factor)})

    assert tenon.equal(traced.scaled(x, factor + 1), net.scaled(x, factor + 1))
    assert tenon.equal(traced(x), net(x))
    assert "mul" in traced.scaled.code and traced.scaled.code != traced.code
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        jit.trace_module(net, {"missing": x})
    with pytest.raises(AttributeError, match="expected a dictionary"):
        jit.trace_module(net, [x])
    with pytest.raises(AttributeError, match=r"torch\.nn\.Module as the first argument"):
        jit.trace_module(lambda x: x, {"forward": x})
    with pytest.raises(AttributeError, match="Please use trace_module"):
        jit.trace(net.scaled, (x, factor))
    assert isinstance(jit.trace(net.forward, x), jit.TopLevelTracedModule)


def test_a_trace_is_a_part_of_other_modules():
    part = jit.trace(nn.Linear(3, 2), tenon.ones(1, 3))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = part

        def forward(self, x):
            return self.part(x).sin()

    outer, x = Outer(), tenon.randn(4, 3)
    assert [n for n, _ in outer.named_parameters()] == ["part.weight", "part.bias"]
    again = jit.trace(outer, x)
    assert tenon.equal(again(x), outer(x))
    assert tenon.equal(tenon.export.capture(outer, x).run(x), outer(x))
    assert tenon.equal(tenon.compile(outer)(x), outer(x))
    assert "self.part(x)" in fx.symbolic_trace(outer).code
    assert tenon.func.vmap(part)(tenon.ones(5, 4, 3)).shape == (5, 4, 2)
    zeros = {name: tenon.zeros_like(value) for name, value in outer.state_dict().items()}
    assert not tenon.func.functional_call(outer, zeros, (x,)).any()


def test_copies_have_parameters_of_their_own():
    traced = jit.trace(Net().eval(), tenon.randn(2, 3))
    x = tenon.randn(2, 3)
    deep, shallow = copy.deepcopy(traced), copy.copy(traced)
    assert tenon.equal(deep(x), traced(x)) and tenon.equal(shallow(x), traced(x))
    assert shallow.first.weight is traced.first.weight
    with tenon.no_grad():
        deep.first.weight.zero_()
        deep.CONSTANTS.t0.zero_()
    assert traced.first.weight.any() and traced.CONSTANTS.t0.all()
    assert deep.code == traced.code


def test_conversion_moves_parameters_and_constants():
    net = Net().eval()
    traced = jit.trace(net, tenon.randn(2, 3)).double()
    assert traced.CONSTANTS.t0.dtype is tenon.float64
    x = tenon.randn(2, 3).double()
    net.plain = net.plain.double()
    assert traced(x).dtype is tenon.float64 and tenon.equal(traced(x), net.double()(x))
    assert jit.trace(lambda x: x * 2, tenon.ones(2))(tenon.ones(2).half()).dtype is tenon.float16
    with pytest.raises(
        DTypeError, match=r"holds for 'x' of dtype torch\.float32, but was given torch\.int64"
    ):
        jit.trace(lambda x: x * 2, tenon.ones(2))(tenon.tensor([1, 2]))


def test_weights_load_into_a_trace():
    net, other = nn.Linear(3, 2), nn.Linear(3, 2)
    traced = jit.trace(net, tenon.ones(1, 3))
    assert str(traced.load_state_dict(other.state_dict())) == "<All keys matched successfully>"
    x = tenon.randn(2, 3)
    assert tenon.equal(traced(x), other(x))
    assert traced.graph.states[0].value is traced.weight


def test_tied_parameters_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight
            self.again = self.a

        def forward(self, x):
            return self.again(self.b(self.a(x)))

    net, x = Tied(), tenon.randn(2, 3)
    traced = jit.trace(net, x)
    assert traced.again is traced.a and traced.b.weight is traced.a.weight
    restored = jit.load(_file(traced))
    assert restored.again is restored.a and restored.b.weight is restored.a.weight
    assert tenon.equal(restored(x), net(x))


def _file(traced):
    import io

    return io.BytesIO(traced.save_to_buffer())


def test_a_trace_is_not_pickled():
    traced = jit.trace(nn.Linear(3, 2), tenon.ones(1, 3))
    with pytest.raises(UnsavableError, match=r"traced\.save\(path\)"):
        pickle.dumps(traced)
    with pytest.raises(UnsavableError, match=r"save\(path\)"):
        pickle.dumps(jit.trace(lambda x: x * 2, tenon.ones(1)))


def test_what_a_graph_cannot_hold_is_refused():
    with pytest.raises(CaptureError, match="argument in place"):
        jit.trace(lambda x: x.add_(1), tenon.ones(2))
    with pytest.raises(CaptureError, match="shape depends on the data"):
        jit.trace(lambda x: x[x > 0], tenon.ones(2))


def test_tracing_is_seen_inside_only():
    seen = []

    def function(x):
        seen.append(jit.is_tracing())
        return x * 2

    jit.trace(function, tenon.ones(2))
    assert all(seen) and not jit.is_tracing()
    with pytest.raises(ZeroDivisionError):
        jit.trace(lambda x: 1 / 0, tenon.ones(2))
    assert not jit.is_tracing()


def test_frozen_traces_have_no_parameters():
    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    x = tenon.randn(2, 3)
    with pytest.raises(RuntimeError, match="expects a ScriptModule"):
        jit.freeze(net)
    traced = jit.trace(net, x)
    with pytest.raises(RuntimeError, match=r"call \.eval\(\)"):
        jit.freeze(traced)
    frozen = jit.freeze(traced.eval())
    with tenon.no_grad():
        expected = net(x)
        net[0].weight.zero_()
    assert not list(frozen.parameters()) and not frozen.state_dict()
    assert tenon.equal(frozen(x), expected) and "self.CONSTANTS" in frozen.code
    assert jit.optimize_for_inference(frozen) is frozen
    assert tenon.equal(jit.load(_file(frozen))(x), expected)


def test_layers_on_the_way_of_a_custom_function_are_warned_of():
    class Cubed(tenon.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 3 * grad * ctx.saved_tensors[0]

    with pytest.warns(jit.TracerWarning, match="autograd function Cubed"):
        traced = jit.trace(lambda x: Cubed.apply(x), tenon.ones(2))
    assert traced(tenon.tensor([2.0, 3.0])).tolist() == [4, 9]


def test_names_are_kept_or_refused():
    traced = jit.trace(lambda self, _, input: self + _ * input, (tenon.ones(2),) * 3)
    again = jit.load(_file(traced))
    assert again(tenon.ones(2), tenon.ones(2), input=tenon.ones(2)).tolist() == [2, 2]

    class Other(Net):
        def _hidden(self, x):
            return self.first(x)

        def describe(self, x):
            return x

    net, x = Other().eval(), tenon.ones(2, 3)
    net.save = net.describe
    assert tenon.equal(jit.load(_file(jit.trace_module(net, {"_hidden": x})))._hidden(x), net.first(x))
    with pytest.raises(ValueError, match="method cannot be called 'save'"):
        jit.trace_module(net, {"save": x})
    net.graph = nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r"has a member 'graph'.*Rename it"):
        jit.trace(net, x)


def test_a_trace_with_dropout_is_saved():
    with pytest.warns(jit.TracerWarning):
        traced = jit.trace(nn.Dropout(0.5), tenon.ones(2))
    dropped = jit.load(_file(traced))(tenon.ones(1000))
    assert set(dropped.tolist()) == {0, 2}


def test_parametrized_and_compiled_parts_are_traced():
    x = tenon.randn(2, 3)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    for module in (normed, tenon.compile(nn.Linear(3, 2)), fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2)))):
        traced = jit.trace(module, x)
        assert tenon.allclose(traced(x), module(x), atol=1e-6)
    assert len(list(jit.trace(normed, x).parameters())) == 3
    traced = jit.trace(lambda x: tenon.autograd.grad((x**3).sum(), x)[0], x.clone().requires_grad_())
    assert tenon.allclose(traced(x), 3 * x * x)


@pytest.mark.filterwarnings("ignore:Trace had nondeterministic nodes")
def test_seeding_is_part_of_a_trace():
    def function(x):
        tenon.manual_seed(3)
        return x + tenon.rand(3)

    traced = jit.trace(function, tenon.ones(3))
    assert tenon.equal(traced(tenon.ones(3)), function(tenon.ones(3)))
    assert tenon.equal(traced(tenon.zeros(3)) + 1, traced(tenon.ones(3)))


def test_sizes_at_which_a_graph_module_fails_print_nothing(capsys):
    class Split(nn.Module):
        def forward(self, x):
            return tenon.cat([x[:, ::2], x[:, 1::2]], 0)

    traced = jit.trace(tenon.fx.symbolic_trace(Split()), tenon.ones(2, 4))
    assert traced(tenon.ones(5, 4)).shape == (10, 2)
    assert capsys.readouterr() == ("", "")


def test_models_whose_members_are_computed_are_traced(capsys):
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU()).eval(), tenon.randn(4, 8)
    quantized, _ = tenon.quantize(model, "int8-dynamic", example=x)
    assert quantized[0].weight.dtype is not quantized[0]._buffers["weight"].dtype

    traced = jit.trace(quantized, x)
    for each in (traced, jit.load(io.BytesIO(traced.save_to_buffer()))):
        assert tenon.allclose(each(x), quantized(x))
        assert tenon.allclose(each.get_submodule("0")(x), quantized[0](x))

"""``tenon.compile``: replayed calls equal eager calls, and warn when they cannot be compiled."""

import warnings

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.engine.interceptor import SLOT
from tenon.engine.watchers import WATCHERS
from tenon.errors import CaptureError, GradError, ModifiedValueError

OPTIMIZERS = {
    "sgd": lambda p: tenon.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "plain sgd": lambda p: tenon.optim.SGD(p, lr=0.05),
    "adam": lambda p: tenon.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: tenon.optim.AdamW(p, lr=1e-2),
    "rmsprop": lambda p: tenon.optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5),
    "adagrad": lambda p: tenon.optim.Adagrad(p, lr=1e-2),
}


def network():
    tenon.manual_seed(3)
    return nn.Sequential(
        nn.Linear(6, 16, bias=False),
        nn.BatchNorm1d(16),
        nn.GELU(),
        nn.Dropout(0.25),
        nn.LayerNorm(16),
        nn.Linear(16, 3),
    )


def trained(compiled, make_optimizer, steps, clip=False, schedule_inside=False):
    """Losses, parameters, buffers and learning rates after some steps, eager or compiled."""
    model = network()
    optimizer = make_optimizer(model.parameters())
    schedule = tenon.optim.lr_scheduler.StepLR(optimizer, 3, 0.7)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if schedule_inside:
            schedule.step()
        return loss

    run = tenon.compile(step, fullgraph=True) if compiled else step
    tenon.manual_seed(4)
    losses = []
    for _ in range(steps):
        losses.append(run(tenon.randn(8, 6), tenon.randint(0, 3, (8,))).item())
        if not schedule_inside:
            schedule.step()
    state = {k: v.detach().numpy().copy() for k, v in model.state_dict().items()}
    grads = [p.grad.numpy().copy() for p in model.parameters()]
    return losses, state, grads, optimizer, run


def assert_same_run(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=2e-5)
    for name, value in one[1].items():
        np.testing.assert_allclose(value, other[1][name], rtol=2e-4, atol=2e-6, err_msg=name)
    for a, b in zip(one[2], other[2], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-6)
    assert one[3].param_groups[0]["lr"] == other[3].param_groups[0]["lr"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("sgd", "adam") else pytest.mark.slow) for name in OPTIMIZERS],
)
@pytest.mark.parametrize("clip", [False, True], ids=["unclipped", "clipped"])
def test_a_compiled_step_trains_as_the_eager_one(name, clip):
    eager = trained(False, OPTIMIZERS[name], 12, clip)
    compiled = trained(True, OPTIMIZERS[name], 12, clip)

    assert_same_run(eager, compiled)
    assert len(compiled[4].programs) == 1
    counts = [[s.get("step") for s in run[3].state.values()] for run in (eager, compiled)]
    assert repr(counts[0]) == repr(counts[1])


@pytest.mark.slow
def test_200_compiled_steps_stay_with_the_eager_ones():
    eager, compiled = (trained(c, OPTIMIZERS["adamw"], 200) for c in (False, True))

    np.testing.assert_allclose(eager[0], compiled[0], rtol=1e-3)


def test_a_scheduler_may_step_inside():
    eager = trained(False, OPTIMIZERS["adamw"], 12, schedule_inside=True)
    compiled = trained(True, OPTIMIZERS["adamw"], 12, schedule_inside=True)

    assert_same_run(eager, compiled)
    assert len(compiled[4].programs) == 1


def test_the_random_stream_goes_on_as_in_eager_code():
    def draw(x):
        return nn.functional.dropout(x, 0.5) + tenon.rand(4) + tenon.zeros(4).normal_()

    outcomes = []
    for function in (draw, tenon.compile(draw, fullgraph=True)):
        tenon.manual_seed(0)
        outcomes.append([function(tenon.ones(4)).tolist() for _ in range(6)] + [tenon.rand(2).tolist()])

    assert outcomes[0] == outcomes[1]


def test_a_compiled_module_learns_in_an_eager_loop():
    results = []
    for compiled in (False, True):
        model = network()
        forward = tenon.compile(model, fullgraph=True) if compiled else model
        optimizer = tenon.optim.Adam(model.parameters(), lr=1e-2)
        tenon.manual_seed(5)
        found = []
        for _ in range(8):
            x = tenon.randn(8, 6, requires_grad=True)
            optimizer.zero_grad()
            loss = forward(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append((loss.item(), x.grad.sum().item(), int(model[1].num_batches_tracked)))
        results.append(found)

    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-6)


def warm(function, *args, calls=4):
    for _ in range(calls):
        result = function(*args)
    return result


def test_forwards_before_their_backwards_keep_their_own_values():
    layer = tenon.compile(nn.Linear(3, 3), fullgraph=True)
    warm(layer, tenon.ones(2, 3))
    xs = [tenon.randn(2, 3) for _ in range(3)]

    outs = [layer(x) for x in xs]
    grads = []
    for out in outs:
        layer.zero_grad()
        out.sum().backward()
        grads.append(layer._orig_mod.weight.grad.clone())

    for x, grad in zip(xs, grads, strict=True):
        np.testing.assert_allclose(grad.numpy(), np.tile(x.numpy().sum(0), (3, 1)), rtol=1e-5)


def test_backward_after_the_parameters_changed_is_refused():
    layer = nn.Linear(3, 3)
    compiled = tenon.compile(nn.Sequential(layer, nn.Linear(3, 1)), fullgraph=True)
    warm(compiled, tenon.ones(2, 3))
    out = compiled(tenon.ones(2, 3))
    with tenon.no_grad():
        for p in compiled.parameters():
            p.add_(1)

    with pytest.raises(ModifiedValueError, match="compiled function"):
        out.sum().backward()


def test_gradients_of_gradients_are_refused():
    square = tenon.compile(lambda x: x * x, fullgraph=True)
    x = tenon.ones(3, requires_grad=True)
    warm(square, x)

    with pytest.raises(GradError, match="create_graph"):
        tenon.autograd.grad(square(x).sum(), x, create_graph=True)


def test_returned_tensors_are_the_callers():
    double = tenon.compile(lambda x: x * 2, fullgraph=True)
    warm(double, tenon.ones(3))

    first = double(tenon.ones(3))
    second = double(tenon.full((3,), 5.0))

    assert first.tolist() == [2, 2, 2]
    assert second.tolist() == [10, 10, 10]


def test_nests_arguments_and_constants_come_back():
    @tenon.compile(fullgraph=True)
    def function(data, *, scale):
        return {"made": data["x"] * scale, "given": data["x"], "word": "done", "list": [data["y"] + 1, None]}

    x, y = tenon.ones(2), tenon.zeros(2)
    for _ in range(4):
        result = function({"x": x, "y": y}, scale=3.0)

    assert result["made"].tolist() == [3, 3]
    assert result["given"] is x
    assert result["word"] == "done"
    assert result["list"][0].tolist() == [1, 1]
    assert result["list"][1] is None
    assert len(function.programs) == 1


def test_changes_in_place_reach_arguments_views_and_outside():
    total = tenon.zeros(3)

    @tenon.compile(fullgraph=True)
    def function(x):
        x[0] = 7
        x[1:].mul_(2)
        y = x.clone()
        y[:1] += x[1:2]
        total.add_(y)
        return y

    for k in range(5):
        x = tenon.tensor([1.0, 2.0, 3.0 + k])
        y = function(x)
        assert x.tolist() == [7, 4, 6 + 2 * k]
        assert y.tolist() == [11, 4, 6 + 2 * k]
    assert total.tolist() == [55, 20, 30 + 20]


def test_gradients_pass_a_base_around_a_view_that_changed():
    bias = nn.Parameter(tenon.zeros(3))

    def function(x):
        y = x.clone()
        y += bias
        top = y[:2]
        top *= 2
        return y, top.sum()

    compiled = tenon.compile(function, fullgraph=True)
    found = []
    for run in (function, *[compiled] * 5):
        y, total = run(tenon.ones(4, 3))
        found.append(tenon.autograd.grad(y.sum() + total, bias)[0].tolist())

    assert found == [[10.0, 10.0, 10.0]] * 6


def test_other_shapes_modes_and_dtypes_get_programs_of_their_own():
    layer = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    compiled = tenon.compile(layer, fullgraph=True)
    with tenon.no_grad():
        warm(compiled, tenon.ones(2, 3))
        warm(compiled, tenon.ones(4, 3))
        layer.eval()
        result = warm(compiled, tenon.ones(4, 3))

    assert len(compiled.programs) == 3
    assert "train() or eval() of Sequential changed" in " ".join(compiled.reasons)
    assert tenon.allclose(result, layer(tenon.ones(4, 3)))


def test_new_weights_are_read():
    layer = nn.Linear(2, 1, bias=False)
    compiled = tenon.compile(layer, fullgraph=True)
    x = tenon.ones(1, 2)
    with tenon.no_grad():
        warm(compiled, x)
        layer.load_state_dict({"weight": tenon.tensor([[1.0, 2.0]])})
        assert compiled(x).item() == 3
        layer.weight.data = tenon.tensor([[5.0, 5.0]])
        assert compiled(x).item() == 10
    assert len(compiled.programs) == 1


def test_an_option_that_a_rule_asks_for_records_again():
    model = nn.Linear(2, 1)
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

    @tenon.compile(fullgraph=True)
    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    warm(step, tenon.ones(1, 2))
    optimizer.param_groups[0]["lr"] = 0.5
    before = model.weight.detach().clone()
    step(tenon.ones(1, 2))
    np.testing.assert_allclose((before - model.weight.detach()).numpy(), [[0.5, 0.5]], rtol=1e-6)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    before = model.weight.detach().clone()
    warm(step, tenon.ones(1, 2), calls=1)

    np.testing.assert_allclose(
        model.weight.detach().numpy(), before.numpy() - 0.5 * (1 + 0.1 * before.numpy()), rtol=1e-5
    )
    assert any("weight_decay" in reason for reason in step.reasons)


def test_gradients_accumulate_over_compiled_calls():
    model = nn.Linear(3, 1)

    @tenon.compile(fullgraph=True)
    def accumulate(x):
        model(x).sum().backward()

    for _ in range(7):
        accumulate(tenon.ones(2, 3))

    assert model.weight.grad.tolist() == [[14.0, 14.0, 14.0]]
    model.weight.grad = model.bias.grad = None
    accumulate(tenon.ones(2, 3))
    assert model.weight.grad.tolist() == [[2.0, 2.0, 2.0]]


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x * 2 if x.sum() > 0 else x, "reads the value"),
        (lambda x: x * x.max().item(), "reads the value"),
        (lambda x: x[x > 0], "shape depends on the data"),
        (lambda x: x.nonzero(), "shape depends on the data"),
    ],
    ids=["if", "item", "mask", "nonzero"],
)
def test_what_depends_on_values_stays_eager_with_one_warning(function, what):
    compiled = tenon.compile(function)

    with pytest.warns(UserWarning, match=what) as seen:
        results = [compiled(tenon.tensor([1.0, 2.0])) for _ in range(5)]

    assert len(seen) == 1
    assert seen[0].filename == __file__
    for result in results:
        assert tenon.equal(result, function(tenon.tensor([1.0, 2.0])))
    with pytest.raises(CaptureError, match=what):
        warm(tenon.compile(function, fullgraph=True), tenon.tensor([1.0, 2.0]))


def test_a_number_that_python_changes_is_found():
    calls = [0]

    @tenon.compile
    def function(x):
        calls[0] += 1
        return x * calls[0]

    with pytest.warns(UserWarning, match="a Python number that changes"):
        results = [function(tenon.ones(1)).item() for _ in range(8)]

    assert results == [1, 2, 3, 4, 5, 6, 7, 8]


def test_effects_happen_once_when_a_recording_ends_early():
    counter = tenon.zeros(1)

    @tenon.compile
    def function(x):
        counter.add_(1)
        if x.sum() > 0:
            counter.add_(10)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm(function, tenon.ones(1), calls=5)

    assert counter.item() == 55


def test_an_error_while_recording_leaves_nothing_behind():
    @tenon.compile
    def function(x):
        raise KeyError("mine")

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            function(tenon.ones(1))

    assert WATCHERS.recorder is None
    assert SLOT.top is None
    assert (tenon.ones(2) + 1).tolist() == [2, 2]


def test_calls_that_raise_do_not_count_as_recordings():
    broken = [0]
    compiled = tenon.compile(lambda x: x / 2 + 1 if not broken else 1 // broken[0])
    for _ in range(70):
        with pytest.raises(ZeroDivisionError):
            compiled(tenon.ones(2))
    broken.clear()
    warm(compiled, tenon.ones(2))
    assert len(compiled.programs) == 1


def test_the_program_can_be_read():
    layer = tenon.compile(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), fullgraph=True)
    with tenon.no_grad():
        warm(layer, tenon.ones(1, 2))

    graph, source = str(layer.programs[0].graph), layer.programs[0].source
    assert "linear(" in graph
    assert "_orig_mod.0.weight" in graph
    assert source.count("\n") > 2
    assert "def run(" in source

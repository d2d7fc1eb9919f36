"""Anomaly detection names where NaN and infinities first appeared: op, module path, shapes."""

import warnings
import weakref

import pytest

import tenon
from tenon import nn
from tenon.errors import AnomalyError

pytestmark = pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")


class Root(nn.Module):
    def forward(self, x):
        return (x - 1).sqrt()


@pytest.fixture
def net():
    return nn.Sequential(nn.Identity(), nn.Sequential(nn.ReLU(), Root()))


def test_a_nan_gradient_names_op_path_shapes_and_what_forward_made(net):
    x = tenon.zeros(2, 3, requires_grad=True)

    with (
        tenon.autograd.detect_anomaly(),
        pytest.warns(UserWarning, match=r"SqrtBackward0[\s\S]*return \(x - 1\)\.sqrt\(\)"),
        pytest.raises(AnomalyError) as caught,
    ):
        net(x).sum().backward()

    text = str(caught.value)
    assert "op sqrt in module 1.1" in text
    assert "gradient [2, 3])" in text
    assert (
        "In forward, op sqrt in module 1.1 computed nan from finite numbers: inputs [2, 3], output [2, 3], 6 of 6"
        in text
    )


def test_an_infinite_gradient_before_nan_is_named():
    x = tenon.zeros(3, requires_grad=True)

    with (
        tenon.autograd.detect_anomaly(),
        pytest.warns(UserWarning, match="Error detected in MulBackward0"),
        pytest.raises(AnomalyError, match=r"the first infinite gradient was that of op sqrt, .*\[3\]"),
    ):
        (x * 0).sqrt().sum().backward()


def test_an_infinity_of_forward_is_named_with_the_nan_it_leads_to():
    x = tenon.zeros(3, requires_grad=True)

    with (
        tenon.autograd.detect_anomaly(),
        pytest.warns(UserWarning, match="Error detected in"),
        pytest.raises(
            AnomalyError, match=r"op log computed inf from finite numbers: inputs \[3\], output \[3\], 3 of 3"
        ),
    ):
        (x.log() * 0).sum().backward()


def test_nan_of_forward_is_told_at_the_end_where_backward_did_not(net):
    with (
        pytest.warns(UserWarning, match=r"op sqrt in module 1\.1 computed nan from finite numbers"),
        tenon.autograd.detect_anomaly(),
    ):
        net(tenon.zeros(2))


def test_infinities_alone_and_unchecked_nan_are_nobodys_business(net):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tenon.autograd.set_detect_anomaly(True):
            tenon.full((2, 2), float("-inf")).exp().sum().log()
            nn.functional.softmax(tenon.tensor([0.0, float("-inf")]), 0)
        with tenon.autograd.set_detect_anomaly(True, check_nan=False):
            x = tenon.full((2,), 0.5, requires_grad=True)
            net(x).sum().backward()

    assert x.grad.isnan().all()


def test_the_mode_leaves_nothing_behind(net):
    from tenon.engine.interceptor import SLOT
    from tenon.engine.watchers import WATCHERS

    with tenon.autograd.set_detect_anomaly(True), tenon.autograd.detect_anomaly():
        tenon.ones(2).exp()

    assert SLOT.top is None
    assert WATCHERS.taped is None
    assert WATCHERS.differentiated is None


def test_a_gradient_that_fails_is_told_with_the_forward_call():
    x = tenon.ones(3, requires_grad=True)

    with (
        tenon.autograd.detect_anomaly(),
        pytest.warns(UserWarning, match=r"Error detected in PowBackward0[\s\S]*changed\*\*2"),
        pytest.raises(RuntimeError, match="modified by an inplace operation"),
    ):
        changed = x + 1
        out = changed**2
        changed += 1
        out.sum().backward()


def test_the_forward_call_of_a_custom_function_is_told():
    class Poison(tenon.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * float("nan")

    x = tenon.ones(3, requires_grad=True)
    with (
        tenon.autograd.detect_anomaly(),
        pytest.warns(UserWarning, match=r"Error detected in PoisonBackward[\s\S]*Poison\.apply"),
        pytest.raises(AnomalyError, match="'PoisonBackward' returned nan values in its 0th output"),
    ):
        Poison.apply(x).sum().backward()


def before_the_mode(library, x):
    out = (x * 0).sqrt().sum() * float("inf")
    with library.autograd.detect_anomaly():
        out.backward()


def inside_a_hook(library, x):
    with library.autograd.detect_anomaly():
        a = x + 1
        a.register_hook(lambda g: 1 / 0)
        a.sum().backward()


def of_second_order(library, x):
    with library.autograd.detect_anomaly():
        y = (x * 0) ** 3
        (g,) = library.autograd.grad(y.sum(), x, create_graph=True)
        library.autograd.grad((g**0.5).sum(), x, create_graph=True)


@pytest.mark.oracle
@pytest.mark.parametrize("work", [before_the_mode, inside_a_hook, of_second_order])
def test_warnings_begin_as_torchs(work):
    torch = pytest.importorskip("torch")
    heads = []
    for library in (tenon, torch):
        x = library.full((3,), 2.0, requires_grad=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with pytest.raises((RuntimeError, ZeroDivisionError)):
                work(library, x)
        assert all(issubclass(w.category, UserWarning) for w in told)
        texts = [str(w.message).split(" (Triggered")[0].strip() for w in told]
        heads.append([text.splitlines()[0] for text in texts if "computed nan" not in text])

    assert heads[0] == heads[1]
    assert len(heads[0]) == (3 if "second" in work.__name__ else 2)


def test_a_call_before_the_mode_that_induced_a_failing_one_is_told():
    x = tenon.zeros(3, requires_grad=True)
    y = x**3

    with (
        tenon.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="Error detected in PowBackward0. Traceback of"),
        pytest.warns(UserWarning, match="induced by PowBackward0. No forward pass information available"),
        pytest.raises(AnomalyError),
    ):
        (g,) = tenon.autograd.grad(y.sum(), x, create_graph=True)
        (g**0.5).sum().backward()


def test_what_the_mode_keeps_of_a_node_dies_with_it():
    class Anything:
        pass

    x = tenon.ones(2, requires_grad=True)
    made = x.exp()
    with tenon.autograd.set_detect_anomaly(True):
        (slope,) = tenon.autograd.grad(made.sum(), x, create_graph=True)
    thing = Anything()
    made.grad_fn.metadata["thing"] = thing
    alive = weakref.ref(thing)
    parents = slope.grad_fn.metadata["parent_"]
    del thing, slope, parents
    assert alive() is not None

    del made

    assert alive() is None


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("module", ["tenon", "torch"])
def test_a_warning_that_is_an_error_does_not_hide_what_it_tells_of(module, capsys):
    t = pytest.importorskip(module)
    with t.autograd.detect_anomaly(), warnings.catch_warnings():
        warnings.simplefilter("error")
        x = t.ones(2, requires_grad=True) + 1
        squares = x**2
        x += 1
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            squares.sum().backward()

    assert "Error detected in PowBackward0" in capsys.readouterr().err

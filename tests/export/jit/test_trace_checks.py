"""What a trace cannot repeat is warned of, and checked: PyTorch's ``TracerWarning`` and ``TracingCheckError``."""

import warnings

import pytest

import tenon
from tenon import jit, nn


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (lambda x: x if x.sum() > 0 else -x, "Python boolean"),
        (lambda x: x * float(x.sum()), "Python float"),
        (lambda x: x[: int(x[0])], "Python integer"),
        (lambda x: x * x.sum().item(), "Python number"),
        (lambda x: x * x.tolist()[0], "Python list"),
        (lambda x: x * float(x.sum().numpy()), "NumPy array"),
    ],
)
def test_values_that_python_reads_are_constants_with_a_warning(read, kind):
    with pytest.warns(jit.TracerWarning, match=f"Converting a tensor to a {kind} might cause") as caught:
        traced = jit.trace(read, tenon.ones(3))
    assert {w.filename for w in caught} == {__file__}
    x = tenon.ones(3)
    assert tenon.equal(traced(x), read(x))


def test_a_branch_stays_as_it_went():
    def function(x):
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.warns(jit.TracerWarning):
        traced = jit.trace(function, tenon.ones(2))
    assert traced(-tenon.ones(2)).tolist() == [0, 0]


def test_sizes_and_constants_are_not_warned_of():
    def function(x):
        if len(x) > 2 and bool(tenon.ones(1) > 0):
            return x + tenon.tensor([1.0])
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jit.trace(function, tenon.ones(3))


def test_a_function_that_does_something_else_each_time_is_refused():
    count = [0]

    def function(x):
        count[0] += 1
        return x.relu() if count[0] % 2 else x.sigmoid()

    with pytest.raises(jit.TracingCheckError, match="Graphs differed across invocations") as error:
        jit.trace(function, tenon.ones(2))
    assert "relu" in str(error.value) and "sigmoid" in str(error.value) and __file__ in str(error.value)
    jit.trace(function, tenon.ones(2), check_trace=False)


def test_a_number_that_changes_is_refused():
    count = [1]

    def function(x):
        count[0] += 1
        return x * count[0]

    with pytest.raises(jit.TracingCheckError, match=r"mul\(%0, 2.0\)(.|\n)*mul\(%0, 3.0\)"):
        jit.trace(function, tenon.ones(2))


def test_inputs_to_check_with_show_branches():
    def function(x):
        return x.relu() if x.sum() > 0 else x.sigmoid()

    with (
        pytest.warns(jit.TracerWarning),
        pytest.raises(jit.TracingCheckError, match="First diverging operator"),
    ):
        jit.trace(function, tenon.ones(2), check_inputs=[(-tenon.ones(2),)])
    jit.trace(lambda x: x * 2, tenon.ones(2), check_inputs=[(tenon.ones(2),), (tenon.ones(4),)])


def test_numbers_read_of_the_example_show_in_other_results():
    def function(x):
        return x * x.sum().item() if x.dim() else x

    with pytest.warns(jit.TracerWarning), pytest.raises(jit.TracingCheckError):
        jit.trace(function, tenon.ones(2), check_inputs=[(3 * tenon.ones(2),)])


@pytest.mark.parametrize(
    "make", [lambda x: x + tenon.rand(2), nn.Dropout(0.5), lambda x: tenon.randn_like(x) * x]
)
def test_random_numbers_are_warned_of_and_drawn_anew(make):
    with pytest.warns(jit.TracerWarning, match=r"Trace had nondeterministic nodes(.|\n)*\.eval\(\)"):
        traced = jit.trace(make, tenon.ones(2))
    tenon.manual_seed(3)
    first = [traced(tenon.ones(2)).tolist() for _ in range(20)]
    assert len({tuple(each) for each in first}) > 1
    tenon.manual_seed(3)
    expected = [make(tenon.ones(2)).tolist() for _ in range(20)]
    assert first == expected


def test_tracing_leaves_state_and_generator_as_they_were():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tenon.manual_seed(1)
    jit.trace(model, tenon.ones(4, 3) * tenon.arange(4.0)[:, None])
    drawn = tenon.rand(3)
    tenon.manual_seed(1)
    assert tenon.equal(tenon.rand(3), drawn)
    assert all(tenon.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())

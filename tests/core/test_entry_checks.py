"""Flags are bools, and bools are no integers, where PyTorch says so; where it reads a flag in Python, anything is one."""

import traceback
import types

import numpy as np
import pytest

import tenon
import tenon.nn.functional as F
from tenon.tensors.entry_checks import checks_of, with_checks

X, IMAGE = tenon.ones(3, 3), tenon.ones(1, 1, 4, 4)
#: Calls with one argument open, and the beginning of the error, without the type of the value.
FLAGS = {
    "sum(): argument 'keepdim' must be bool": lambda v: X.sum(0, v),
    "amax(): argument 'keepdim' must be bool": lambda v: tenon.amax(X, 0, keepdim=v),
    "sort(): argument 'descending' must be bool": lambda v: X.sort(0, v),
    "solve_triangular(): argument 'upper' must be bool": lambda v: tenon.linalg.solve_triangular(
        X, X, upper=v
    ),
    "topk(): argument 'largest' must be bool": lambda v: X.topk(1, 0, v),
    "embedding_bag(): argument 'include_last_offset' must be bool": lambda v: F.embedding_bag(
        tenon.tensor([0]), X, tenon.tensor([0]), include_last_offset=v
    ),
    "zeros(): argument 'requires_grad' must be bool": lambda v: tenon.zeros(2, requires_grad=v),
    "dropout(): argument 'training' must be bool": lambda v: F.dropout(X, 0.5, v),
}
INTEGERS = {
    "softmax(): argument 'dim' (position 1) must be int": lambda v: X.softmax(v),
    "transpose(): argument 'dim0' (position 1) must be int": lambda v: X.transpose(v, 0),
    "sum(): argument 'dim' (position 1) must be tuple of ints": lambda v: X.sum(v),
    "max_pool2d(): argument 'kernel_size' (position 2) must be tuple of ints": lambda v: F.max_pool2d(
        IMAGE, v
    ),
}


@pytest.mark.parametrize("value", ["x", 1, 0, 2.5, [1], None])
@pytest.mark.parametrize("said", FLAGS)
def test_flags_are_bools(said, value):
    for flag in (True, False):
        FLAGS[said](flag)
    if value is None and "requires_grad" in said:
        FLAGS[said](value)
        return
    with pytest.raises(TypeError) as caught:
        FLAGS[said](value)
    assert str(caught.value) == f"{said}, not {type(value).__name__}"


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_])
@pytest.mark.parametrize("said", INTEGERS)
def test_bools_are_no_integers(said, value):
    INTEGERS[said](1)
    with pytest.raises(TypeError) as caught:
        INTEGERS[said](value)
    assert str(caught.value) == f"{said}, not {'bool' if isinstance(value, bool) else 'numpy.bool'}"


@pytest.mark.parametrize("value", [1.5, np.float32(2.5), float("nan")])
@pytest.mark.parametrize(
    "call",
    [
        lambda v: F.embedding(tenon.tensor([0]), X, v),
        lambda v: F.embedding_bag(tenon.tensor([[0]]), X, padding_idx=v),
        lambda v: tenon.polygamma(v, X),
        lambda v: X.gather(v, tenon.zeros(0, dtype=tenon.int64)),
        lambda v: tenon.randint(v, (2,)),
        lambda v: tenon.randint(0, v, (2,)),
        lambda v: X.narrow_copy(0, v, 1),
    ],
)
def test_floats_are_no_integers(call, value):
    with pytest.raises(TypeError, match=r"must be int, not|cannot be interpreted as an integer"):
        call(value)


@pytest.mark.parametrize("value", [1, "yes", None])
def test_what_pytorch_reads_in_python_may_be_anything(value):
    F.relu(X.clone(), inplace=value)
    F.max_pool2d(IMAGE, 2, return_indices=value)
    F.interpolate(IMAGE, 2, antialias=0)
    F.interpolate(IMAGE, 2, mode="bilinear", align_corners=None)
    assert X.var(False) == X.var(unbiased=False)


def refuse():
    raise TypeError("refused")


def _plain(x, flag: "bool" = False, *, other: "bool | None" = None, size: "int" = 1):
    return x, flag, other, size


def _with_cells(x, flag: "bool" = False):
    return [(lambda: flag)() for _ in range(x)]


def _with_handlers(x, flag: "bool" = True):
    out = []
    for i in range(x):
        try:
            if i == 2:
                raise ValueError(i)
            while not flag:
                flag = True
            out.append(i)
        except ValueError:
            out.append("error")
        finally:
            out.append("end")
    return out


def _nested():
    y = 3

    def inner(x, flag: "bool" = True):
        return x, y, (lambda: flag)()

    return inner


@pytest.mark.parametrize("function", [_plain, _with_cells, _with_handlers, _nested()])
def test_checks_change_nothing_else_of_a_function(function):
    calls = [(4,), (4, True), (4, False)]
    expected = [function(*args) for args in calls]
    code = with_checks(function.__code__, checks_of(function), "refuse")
    checked = types.FunctionType(
        code, {**globals(), "refuse": refuse}, None, function.__defaults__, function.__closure__
    )
    checked.__kwdefaults__ = function.__kwdefaults__

    assert code is not function.__code__
    for _ in range(100):  # until Python has specialised the instructions
        assert [checked(*args) for args in calls] == expected
    for wrong in (1, None, "x"):
        with pytest.raises(TypeError, match="refused"):
            checked(4, wrong)
    assert [line for *_, line in code.co_lines()][-1] == [line for *_, line in function.__code__.co_lines()][
        -1
    ]


def test_errors_behind_checks_name_their_line():
    def failing(flag: "bool"):
        x = 1

        return x / 0

    failing.__code__ = with_checks(failing.__code__, checks_of(failing), "refuse")

    with pytest.raises(ZeroDivisionError) as caught:
        failing(True)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "return x / 0"

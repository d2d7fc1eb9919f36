"""The result dtype of every pair of dtypes, dimensioned, 0-d and Python numbers, as in torch."""

import enum
import itertools
import warnings

import numpy as np
import pytest

import tenon

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]

NAMES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
NUMBERS = (True, 3, 2.5, 1 + 2j)


def outcome(function):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return str(function())
    except (RuntimeError, TypeError):
        return "error"


@pytest.mark.parametrize("name", NAMES)
def test_promote_types_and_can_cast(name):
    for other in NAMES:
        for function in ("promote_types", "can_cast"):
            ours, theirs = (
                outcome(lambda t=t, f=function: getattr(t, f)(getattr(t, name), getattr(t, other)))
                for t in (tenon, torch)
            )
            assert theirs in (
                "error",
                ours,
            ), f"{function}({name}, {other})"  # torch has no pairs of wide unsigned


@pytest.mark.parametrize("name", NAMES)
def test_result_type_of_tensors_and_numbers(name):
    for other, own_rank, other_rank in itertools.product(NAMES, (0, 1), (0, 1)):
        ours, theirs = (
            outcome(
                lambda t=t: t.result_type(
                    t.zeros((2,) * own_rank, dtype=getattr(t, name)),
                    t.zeros((2,) * other_rank, dtype=getattr(t, other)),
                )
            )
            for t in (tenon, torch)
        )
        assert theirs in (
            "error",
            "torch.complex32",
            ours,
        ), f"{name} of rank {own_rank}, {other} of rank {other_rank}"
    for number, rank in itertools.product(NUMBERS, (0, 1)):
        ours, theirs = (
            outcome(lambda t=t: t.result_type(t.zeros((2,) * rank, dtype=getattr(t, name)), number))
            for t in (tenon, torch)
        )
        assert theirs in ("torch.complex32", ours), f"{name} of rank {rank}, {number!r}"


def run(t, expression, name, rank, other):
    x = t.ones((2,) * rank, dtype=getattr(t, name))
    y = t.ones((2,) * other[1], dtype=getattr(t, other[0])) if isinstance(other, tuple) else other
    return expression(x, y).dtype


EXPRESSIONS = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "reflected_mul": lambda x, y: y * x,
    "div": lambda x, y: x / y,
    "reflected_sub": lambda x, y: y - x,
    "pow": lambda x, y: x**y,
    "eq": lambda x, y: x == y,
}


@pytest.mark.parametrize("operation", EXPRESSIONS)
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("uint16", "uint32", "uint64")])
def test_operators_take_the_common_dtype(operation, name):
    others = [(n, rank) for n in NAMES if n not in ("uint16", "uint32", "uint64") for rank in (0, 1)]
    for rank, other in itertools.product((0, 1), [*others, *NUMBERS]):
        theirs = outcome(lambda r=rank, o=other: run(torch, EXPRESSIONS[operation], name, r, o))
        ours = outcome(lambda r=rank, o=other: run(tenon, EXPRESSIONS[operation], name, r, o))
        if "float16" in str(other) + name and (isinstance(other, complex) or "complex" in str(other) + name):
            continue  # torch's half complex numbers, which tenon widens
        assert ours == theirs, f"{operation}: {name} of rank {rank} with {other}"


@pytest.mark.parametrize(
    "operation",
    [
        "exp",
        "sqrt",
        "sin",
        "sigmoid",
        "abs",
        "floor",
        "neg",
        "square",
        "sum",
        "mean",
        "prod",
        "cumsum_0",
        "max",
    ],
)
def test_unary_operations_and_reductions_keep_or_widen_dtypes(operation):
    function, *arguments = operation.split("_")
    for name, rank in itertools.product(NAMES, (0, 1)):
        if name in ("uint16", "uint32", "uint64"):
            continue
        ours, theirs = (
            outcome(
                lambda t=t: (
                    getattr(t.ones((2,) * rank, dtype=getattr(t, name)), function)(*map(int, arguments)).dtype
                )
            )
            for t in (tenon, torch)
        )
        assert theirs in ("error", ours), f"{operation} of {name}, rank {rank}"


def test_numpy_scalars_count_as_python_numbers(parity):
    import numpy as np

    def program(t):
        x = t.ones(2, dtype=t.float32)
        return x * np.float64(2), x + np.int64(3), np.float32(2) * x, x.add(np.float64(1))

    parity(program)


def test_default_dtype_decides_what_python_floats_become(parity):
    def program(t):
        t.set_default_dtype(t.float64)
        try:
            return t.tensor(1.5), t.ones(2), t.arange(3) * 1.5, t.tensor([1, 2]) / 2
        finally:
            t.set_default_dtype(t.float32)

    parity(program)


def test_a_condition_stays_boolean_with_floats():
    mask = tenon.tensor([True, False])

    made = tenon.where(mask, tenon.ones(2, requires_grad=True), 0.0)

    assert made.dtype == tenon.float32
    assert made.grad_fn.args[0] is mask.raw  # what the gradient keeps: neither cast nor copied


class Level(enum.IntEnum):
    HIGH = 3


def test_members_of_enumerations_are_numbers(parity):
    def program(t):
        x = t.tensor([1.0, 2.0], requires_grad=True)
        y = Level.HIGH * x**Level.HIGH / Level.HIGH - Level.HIGH
        y.sum().backward()
        return y, x.grad, t.full((2,), Level.HIGH), t.tensor([Level.HIGH, 1]), x.clamp(max=Level.HIGH)

    parity(program)


def test_ops_made_of_several_take_the_common_dtype(parity):
    """Each step of theirs would promote by itself: a factor makes a float32 of integers, a row loses its rank."""

    def program(t):
        half, wide = t.tensor([1.0, 2.0], dtype=t.bfloat16), t.tensor(2.0, dtype=t.float64)
        whole, byte = t.tensor([1, 2], dtype=t.int32), t.tensor([1, 200], dtype=t.uint8)
        mask = t.tensor([True, False])
        return (
            t.logaddexp2(whole, half), t.logaddexp2(wide, half),
            t.special.xlog1py(wide, half), t.special.xlog1py(whole, half), t.special.xlog1py(half, 2.5),
            t.block_diag(wide, half), t.addr(t.ones(2, 2, dtype=t.int32), mask, mask, beta=3, alpha=2),
            t.nn.functional.l1_loss(byte, t.tensor([2, 3], dtype=t.uint8), reduction="sum"),
            t.istft(t.ones(9, 8, dtype=t.complex64), 16, window=t.ones(16, dtype=t.bool)),
        )  # fmt: skip

    parity(program)


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_losses_of_broadcast_tensors_take_the_dtype_of_the_common_shape(parity):
    def program(t):
        x, y = t.ones(2, 3), t.tensor(2.0, dtype=t.float64)
        F = t.nn.functional
        return F.mse_loss(x, y), F.l1_loss(y, x), F.smooth_l1_loss(x, y, reduction="none")

    parity(program)


def test_numpy_scalars_come_first_where_python_numbers_do(parity):
    import numpy as np

    def program(t):
        x = t.tensor([1.0, 2.0])
        names = ("add", "sub", "mul", "div", "pow", "remainder", "floor_divide", "xlogy", "float_power")
        return [getattr(t, name)(number, x) for name in names for number in (np.float64(2.5), np.int64(2))]

    parity(program)


def test_xlog1py_of_zero_has_the_gradient_of_the_first_factor(parity):
    def program(t):
        x = t.zeros(3, requires_grad=True)
        y = t.tensor([0.5, -0.5, 2.0], requires_grad=True)
        z = t.special.xlog1py(x, y)
        return (z, *t.autograd.grad(z[0] + z[1], (x, y)))

    parity(program)


@pytest.mark.parametrize("value", [300, -300, 2.5, -1.5, float("nan"), -3])
def test_a_number_out_of_the_range_of_integers_is_refused_not_wrapped(parity, value):
    for name in ("uint8", "int8"):

        def fill(t, name=name):
            return t.ones(2, dtype=getattr(t, name)).masked_fill(t.tensor([True, False]), value)

        def threshold(t, name=name):
            return t.nn.functional.threshold(t.ones(2, dtype=getattr(t, name)), 2, value)

        for program in (fill, threshold):
            expected = outcome(lambda: program(torch).tolist())
            assert outcome(lambda: program(tenon).tolist()) == expected, (name, program.__name__)


def test_a_number_in_a_tensors_place_is_a_type_error_in_torchs_words():
    x, F = tenon.ones(2, 2), tenon.nn.functional
    calls = {
        "avg_pool2d(): argument 'input' (position 1) must be Tensor, not int": lambda: F.avg_pool2d(2, 3),
        "addmm(): argument 'mat1' (position 2) must be Tensor, not float": lambda: tenon.addmm(x, 2.5, x),
        "addmm_(): argument 'mat1' (position 1) must be Tensor, not int": lambda: x.addmm_(1, x),
        "full_like(): argument 'input' (position 1) must be Tensor, not int": lambda: tenon.full_like(2, 1),
        "index_add_(): argument 'index' (position 2) must be Tensor, not int": lambda: x.index_add_(0, 1, x),
        "permute_copy(): argument 'input' (position 1) must be Tensor, not int": lambda: tenon.permute_copy(2, (0,)),
        "inv(): argument 'A' (position 1) must be Tensor, not int": lambda: tenon.linalg.inv(2),
        "fft(): argument 'input' (position 1) must be Tensor, not numpy.float64": lambda: tenon.fft.fft(
            np.float64(2)
        ),
    }  # fmt: skip

    for words, call in calls.items():
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == words


def test_addr_promotes_a_0d_operand_as_the_vectors():
    bias, vectors = tenon.ones((), dtype=tenon.float64), (tenon.ones(2), tenon.ones(3))

    assert tenon.addr(bias, *vectors).dtype is tenon.float64
    assert tenon.addr(vectors[0][0], *vectors).dtype is tenon.float32

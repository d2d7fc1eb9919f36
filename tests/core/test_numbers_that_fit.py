"""A number that a dtype cannot hold is an error, in eager and compiled calls: it would wrap around silently."""

import math

import pytest

import tenon
import tenon.nn.functional as F
from tenon.errors import DivisionByZeroError, DTypeError, NumberOverflowError, UnsupportedDTypeError

pytestmark = pytest.mark.together

WHOLE = tenon.tensor([1, 2, 3], dtype=tenon.uint8)
HALF = tenon.ones(3, dtype=tenon.float16)
WIDEST = {int: tenon.int64, float: tenon.float64, complex: tenon.complex128}
MASK = tenon.tensor([True, False, True])
FIRST = tenon.tensor([0])
UNSUITABLE = (300, -256, 2.5e9, math.nan, math.inf)


def assigned(x, key, value):
    x = x.clone()
    x[key] = value
    return x


WRITES = {
    "fill_": lambda v: WHOLE.clone().fill_(v),
    "x[0] = v": lambda v: assigned(WHOLE, 0, v),
    "x[index] = v": lambda v: assigned(WHOLE, FIRST, v),
    "x[mask] = v": lambda v: assigned(WHOLE, MASK, v),
    "masked_fill": lambda v: WHOLE.masked_fill(MASK, v),
    "index_fill": lambda v: WHOLE.index_fill(0, FIRST, v),
    "scatter": lambda v: WHOLE.scatter(0, FIRST, v),
    "fill_diagonal_": lambda v: WHOLE.expand(3, 3).clone().fill_diagonal_(v),
    "full": lambda v: tenon.full((2,), v, dtype=tenon.uint8),
    "full_like": lambda v: tenon.full_like(WHOLE, v),
    "new_full": lambda v: WHOLE.new_full((2,), v),
    "linspace": lambda v: tenon.linspace(0, v, 3, dtype=tenon.uint8),
    "pad": lambda v: F.pad(WHOLE, (1, 1), value=v),
}
OPERANDS = {
    "clamp": lambda v: WHOLE.clamp(max=v),
    "clamp_": lambda v: WHOLE.clone().clamp_(min=v),
    "where": lambda v: tenon.where(MASK, WHOLE, v),
    "power": lambda v: WHOLE**v,
    "alpha": lambda v: tenon.add(WHOLE, WHOLE, alpha=v),
}


@pytest.mark.parametrize("value", UNSUITABLE, ids=str)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_an_integer_dtype_cannot_hold_is_not_written(write, value):
    with pytest.raises(
        (DTypeError, OverflowError, ValueError), match=r"without overflow|cannot convert float"
    ):
        write(value)


LONG = (2**64, 2**70, -(2**63) - 1, -(2**70), 10**5000, -(10**400))
PLACES = {
    "tensor": lambda v: tenon.tensor(v),
    "tensor of a list": lambda v: tenon.tensor([1, v]),
    "tensor of integers": lambda v: tenon.tensor([[v]], dtype=tenon.uint8),
    "as_tensor": lambda v: tenon.as_tensor((v, 2)),
    "new_tensor": lambda v: WHOLE.new_tensor([v]),
    "full": lambda v: tenon.full((2,), v),
    "full of floats": lambda v: tenon.full((2,), v, dtype=tenon.float64),
    "full of booleans": lambda v: tenon.full((2,), v, dtype=tenon.bool),
    "fill_": lambda v: HALF.clone().fill_(v),
    "x[0] = v": lambda v: assigned(tenon.ones(3), 0, v),
    "masked_fill": lambda v: tenon.ones(3).masked_fill(MASK, v),
    "scatter": lambda v: tenon.ones(3).scatter(0, FIRST, v),
    "arange": lambda v: tenon.arange(v, v),
    "arange of floats": lambda v: tenon.arange(v, v, dtype=tenon.float32),
    "linspace": lambda v: tenon.linspace(0, v, 3),
    "sum": lambda v: WHOLE + v,
    "quotient of bfloat16": lambda v: tenon.ones(3, dtype=tenon.bfloat16) / v,
    "sum of booleans": lambda v: MASK + v,
    "clamp": lambda v: WHOLE.clamp(max=v),
    "addcmul": lambda v: tenon.addcmul(WHOLE, WHOLE, WHOLE, value=v),
    "threshold": lambda v: F.threshold(WHOLE, v, 1),
    "compiled": lambda v: tenon.compile(lambda x: x * v)(WHOLE),
}


@pytest.mark.parametrize("value", LONG, ids=lambda value: f"{value.bit_length()} bits")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_an_integer_of_more_than_64_bits_is_refused(place, value):
    with pytest.raises(NumberOverflowError, match=r"Overflow when unpacking long long: .*Pass"):
        place(value)


@pytest.mark.parametrize("value", [2**63, 2**64 - 1])
def test_an_integer_between_the_ranges_of_int64_and_uint64_is_never_rounded_silently(value):
    for data in (value, [1, value], [-1, value]):
        with pytest.raises(NumberOverflowError, match=f"to type int64 without overflow: {value}"):
            tenon.tensor(data)
        with pytest.raises(NumberOverflowError, match=f"to type int32 without overflow: {value}"):
            tenon.tensor(data, dtype=tenon.int32)
    assert tenon.tensor([1, value], dtype=tenon.uint64).tolist() == [1, value]
    assert tenon.tensor([-1, value], dtype=tenon.uint64).tolist() == [2**64 - 1, value]
    for kind in (tenon.float64, tenon.bfloat16):
        rounded = float(tenon.tensor(float(value), dtype=kind))
        assert tenon.tensor([value, 0], dtype=kind).tolist() == [rounded, 0]
        assert tenon.full((1,), value, dtype=kind).tolist() == [rounded]
        assert tenon.zeros(2, dtype=kind).masked_fill(tenon.tensor([True, False]), value)[0] == rounded
        assert (tenon.zeros(1, dtype=kind) + value).tolist() == [rounded]
    assert tenon.zeros(1, dtype=tenon.bool).masked_fill(tenon.tensor([True]), value).tolist() == [True]
    with pytest.raises(DTypeError, match=f"value {2**63} cannot be converted to type int64 without"):
        tenon.arange(2**63 - 2, 2**63)


def test_ranges_of_floats_are_counted_in_floats():
    for kind in (tenon.float32, tenon.int32, tenon.uint8):
        assert tenon.arange(2**62 - 2, 2**62, dtype=kind).shape == (0,)
    assert tenon.arange(2**62 - 2, 2**62).tolist() == [2**62 - 2, 2**62 - 1]


@pytest.mark.parametrize("operation", OPERANDS.values(), ids=OPERANDS)
def test_operands_of_integer_tensors_fit_their_dtype(operation):
    with pytest.raises(DTypeError, match="value 300 cannot be converted to type uint8"):
        operation(300)
    with pytest.raises(
        DTypeError, match=r"value -256 cannot be converted to type uint8|negative integer powers"
    ):
        operation(-256)


def test_compiled_calls_refuse_the_same_numbers():
    compiled = tenon.compile(lambda x: x.clamp(max=300))

    for _ in range(4):
        with pytest.raises(DTypeError, match="value 300 cannot be converted to type uint8"):
            compiled(WHOLE)


@pytest.mark.parametrize(
    "write",
    [
        lambda v: WHOLE.masked_fill(MASK, v),
        lambda v: WHOLE.index_fill(0, FIRST, v),
        lambda v: assigned(WHOLE, MASK, v),
    ],
)
def test_0d_tensors_are_numbers_here(write):
    for value in (300, 2.5e9, math.nan, 1j):
        with pytest.raises(DTypeError, match="cannot be converted to type uint8 without overflow"):
            write(tenon.tensor(value))

    assert write(tenon.tensor(7.5)).tolist()[0] == 7


def test_negative_integers_wrap_in_unsigned_dtypes_as_in_torch():
    for name, write in WRITES.items():
        assert 255 in write(-1).flatten().tolist(), name
    assert WHOLE.clamp(max=-1).tolist() == [1, 2, 3]


def test_floats_are_refused_beyond_the_largest_but_infinity_is_kept():
    for write in (
        lambda v: HALF.clone().fill_(v),
        lambda v: HALF.masked_fill(MASK, v),
        lambda v: HALF.index_fill(0, FIRST, v),
        lambda v: tenon.full((2,), v, dtype=tenon.float16),
    ):
        with pytest.raises(DTypeError, match=r"value 70000.0 cannot be converted to type float16"):
            write(70000.0)
        assert write(math.inf)[0] == math.inf
    assert assigned(HALF, 0, 70000.0)[0] == math.inf  # PyTorch's assignment casts


def test_lists_of_floats_that_are_no_integers_of_the_dtype_are_refused():
    for value in (math.nan, math.inf, 300.0, -0.5):
        with pytest.raises(DTypeError, match="cannot be converted to type uint8 without overflow"):
            tenon.tensor([1, value], dtype=tenon.uint8)
    with pytest.raises(TypeError, match="complex"):
        tenon.tensor([1j], dtype=tenon.int64)

    assert tenon.tensor([2.9, 255.0], dtype=tenon.uint8).tolist() == [2, 255]


def test_index_add_and_index_copy_need_one_dtype():
    source = tenon.tensor([300])
    for name in ("index_add", "index_add_", "index_copy", "index_copy_"):
        with pytest.raises(
            DTypeError, match=r"self \(Byte\) and source \(Long\) must have the same scalar type"
        ):
            getattr(WHOLE.clone(), name)(0, FIRST, source)
    with pytest.raises(DTypeError, match="alpha must not be a floating point number"):
        WHOLE.index_add(0, FIRST, WHOLE[:1], alpha=1.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda z: tenon.lgamma(z),
        lambda z: tenon.digamma(z),
        lambda z: tenon.polygamma(1, z),
        lambda z: tenon.mvlgamma(z, 1),
        lambda z: tenon.igamma(z, z),
        lambda z: tenon.igammac(z.real, z),
        lambda z: tenon.special.zeta(z, z),
        lambda z: tenon.histc(z),
        lambda z: tenon.hash_tensor(z),
        lambda z: F.fractional_max_pool2d(z.expand(1, 1, 6, 6), 2, output_size=(3, 3)),
        lambda z: F.grid_sample(z.expand(1, 1, 6, 6), z.expand(1, 2, 2, 2), align_corners=False),
        lambda z: tenon.special.legendre_polynomial_p(z.real, z),
    ],
)
def test_real_functions_do_not_drop_imaginary_parts(call):
    with pytest.raises(UnsupportedDTypeError):
        call(tenon.tensor([1.5 + 2j]))


def test_labels_of_ctc_are_integers():
    for dtype in (tenon.float32, tenon.complex64, tenon.bool):
        with pytest.raises(DTypeError, match="targets must be integers"):
            F.ctc_loss(tenon.zeros(5, 1, 4), tenon.ones(1, 2).to(dtype), tenon.tensor([5]), tenon.tensor([2]))


def test_operations_without_a_boolean_result_refuse_booleans():
    for name in ("remainder", "fmod", "floor_divide", "bitwise_left_shift", "bitwise_right_shift"):
        with pytest.raises(UnsupportedDTypeError, match="not implemented for 'Bool'"):
            getattr(tenon, name)(MASK, MASK)
    with pytest.raises(UnsupportedDTypeError, match="not implemented for 'Bool'"):
        tenon.round(MASK)
    with pytest.raises(DTypeError, match="renorm: Expected a floating point or complex tensor"):
        tenon.ones(2, 2, dtype=tenon.int64).renorm(2, 0, 1.0)


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
def test_a_compiled_division_of_integers_by_zero_is_an_error(name):
    def into(x, y):
        result = tenon.zeros(2, 3, dtype=tenon.int64)
        getattr(tenon, name)(x, y, out=result)
        return result

    x, y, zero = tenon.tensor([[4], [7]]), tenon.tensor([2, 3, 5]), tenon.tensor([2, 0, 5])
    compiled = tenon.compile(into)
    for _ in range(4):
        assert compiled(x, y).tolist() == into(x, y).tolist()

    assert compiled.programs
    with pytest.raises(DivisionByZeroError):
        compiled(x, zero)


def test_a_compiled_logaddexp_of_complex_numbers_is_the_eager_one():
    def into(x, y):
        result = tenon.zeros(2, dtype=tenon.complex64)
        tenon.logaddexp(x, y, out=result)
        return result

    compiled, x, y = tenon.compile(into), tenon.tensor([1 + 2j, 3 - 1j]), tenon.tensor([2 - 1j, 0.5 + 2j])
    for _ in range(4):
        assert tenon.allclose(compiled(x, y), into(x, y))
    assert compiled.programs


def test_a_function_whose_gradient_is_not_defined_runs_eagerly_when_compiled():
    compiled = tenon.compile(tenon.igamma)
    order = tenon.tensor([2.0], requires_grad=True)

    with pytest.warns(
        tenon.errors.TenonWarning, match="derivative with respect to the order is not implemented"
    ):
        for _ in range(4):
            assert compiled(order, tenon.tensor([1.5])).item() == pytest.approx(0.4421746)


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        ("uint8", -1, 255),
        ("uint8", -1.5, 255),
        ("int8", 300, 44),
        ("int16", 1e5, -31072),
        ("int64", math.nan, -(2**63)),
        ("int32", 2 + 1j, 2),
        ("float32", 2 + 1j, 2.0),
        ("bool", 1j, True),
        ("float64", 0.1, 0.1),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_copy_converts_numbers_as_tensors(
    dtype: str, number: complex, expected: float, compiled: bool
) -> None:
    def copied(x: tenon.Tensor) -> tuple[tenon.Tensor, tenon.Tensor]:
        return x.clone().copy_(number), x.clone().copy_(tenon.tensor(number, dtype=WIDEST[type(number)]))

    function = tenon.compile(copied) if compiled else copied

    for _ in range(4):
        of_number, of_tensor = function(tenon.zeros(2, dtype=getattr(tenon, dtype)))

        assert of_number.tolist() == of_tensor.tolist() == [expected] * 2


@pytest.mark.parametrize(
    "fill",
    [
        lambda: tenon.full((2,), None),
        lambda: tenon.full_like(WHOLE, None),
        lambda: WHOLE.new_full((2,), None),
        lambda: tenon.scalar_tensor(None),
    ],
)
def test_none_fills_nothing_which_would_show_what_was_in_memory_before(fill):
    with pytest.raises(TypeError, match="must be Number, not NoneType"):
        fill()

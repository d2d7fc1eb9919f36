"""Numbers at the limits of dtypes."""

import pytest

import tenon

torch = pytest.importorskip("torch")


@pytest.mark.oracle
@pytest.mark.parametrize(
    "compute",
    [lambda x: x * -3, lambda x: -1 - x, lambda x: x + 300, lambda x: x.add(x, alpha=-3), lambda x: 256 + x],
)
def test_numbers_that_an_integer_dtype_cannot_hold_wrap(compute):
    ours, theirs = (compute(library.tensor([1, 200], dtype=library.uint8)) for library in (tenon, torch))

    assert ours.tolist() == theirs.tolist() and str(ours.dtype) == str(theirs.dtype)


@pytest.mark.oracle
def test_powers_in_a_norm_of_narrow_numbers_do_not_overflow():
    ours, theirs = (
        library.linalg.vector_norm(library.tensor([8.5, 3.0], dtype=library.float16), 6)
        for library in (tenon, torch)
    )

    assert ours.item() == theirs.item() and ours.dtype == tenon.float16


def test_integers_to_negative_powers_are_whole_parts_of_fractions():
    base = tenon.tensor([2, 1, -1, -1, 0, 3])

    made = base ** tenon.tensor([-1, -5, -3, -4, 2, 2])
    base **= tenon.tensor([-1, -5, -3, -4, 2, 2])

    assert made.tolist() == base.tolist() == [0, 1, -1, 1, 0, 9]


@pytest.mark.oracle
def test_float_power_in_place_needs_a_tensor_of_float64():
    for library in (tenon, torch):
        with pytest.raises(RuntimeError, match="requires dtype"):
            library.ones(3).float_power_(2)
        assert library.full((1,), 3.0, dtype=library.float64).float_power_(2).item() == 9


@pytest.mark.oracle
@pytest.mark.parametrize("function", ["maximum", "lt", "clamp", "amax", "argmax", "xlogy", "max"])
def test_complex_numbers_have_no_order(function):
    for library in (tenon, torch):
        x = library.tensor([1 + 2j, 3j])
        arguments = {"clamp": (0,), "amax": (), "argmax": (), "max": ()}.get(function, (x,))
        with pytest.raises(RuntimeError):
            getattr(x, function)(*arguments)


def test_integers_divide_exactly_at_their_ends_and_never_by_zero():
    x, y = (tenon.tensor(v, dtype=tenon.int8) for v in ([-128, -128, 127, -7], [-1, 3, -2, 2]))
    assert tenon.div(x, y, rounding_mode="trunc").tolist() == [-128, -42, -63, -3]
    for function in (tenon.fmod, tenon.remainder, tenon.floor_divide):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            function(x, 0)


def test_bounds_of_hardshrink_are_numbers_of_the_tensors_dtype():
    for dtype in (tenon.bfloat16, tenon.float16, tenon.float32):
        x = tenon.tensor([0.3, -0.3, 0.5], dtype=dtype)
        assert tenon.nn.functional.hardshrink(x, 0.3).tolist() == [0, 0, 0.5]


def test_functions_without_an_order_or_of_two_dtypes_say_so():
    x, z = tenon.ones(1), tenon.ones(1, dtype=tenon.complex64)
    for function in (tenon.max, tenon.min, tenon.maximum, tenon.fmin):
        with pytest.raises(RuntimeError, match="not implemented for"):
            function(z, x)
    for values, message in ((z, "complex tensors"), (x.long(), "tensors with different dtypes")):
        with pytest.raises(RuntimeError, match=f"heaviside is not yet implemented for {message}"):
            tenon.heaviside(x, values)
    for name in ("isposinf", "isneginf", "signbit"):
        with pytest.raises(RuntimeError, match=f"{name} does not support non-boolean outputs"):
            getattr(tenon, name)(x, out=tenon.empty(1))

"""Numbers at the edge of what a dtype holds."""

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

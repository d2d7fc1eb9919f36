"""Shapes, joins and indices with every dtype; values, options and refusals: tests/parity/catalogue."""

import pytest

import tenon

pytestmark = [pytest.mark.oracle, pytest.mark.together]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize(
    "name", ["reshape", "permute", "cat", "stack", "flip", "index_select", "tril", "diagonal", "roll"]
)
def test_every_dtype_moves_as_in_torch(compare, name, dtype):
    more = {
        "reshape": [(4, 3)],
        "permute": [(1, 0)],
        "flip": [(0,)],
        "index_select": [1, "k:2<4"],
        "roll": [1],
    }
    kind = "c:3,4" if dtype == "complex64" else "f:3,4"
    first = [[kind, kind]] if name in ("cat", "stack") else [kind]
    compare(name, (*first, *more.get(name, [])), dtype=dtype)


def test_ravel_is_contiguous_and_a_view_where_the_input_is():
    spread, close = tenon.arange(6)[::2], tenon.zeros(2, 3)

    assert spread.ravel().is_contiguous() and spread.ravel().tolist() == [0, 2, 4]
    assert close.ravel()._base is close and tenon.ravel(close.t())._base is not close


def test_pairs_of_no_complex_numbers_are_a_view_too():
    x = tenon.zeros(3, 0, dtype=tenon.complex64)
    pairs = tenon.view_as_real(x)
    assert pairs.shape == (3, 0, 2) and pairs.dtype == tenon.float32 and pairs._base is x

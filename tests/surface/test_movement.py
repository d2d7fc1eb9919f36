"""Shapes, joins and indices with every dtype; values, options and refusals: tests/parity/catalogue."""

import pytest

pytestmark = pytest.mark.oracle


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

"""Reductions with every dtype; values, axes and options: tests/parity/catalogue."""

import pytest

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "cumsum", "max", "min", "all", "any", "argmax"])
def test_reductions_choose_torchs_dtype(compare, name, dtype):
    args = ("n:6", 0) if name == "cumsum" else ("n:6",)
    compare(name, args, dtype=dtype, grad=False, refusals=False)


def test_mode_is_the_most_frequent_value_and_the_smallest_of_several(compare):
    import tenon

    values = tenon.tensor([[3, 1, 3, 1, 2], [5, 4, 4, 0, 5]]).mode(1)

    assert values.values.tolist() == [1, 4]
    assert values.indices.tolist() == [3, 2]

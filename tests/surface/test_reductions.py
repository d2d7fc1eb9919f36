"""Reductions with every dtype; values, axes and options: tests/parity/catalogue."""

import pytest

import tenon

pytestmark = [pytest.mark.oracle, pytest.mark.together]


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


@pytest.mark.parametrize("copies", (1, 300))  # the second is sorted by whole numbers
def test_nan_is_the_largest_of_16_bit_floats(copies):
    nan, inf = float("nan"), float("inf")
    wide = tenon.tensor([nan, inf, 64.0, 0.0, -64.0, -inf] * copies)
    for dtype in (tenon.bfloat16, tenon.float16):
        x = wide.to(dtype)
        for order in (
            lambda t: t.sort(stable=True), lambda t: t.sort(descending=True), lambda t: t.topk(4),
            lambda t: t.topk(4, largest=False), lambda t: t.kthvalue(2), lambda t: t.mode(),
            lambda t: tenon.unique(t[:6], return_inverse=True),
        ):  # fmt: skip
            (values, places), (expected, expected_places) = order(x), order(wide)
            assert values.dtype == dtype and tenon.equal(places, expected_places)
            assert tenon.equal(values.float().nan_to_num(7), expected.nan_to_num(7))

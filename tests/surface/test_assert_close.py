"""``assert_close``: the same results and messages as torch.testing's."""

import re

import numpy as np
import pytest

import tenon
from tenon.testing import assert_close

pytestmark = pytest.mark.together

NAN, INF = float("nan"), float("inf")


def tensors(lib, value, dtype=None):
    """``value`` with its ``("t", data, dtype)`` tuples made tensors of ``lib``."""
    if isinstance(value, tuple) and value and value[0] == "t":
        return lib.tensor(value[1], dtype=getattr(lib, value[2]) if len(value) > 2 else None)
    if isinstance(value, dict):
        return {k: tensors(lib, v) for k, v in value.items()}
    if isinstance(value, list):
        return [tensors(lib, v) for v in value]
    return value


CASES = [
    (("t", [1.0, 2.0]), ("t", [1.0, 2.0]), {}),
    (("t", [1.0, 2.0]), ("t", [1.0, 2.5]), {}),
    (("t", [1.0, 4.0, 5.0]), ("t", [1.0, 2.0, 3.0]), {}),
    (("t", [1.0, 1.000001]), ("t", [1.0, 1.0]), {}),
    (("t", [1.0, 1.001]), ("t", [1.0, 1.0]), {"rtol": 0.01, "atol": 0.0}),
    (("t", [[1.0, 1.1], [0.0, 3.0]], "float64"), ("t", [[1.0, 1.0], [0.5, 3.0]], "float64"), {}),
    (("t", [1.0, 2.0], "float16"), ("t", [1.0, 2.01], "float16"), {}),
    (("t", [1.0, 2.0], "bfloat16"), ("t", [1.0, 2.5], "bfloat16"), {}),
    (("t", [1, 2]), ("t", [1, 2]), {}),
    (("t", [1, 5, 9]), ("t", [1, 2, 4]), {}),
    (("t", [0, 1]), ("t", [3, 0]), {"rtol": 0, "atol": 0}),
    (("t", [True, False]), ("t", [True, True]), {}),
    (("t", [1.0, 2.0]), ("t", [0.0, 2.0]), {}),
    (("t", 1.0), ("t", 2.0), {}),
    (("t", 1.0), ("t", 0.0), {}),
    (("t", [NAN]), ("t", [NAN]), {}),
    (("t", [NAN, 1.0]), ("t", [NAN, 1.0]), {"equal_nan": True}),
    (("t", [INF, -INF]), ("t", [INF, INF]), {}),
    (("t", [INF]), ("t", [1.0]), {}),
    (("t", [1.0, 2.0]), ("t", [[1.0, 2.0]]), {}),
    (("t", [1.0]), ("t", [1.0], "float64"), {}),
    (("t", [1.0]), ("t", [1.0], "float64"), {"check_dtype": False}),
    (("t", [1]), ("t", [1.5]), {"check_dtype": False}),
    (("t", [1 + 2j]), ("t", [1 + 2.5j]), {}),
    (("t", []), ("t", []), {}),
    (1.0, 1.0 + 1e-9, {}),
    (1.0, 2.0, {}),
    (1, 2, {}),
    (1, 1.0, {}),
    (1, 1.0, {"check_dtype": False}),
    (NAN, NAN, {}),
    (NAN, NAN, {"equal_nan": True}),
    (1j, 2j, {}),
    (True, True, {}),
    (True, False, {}),
    (None, None, {}),
    (None, 1, {}),
    ("a", "a", {}),
    (("t", [1.0]), 1.0, {}),
    ([("t", [1.0]), 2.0], [("t", [1.0]), 2.0], {}),
    ([("t", [1.0]), 2.0], [("t", [1.0]), 3.0], {}),
    ([1, 2], [1, 2, 3], {}),
    ({"a": ("t", [1.0]), "b": [1, 2]}, {"a": ("t", [1.0]), "b": [1, 3]}, {}),
    ({"a": 1, "c": 2}, {"a": 1, "b": 2}, {}),
    (1.0, 2.0, {"rtol": 0.1}),
    (("t", [1.0]), ("t", [2.0]), {"msg": "changed"}),
    ([1.0], [2.0], {"msg": lambda text: f"<{text}>"}),
    (np.array([1.0]), np.array([1.5]), {}),
    (np.float64(1.0), np.float64(1.5), {}),
]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("actual", "expected", "options"), CASES, ids=lambda v: re.sub(" at 0x[0-9a-f]+", "", str(v))
)
def test_the_verdict_and_its_words_are_torchs(actual, expected, options):
    torch = pytest.importorskip("torch")
    verdicts = []

    for lib, check in ((torch, torch.testing.assert_close), (tenon, assert_close)):
        try:
            verdicts.append(check(tensors(lib, actual), tensors(lib, expected), **options))
        except Exception as error:
            text = str(error).replace("<class 'torch.Tensor'>", "<class 'tenon.tensors.tensor.Tensor'>")
            verdicts.append((isinstance(error, AssertionError), text))

    assert verdicts[1] == verdicts[0]


def test_a_parameter_compares_with_a_tensor_unless_subclasses_are_forbidden():
    x = tenon.ones(2)

    assert_close(tenon.nn.Parameter(x), x)
    with pytest.raises(TypeError, match="No comparison pair was able to handle"):
        assert_close(tenon.nn.Parameter(x), x, allow_subclasses=False)


def test_strides_are_compared_when_asked():
    x = tenon.arange(4.0).reshape(2, 2)

    assert_close(x.t().contiguous().t(), x)
    with pytest.raises(AssertionError, match=r"attribute 'stride\(\)' do not match: \(1, 2\) != \(2, 1\)"):
        assert_close(x.t().contiguous().t(), x, check_stride=True)


def test_meta_tensors_compare_by_their_attributes():
    assert_close(tenon.empty(2, device="meta"), tenon.empty(2, device="meta"))
    with pytest.raises(AssertionError, match="attribute 'shape'"):
        assert_close(tenon.empty(2, device="meta"), tenon.empty(3, device="meta"))

"""Every function of the catalogue is torch's: values, gradients, dtype, shape and refusals."""

import warnings

import pytest
from parity.catalogue import read
from parity.functions import as_method, compare, emptied, scalar

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]
CASES = [case for case in read() if case.kind == "function"]


#: The cases of each name by default; what varies dtype, layout and corner further is compared in CI.
BY_DEFAULT = 2
#: Each dtype and whether the arguments are strided: each dtype and each layout once by default.
LAYOUTS = [
    (("float64", False), ("float32", True)),
    pytest.param((("float64", True), ("float32", False)), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    "case",
    [case if case.number < BY_DEFAULT else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
    ids=str,
)
@pytest.mark.parametrize("layouts", LAYOUTS)
def test_a_function_is_torchs(case, layouts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype, strided in layouts:
            compare(torch, case.name, case.content, dtype, strided=strided)
        method = as_method(case.name, case.content, torch.Tensor)
        if method:
            compare(torch, method, case.content, "float64")


FIRST = [case for case in CASES if case.number == 0]


@pytest.mark.parametrize("shrink", [emptied, scalar])
@pytest.mark.parametrize("case", FIRST, ids=str)
def test_a_function_of_empty_and_0d_tensors_is_torchs(case, shrink):
    content = shrink(case.content)
    if content is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare(torch, case.name, content, "float64", given=False)

"""Every layer of the catalogue is torch's: weights, text, outputs, gradients, buffers."""

import warnings

import pytest
from parity.catalogue import read
from parity.layers import compare, compare_initial

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]
CASES = [case for case in read() if case.kind == "layer"]
#: The dtype, whether in training, and whether the arguments are strided.
WAYS = [
    (("float64", True, True), ("float32", False, False)),
    pytest.param(
        (("float64", True, False), ("float64", False, False), ("float32", True, False)),
        marks=pytest.mark.slow,
    ),
]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.draws
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layer_starts_as_torchs(case):
    compare_initial(torch, case.name, case.content)


@pytest.mark.draws
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("ways", WAYS)
def test_a_layer_computes_as_torchs(case, ways):
    for dtype, training, strided in ways:
        compare(torch, case.name, case.content, dtype, training, strided=strided)

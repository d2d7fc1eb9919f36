"""Every layer of the catalogue is torch's: weights, text, outputs, gradients, buffers."""

import warnings

import pytest
from parity.catalogue import read
from parity.layers import compare, compare_initial

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]
CASES = [case for case in read() if case.kind == "layer"]


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
def test_a_layer_computes_as_torchs(case):
    for training in (True, False):
        for dtype in ("float64", "float32"):
            compare(torch, case.name, case.content, dtype, training)
    compare(torch, case.name, case.content, "float64", True, strided=True)

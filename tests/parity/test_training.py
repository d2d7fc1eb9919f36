"""Every optimizer, scheduler and initialiser of the catalogue is torch's."""

import warnings

import pytest
from parity.catalogue import read
from parity.training import compare_initialiser, compare_optimizer, compare_scheduler

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def of(kind):
    return [case for case in read() if case.kind == kind]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", of("optimizer"), ids=str)
def test_an_optimizer_steps_as_torchs(case, dtype):
    compare_optimizer(torch, case.name, case.content or {}, dtype)


@pytest.mark.parametrize("case", of("scheduler"), ids=str)
def test_a_scheduler_goes_as_torchs(case):
    compare_scheduler(torch, case.name, case.content)


@pytest.mark.draws
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", of("initialiser"), ids=str)
def test_an_initialiser_draws_as_torchs(case, dtype):
    compare_initialiser(torch, case.name, case.content, dtype)

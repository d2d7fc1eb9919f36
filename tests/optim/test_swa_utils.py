"""Weight averaging against torch.optim.swa_utils."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.optim import swa_utils

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def model_of(lib):
    lib.manual_seed(0)
    return lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2))


def averaged(lib, make, **options):
    model = model_of(lib)
    average = lib.optim.swa_utils.AveragedModel(model, **make(lib), **options)
    rng = np.random.default_rng(0)
    for _ in range(4):
        with lib.no_grad():
            for p in model.parameters():
                p.add_(lib.tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32)))
        model(lib.tensor(rng.standard_normal((5, 3)).astype(np.float32)))
        average.update_parameters(model)
    return average


WAYS = {
    "mean": lambda lib: {},
    "ema": lambda lib: {"multi_avg_fn": lib.optim.swa_utils.get_ema_multi_avg_fn(0.9)},
    "swa": lambda lib: {"multi_avg_fn": lib.optim.swa_utils.get_swa_multi_avg_fn()},
    "ema one by one": lambda lib: {"avg_fn": lib.optim.swa_utils.get_ema_avg_fn(0.5)},
    "swa one by one": lambda lib: {"avg_fn": lib.optim.swa_utils.get_swa_avg_fn()},
    "own": lambda lib: {"avg_fn": lambda mean, new, count: mean + 0.5 * (new - mean) * count},
}


#: With buffers too, but for the one that torch cannot average integers by.
CASES = [(way, False) for way in WAYS] + [(way, True) for way in WAYS if way != "swa"]


@pytest.mark.parametrize(("way", "buffers"), CASES)
def test_averages_are_torchs(way, buffers):
    ours, theirs = (averaged(lib, WAYS[way], use_buffers=buffers) for lib in (tenon, torch))

    mine, yours = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(yours)
    for name in mine:
        np.testing.assert_allclose(
            mine[name].numpy(), yours[name].numpy(), rtol=1e-5, atol=1e-6, err_msg=name
        )


def test_an_average_is_saved_loaded_and_goes_on():
    first = averaged(tenon, WAYS["mean"])
    second = swa_utils.AveragedModel(model_of(tenon))

    second.load_state_dict(first.state_dict())
    for average in (first, second):
        average.update_parameters(model_of(tenon))

    assert second.n_averaged.item() == 5
    for p, q in zip(first.parameters(), second.parameters(), strict=True):
        assert p.tolist() == q.tolist()


def test_the_model_trains_on_untouched():
    model = model_of(tenon)
    average = swa_utils.AveragedModel(model)
    average.update_parameters(model)

    model(tenon.randn(4, 3)).sum().backward()

    assert all(p.grad is None for p in average.parameters())
    assert copy.deepcopy(average)(tenon.randn(4, 3)).shape == (4, 2)


def test_another_model_is_refused_and_nothing_changes():
    average = swa_utils.AveragedModel(nn.Linear(2, 2))
    before = average.module.weight.tolist()

    with pytest.raises(RuntimeError, match=r"other parameters: shapes \[\(3, 2\), \(3,\)\]"):
        average.update_parameters(nn.Linear(2, 3))

    assert average.module.weight.tolist() == before and average.n_averaged.item() == 0
    with pytest.raises(AssertionError, match=r"Only one of"):
        swa_utils.AveragedModel(nn.Linear(2, 2), **WAYS["swa"](tenon), **WAYS["own"](tenon))
    with pytest.raises(ValueError, match=r"Invalid decay value 1\.5"):
        swa_utils.get_ema_avg_fn(1.5)


def test_statistics_of_batch_norms_are_estimated_anew():
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((6, 3)).astype(np.float32) for _ in range(3)]
    found = []
    for lib in (tenon, torch):
        model = model_of(lib)
        model.eval()
        lib.optim.swa_utils.update_bn([(lib.tensor(b), 0) for b in batches], model)
        assert not model.training and model[1].momentum == 0.1
        found.append(model.state_dict())

    for name in found[0]:
        np.testing.assert_allclose(found[0][name].numpy(), found[1][name].numpy(), rtol=1e-5, err_msg=name)


def test_momenta_come_back_when_the_loader_fails():
    model = model_of(tenon).eval()

    def loader():
        yield tenon.randn(4, 3)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk"):
        swa_utils.update_bn(loader(), model)

    assert model[1].momentum == 0.1 and not model.training


@pytest.mark.parametrize(
    "options",
    [{}, {"anneal_epochs": 5, "anneal_strategy": "linear"}, {"anneal_epochs": 0}, {"swa_lr": [0.05, 0.2]}],
    ids=str,
)
def test_the_rate_is_annealed_as_in_torch(options):
    rates = []
    for lib in (tenon, torch):
        ps = [lib.nn.Parameter(lib.ones(1)) for _ in range(2)]
        optimizer = lib.optim.SGD([{"params": ps[:1]}, {"params": ps[1:], "lr": 0.5}], lr=0.1)
        schedule = lib.optim.swa_utils.SWALR(optimizer, **({"swa_lr": 0.05} | options))
        rates.append([])
        for _ in range(14):
            optimizer.step()
            schedule.step()
            rates[-1].append(schedule.get_last_lr())

    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-12)


def test_bad_annealing_is_refused():
    optimizer = tenon.optim.SGD([nn.Parameter(tenon.ones(1))])
    for options in ({"anneal_strategy": "sine"}, {"anneal_epochs": -1}, {"anneal_epochs": 1.5}):
        with pytest.raises(ValueError, match="anneal"):
            swa_utils.SWALR(optimizer, 0.1, **options)
    assert "swa_lr" not in optimizer.param_groups[0]

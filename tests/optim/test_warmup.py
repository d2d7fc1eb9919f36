"""Warm-up and cosine in one line."""

import warnings

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.optim import lr_scheduler


def rates(make, steps=14):
    p = nn.Parameter(tenon.ones(1))
    optimizer = tenon.optim.SGD(
        [{"params": [p]}, {"params": [nn.Parameter(tenon.ones(1))], "lr": 0.5}], lr=2.0
    )
    schedule = make(optimizer)
    found = []
    for _ in range(steps):
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    return found


def test_it_is_linear_then_cosine():
    one = rates(lambda o: lr_scheduler.WarmupCosineLR(o, warmup_steps=4, total_steps=12, min_lr=0.1))

    def two(optimizer):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=3)
            second = lr_scheduler.CosineAnnealingLR(optimizer, T_max=8, eta_min=0.1)
            return lr_scheduler.SequentialLR(optimizer, [first, second], milestones=[4])

    np.testing.assert_allclose(one[:13], rates(two, 13), rtol=1e-12)
    assert one[13] == pytest.approx([0.1, 0.1])


def test_without_warm_up_it_starts_at_the_rate():
    assert rates(lambda o: lr_scheduler.WarmupCosineLR(o, 0, 10), 1) == [[2.0, 0.5]]


def test_it_goes_on_from_its_state():
    whole = rates(lambda o: lr_scheduler.WarmupCosineLR(o, 3, 10))

    def resumed(optimizer):
        first = lr_scheduler.WarmupCosineLR(optimizer, 3, 10)
        for _ in range(6):
            optimizer.step()
            first.step()
        again = lr_scheduler.WarmupCosineLR(optimizer, 1, 2)
        again.load_state_dict(first.state_dict())
        for group, rate in zip(optimizer.param_groups, first.get_last_lr(), strict=True):
            group["lr"] = rate
        return again

    assert rates(resumed, 8) == whole[6:]


@pytest.mark.parametrize("bad", [(-1, 5), (5, 5), (6, 5)])
def test_steps_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError, match="warmup_steps must be from 0"):
        rates(lambda o: lr_scheduler.WarmupCosineLR(o, *bad))

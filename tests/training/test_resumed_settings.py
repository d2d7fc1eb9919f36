"""``--resume RUN --set ...``: new settings of the optimizer, the schedule and the length of the run count."""

import json
from types import SimpleNamespace

import pytest

import tenon
from tenon.errors import ConfigError
from tenon.training.config import RunConfig
from tenon.training.recipe import build_optimizer, build_scheduler
from tenon.training.resumed_settings import NewSettings

OLD = {
    "model": "m:Net",
    "data": "m:load",
    "epochs": 2,
    "batch_size": 10,
    "optimizer": {"name": "AdamW", "lr": 0.5, "weight_decay": 0.25},
    "scheduler": {"name": "OneCycleLR", "max_lr": 1.0},
}
SAMPLES = 40


def opened(settings):
    config = RunConfig.model_validate(settings)
    model = tenon.nn.Linear(2, 2)
    optimizer = build_optimizer(config, model)
    scheduler = build_scheduler(config, optimizer, SAMPLES // config.batch_size * config.epochs)
    data = SimpleNamespace(train=range(SAMPLES))
    return SimpleNamespace(config=config, model=model, optimizer=optimizer, scheduler=scheduler, data=data)


def resumed(changes, steps=8):
    """A session of ``OLD`` with ``changes``, restored after ``steps`` of ``OLD``."""
    before, after = opened(OLD), opened({**OLD, **changes})
    for _ in range(steps):
        before.model(tenon.ones(1, 2)).sum().backward()
        before.optimizer.step()
        before.scheduler.step()
    saved = {"config": json.dumps(OLD), "progress": {"step": steps, "epoch": steps // 4}}
    settings = NewSettings(after, saved)
    after.optimizer.load_state_dict(before.optimizer.state_dict())
    settings.apply()
    after.scheduler.load_state_dict(settings.schedule(before.scheduler.state_dict()))
    return before, after


def rate(session):
    return session.optimizer.param_groups[0]["lr"]


def test_nothing_changes_without_new_settings():
    before, after = resumed({"loss": "mse_loss"})

    assert after.optimizer.param_groups[0] == {
        **before.optimizer.param_groups[0],
        "params": list(after.model.parameters()),
        "param_names": ["weight", "bias"],
    }
    assert after.scheduler.state_dict() == before.scheduler.state_dict()


def test_a_longer_run_has_a_longer_schedule():
    _, after = resumed({"epochs": 4})
    whole = opened({**OLD, "epochs": 4})
    for _ in range(9):
        whole.optimizer.step()
        whole.scheduler.step()
    after.optimizer.step()
    after.scheduler.step()

    assert after.scheduler.total_steps == 16 and after.scheduler.last_epoch == 9
    assert rate(after) == pytest.approx(rate(whole))


def test_options_of_the_optimizer_count():
    before, after = resumed({"optimizer": {"name": "AdamW", "lr": 0.5, "weight_decay": 0.125}})

    assert after.optimizer.param_groups[0]["weight_decay"] == 0.125
    assert rate(after) == rate(before) and len(after.optimizer.state) == 2


def test_a_new_rate_is_scheduled_from_where_the_schedule_is():
    old = {**OLD, "scheduler": {"name": "StepLR", "step_size": 3, "gamma": 0.5}}
    before = opened(old)
    after = opened({**old, "optimizer": {"name": "AdamW", "lr": 0.25, "weight_decay": 0.25}})
    for _ in range(4):
        before.optimizer.step()
        before.scheduler.step()
    settings = NewSettings(after, {"config": json.dumps(old), "progress": {"step": 4, "epoch": 1}})
    after.optimizer.load_state_dict(before.optimizer.state_dict())
    settings.apply()
    after.scheduler.load_state_dict(settings.schedule(before.scheduler.state_dict()))

    assert rate(before) == 0.25 and rate(after) == 0.125
    for _ in range(2):
        after.optimizer.step()
        after.scheduler.step()
    assert rate(after) == 0.0625


def test_another_schedule_begins_where_the_run_is():
    _, after = resumed({"scheduler": {"name": "CosineAnnealingLR"}}, steps=5)

    assert after.scheduler.last_epoch == 5 and after.scheduler.T_max == 8


def test_another_optimizer_is_refused():
    with pytest.raises(ConfigError, match=r"'SGD': the run was trained by 'AdamW'.*Start a new run"):
        resumed({"optimizer": {"name": "SGD", "lr": 0.5}})


@pytest.mark.mpi
def test_a_run_with_a_schedule_of_its_length_can_be_extended(project):
    schedule = "--set", "scheduler.name=OneCycleLR", "--set", "scheduler.max_lr=0.05"
    first = project.train("my.toml", *schedule, "--set", "epochs=1")

    run = project.resume(first, "--set", "epochs=2")

    assert run.final["epoch"] == 2 and run.final["samples_seen"] == 180
    assert run.saved()["scheduler"]["total_steps"] == 10

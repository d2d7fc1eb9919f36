"""Hooks of epochs, evaluations and gradients in `tenon train`, sections of plugins, and early stopping through them."""

import json

import numpy as np
import pytest

PLUGIN = """
import json

from pydantic import Field
from tenon.extend import Section, hookimpl

calls = []


class Warmth(Section):
    degrees: float = Field(20.0, gt=0)
    scale: float = 1.0


@hookimpl
def tenon_sections():
    return {"warmth": "tenon_watching:Warmth"}


@hookimpl
def tenon_epoch_begin(session, epoch):
    calls.append(["epoch", epoch, session.step])


@hookimpl
def tenon_gradients_ready(session, step):
    norm = sum(float(p.grad.square().sum()) for p in session.model.parameters()) ** 0.5
    calls.append(["gradients", step, norm])
    for parameter in session.model.parameters():
        parameter.grad.mul_(session.section("warmth").scale)


@hookimpl
def tenon_step_end(session, step):
    calls.append(["step", step])
    if session.section("warmth").degrees == 25 and step == 6:
        session.stop("enough")


@hookimpl
def tenon_evaluation_begin(session):
    calls.append(["evaluation", session.model.training])


@hookimpl
def tenon_evaluation_end(session, metrics):
    metrics["warmth"] = session.section("warmth").degrees + session.epoch


@hookimpl
def tenon_epoch_end(session, epoch, metrics):
    calls.append(["end", epoch, metrics["test_warmth"], len(list(session.folder.glob("checkpoints/*")))])


@hookimpl
def tenon_session_finish(session):
    (session.folder / f"calls-{session.rank}.json").write_text(json.dumps(calls))
"""
SECTION = ("--set", "plugins.warmth.degrees=30.0")


@pytest.fixture
def watched(project):
    project.install("watching", PLUGIN)
    return project


def calls_of(run, rank=0):
    return json.loads((run.folder / f"calls-{rank}.json").read_text())


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_hooks_of_a_run_come_in_order_on_all_ranks(watched, ranks):
    run = watched.train("my.toml", *SECTION, "--set", "epochs=2", ranks=ranks)

    assert run.final["test_warmth"] == 32.0, run.err
    made = calls_of(run)
    assert [name for name, *_ in made] == 2 * ["epoch", *5 * ["gradients", "step"], "evaluation", "end"]
    assert [each[1:] for each in made if each[0] == "epoch"] == [[1, 0], [2, 5]]
    assert [each[1:] for each in made if each[0] == "end"] == [[1, 31.0, 0], [2, 32.0, 1]]
    assert [each[1] for each in made if each[0] == "gradients"] == list(range(10))
    assert calls_of(run, ranks - 1) == made  # the gradients of all ranks are the same ones
    assert json.loads((run.folder / "config.json").read_text())["plugins"] == {
        "warmth": {"degrees": 30.0, "scale": 1.0}
    }


@pytest.mark.slow
def test_changed_gradients_are_those_that_the_optimizer_gets(watched):
    settings = (*SECTION, "--set", "optimizer.name=SGD", "--set", "epochs=1")
    plain = watched.train("my.toml", *settings, "--set", "optimizer.lr=0.01")
    half = ("--set", "optimizer.lr=0.02", "--set", "plugins.warmth.scale=0.5")
    halved = watched.train("my.toml", *settings, *half)
    np.testing.assert_allclose(halved.weights(), plain.weights(), rtol=1e-6)


@pytest.mark.slow
def test_gradients_are_unscaled_before_the_hook_and_clipped_after_it(watched):
    settings = (*SECTION, "--set", "epochs=1", "--set", "optimizer.name=SGD", "--set", "clip_grad_norm=0.01")
    run = watched.train("my.toml", *settings, "--set", "autocast=float16")
    norms = [each[2] for each in calls_of(run) if each[0] == "gradients"]
    assert all(0.05 < norm < 5 for norm in norms)  # scaled ones are 65,536 times larger
    larger = watched.train("my.toml", *settings, "--set", "plugins.warmth.scale=3.0")
    smaller = watched.train("my.toml", *settings)
    np.testing.assert_allclose(larger.weights(), smaller.weights(), atol=1e-6)


@pytest.mark.slow
def test_an_epoch_that_a_resumed_run_goes_on_with_begins_again(watched):
    stopped = watched.train("my.toml", "--set", "plugins.warmth.degrees=25.0")
    assert stopped.metrics[-1]["stopped"] is True, stopped.err
    resumed = watched.resume(stopped, "--set", "plugins.warmth.degrees=40.0")
    assert resumed.final["test_warmth"] == 43.0
    assert calls_of(resumed)[0] == ["epoch", 2, 8]


@pytest.mark.slow
def test_metrics_that_are_no_numbers_are_refused(project):
    code = "from tenon.extend import hookimpl\n@hookimpl\ndef tenon_evaluation_end(metrics): metrics['f1'] = 'good'\n"
    project.install("wordy", code)
    run = project.train("my.toml")
    assert run.code != 0 and "metrics are numbers, and plugins have made {'loss': " in run.err


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("plugins.warmht.degrees=1.0", r"plugins.warmht: no configuration section 'warmht'. Did you mean"),
        ("plugins.early_stopping.patienc=1", "unknown key 'plugins.early_stopping.patienc'. Did you mean"),
        ("plugins.early_stopping.patience=0", "plugins.early_stopping.patience = 0: Input should be greater"),
        ("plugins.early_stopping=3", "plugins.early_stopping = 3: Input should be a valid dictionary"),
        ("plugins=3", "plugins = 3: Input should be a valid dictionary"),
    ],
)
def test_sections_that_are_wrong_are_refused(setting, message):
    from tenon.errors import ConfigError
    from tenon.plugins.manager import host
    from tenon.training import config
    from tenon.training.layers import read_override
    from tenon.training.sections import Section

    class Warmth(Section):
        degrees: float

    class Plugin:
        from tenon.extend import hookimpl

        @hookimpl
        def tenon_sections(self):
            return {"warmth": Warmth}

    plugin = Plugin()
    host().register(plugin, "warm")
    try:
        with pytest.raises(ConfigError) as caught:
            config.resolve([{"model": "a:b", "data": "a:c"}, read_override(setting)])
    finally:
        host().unregister(plugin)
    assert str(caught.value).startswith(message)


STOPPING = ("--set", "epochs=9", "--set", "plugins.early_stopping.patience=2")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_does_not_improve_stops_and_keeps_its_best_weights(project, ranks):
    import tenon

    run = project.train(
        "my.toml", *STOPPING, "--set", "plugins.early_stopping.min_delta=9.0", "--set", "optimizer.lr=0.01",
        ranks=ranks,
    )  # fmt: skip

    assert run.code == 0 and run.metrics[-1]["stopped"] is True, run.err
    evaluated = [line for line in run.metrics if "test_loss" in line]
    best = 0
    for number, line in enumerate(evaluated):
        if line["test_loss"] < evaluated[best]["test_loss"] - 9:
            best = number
    assert len(evaluated) == best + 3 < 9  # two epochs without improvement
    assert (
        f"test_loss has not improved for 2 epochs; the best was {evaluated[best]['test_loss']:.6g}" in run.out
    )
    kept = tenon.load(run.folder / "best.safetensors")
    again = project.train("my.toml", "--set", "optimizer.lr=0.01", "--set", f"epochs={best + 1}", ranks=ranks)
    np.testing.assert_array_equal(np.concatenate([v.numpy().ravel() for v in kept.values()]), again.weights())

    resumed = project.resume(run, ranks=ranks)  # it remembers, and stops after one more
    assert resumed.metrics[-1]["stopped"] is True
    assert "has not improved for 3 epochs" in resumed.out


@pytest.mark.slow
def test_a_target_that_is_reached_ends_the_run(project):
    run = project.train(
        "my.toml", "--set", "epochs=50", "--set", "plugins.early_stopping.metric=test_accuracy",
        "--set", "plugins.early_stopping.target=0.7", "--set", "plugins.early_stopping.patience=50",
        "--set", "plugins.early_stopping.keep_best=false",
    )  # fmt: skip
    assert run.metrics[-1]["stopped"] is True, run.err
    accuracies = [line["test_accuracy"] for line in run.metrics if "test_accuracy" in line]
    assert accuracies[-1] >= 0.7 > max(accuracies[:-1], default=0)
    assert "test_accuracy is 0." in run.out and not (run.folder / "best.safetensors").exists()


@pytest.mark.slow
def test_metrics_that_are_not_there_and_divided_models_are_refused(project):
    run = project.train("my.toml", "--set", "plugins.early_stopping.metric=test_loos")
    assert run.code != 0
    assert "plugins.early_stopping.metric = 'test_loos': the evaluation of this run has epoch, " in run.err
    divided = project.train("my.toml", *STOPPING, "--set", "parallel.shard=2", ranks=2)
    assert divided.code != 0 and "plugins.early_stopping.keep_best needs the whole model" in divided.err
    allowed = project.train(
        "my.toml", *STOPPING, "--set", "parallel.shard=2", "--set", "plugins.early_stopping.keep_best=false",
        "--set", "plugins.early_stopping.min_delta=9.0", ranks=2,
    )  # fmt: skip
    assert allowed.metrics[-1]["stopped"] is True, allowed.err


def test_nan_is_no_improvement_and_equal_values_are_none(tmp_path):
    from types import SimpleNamespace

    from tenon_early_stopping.progress import Progress
    from tenon_early_stopping.section import EarlyStopping

    reasons = []
    section = EarlyStopping(patience=2, keep_best=False)
    session = SimpleNamespace(section=lambda name: section, stop=reasons.append, is_main=True)
    progress = Progress()
    for epoch, value in enumerate((float("nan"), 0.5, 0.5), 1):
        progress.update(session, epoch, {"test_loss": value})
    assert progress.state() == {"best": 0.5, "best_epoch": 2, "without_improvement": 1} and not reasons
    again = Progress()
    again.restore(progress.state())
    again.update(session, 4, {"test_loss": float("nan")})
    assert reasons == ["test_loss has not improved for 2 epochs; the best was 0.5 after epoch 2"]

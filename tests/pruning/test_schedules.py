"""Masks that grow during training, in a custom loop and in ``tenon train``."""

import copy
import functools
import shutil
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.optim import ZeroRedundancyOptimizer
from tenon.distributed.processes.launch import launch
from tenon.errors import ConfigError, PruningError
from tenon.nn.parallel import DistributedDataParallel
from tenon.plugins.manager import host
from tenon.prune import Gradual, Lottery, OneShot, Pruner
from tenon.training import loop
from tenon.training.checkpoint import fetch
from tenon.training.command import resolve
from tenon.training.trust import Trust


def net():
    tenon.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2))


def zeros(model):
    return sum(int((m.weight == 0).sum()) for m in model if isinstance(m, nn.Linear))


def train(model, pruner, optimizer, steps):
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        model(tenon.randn(8, 4)).square().mean().backward()
        optimizer.step()
        pruner.step()
        seen.append(zeros(model))
    return seen


def test_one_shot_masks_once_and_training_goes_on():
    model = net()
    pruner = Pruner(model, 0.5, OneShot(2))
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

    assert train(model, pruner, optimizer, 4) == [0, 260, 260, 260]
    assert {id(p) for p in model.parameters()} == {id(p) for p in optimizer.param_groups[0]["params"]}


def test_gradual_masks_follow_the_cubic_and_end_at_the_amount():
    model = net()
    pruner = Pruner(model, 0.5, Gradual(end=6, begin=2, every=2))
    optimizer = tenon.optim.AdamW(model.parameters(), lr=0.01)

    seen = train(model, pruner, optimizer, 8)

    assert seen == [0, 0, 0, round(0.5 * (1 - 0.5**3) * 520), seen[3], 260, 260, 260]
    assert [Gradual(10).amount(s, 0.8) for s in (0, 10, 11)] == [0.0, 0.8, None]


def test_a_lottery_goes_back_to_early_weights_under_the_masks():
    model = net()
    pruner = Pruner(model, 0.75, Lottery(every=3, rounds=2, rewind=1))
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

    assert train(model, pruner, optimizer, 1) == [0]
    early = [m.weight.detach().clone() for m in model if isinstance(m, nn.Linear)]
    assert train(model, pruner, optimizer, 2) == [0, 260]
    for layer, weight in zip([m for m in model if isinstance(m, nn.Linear)], early, strict=True):
        kept = layer.weight != 0
        assert tenon.equal(layer.weight[kept], weight[kept])
    assert train(model, pruner, optimizer, 3)[-1] == 390


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("early", [0, 2])
def test_a_lottery_trains_what_is_left_as_from_the_early_step(kind, early):
    """Rounds of four steps; after the first, training is that of a network masked at the early step."""
    options = {"momentum": 0.9} if kind == "SGD" else {}
    rates, losses, draws = [], [], tenon.Generator()

    def trained(model, optimizer, scheduler, pruner, steps):
        draws.manual_seed(3)
        for step in range(steps):
            if pruner is not None and step == 4:
                draws.manual_seed(3)
                for _ in range(early):
                    tenon.randn(8, 4, generator=draws)
            loss = model(tenon.randn(8, 4, generator=draws)).sub(1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            if pruner is not None:
                pruner.step()
            elif step + 1 == early:
                masked_as(model)
            rates[-1].append(optimizer.param_groups[0]["lr"])
            losses[-1].append(loss.item())

    def masked_as(model):
        with tenon.no_grad():
            for layer, other in zip(model[::2], found[::2], strict=True):
                layer.weight_mask.copy_(other.weight_mask)

    found = net()
    pruner = Pruner(found, 0.5, Lottery(every=4, rewind=early))
    for model in (found, net()):
        rates.append([])
        losses.append([])
        if model is not found:
            tenon.prune.mask_weights(model, 0.0)
        optimizer = getattr(tenon.optim, kind)(model.parameters(), lr=0.05, **options)
        scheduler = tenon.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        if model is found:
            pruner.rewinds(optimizer, scheduler)
            trained(model, optimizer, scheduler, pruner, 7)
        else:
            if not early:
                masked_as(model)
            trained(model, optimizer, scheduler, None, early + 3)

    assert losses[0][4:] == losses[1][early:] and rates[0][4:] == rates[1][early:]
    assert zeros(found) == 260


@pytest.mark.parametrize("early", [0, 1])
def test_a_lottery_goes_back_with_a_sharded_optimizer(early):
    def work(communicator):
        model = DistributedDataParallel(start())
        pruner = Pruner(model.module, 0.5, Lottery(every=3, rewind=early))
        optimizer = ZeroRedundancyOptimizer(model.parameters(), tenon.optim.Adam, lr=0.05)
        pruner.rewinds(optimizer)
        for step in range(5):
            share = inputs[step][communicator.rank :: communicator.size]
            optimizer.zero_grad()
            model(share).sub(1).square().mean().backward()
            optimizer.step()
            pruner.step()
        return {name: t.numpy().copy() for name, t in model.module.state_dict().items()}

    start, inputs = functools.partial(copy.deepcopy, net()), [tenon.randn(8, 4) for _ in range(5)]
    (alone,), (first, second) = run_ranks(1, work), run_ranks(2, work)

    for name, value in alone.items():
        assert (first[name] == second[name]).all()
        np.testing.assert_allclose(first[name], value, atol=1e-5)


def test_what_goes_back_has_to_be_told_in_time():
    model = net()
    pruner = Pruner(model, 0.5, Lottery(every=4, rewind=1))
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)
    train(model, pruner, optimizer, 2)

    with pytest.raises(PruningError, match="step 1, to which this schedule rewinds, is over: 2 steps"):
        pruner.rewinds(optimizer)


def test_a_pruner_goes_on_from_its_state():
    model, other = net(), net()
    pruner = Pruner(model, 0.75, Lottery(every=2, rewind=1), example=tenon.ones(1, 4))
    train(model, pruner, tenon.optim.SGD(model.parameters(), lr=0.1), 1)
    again = Pruner(other, 0.75, Lottery(every=2, rewind=1), example=tenon.ones(1, 4))

    other.load_state_dict(model.state_dict())
    again.load_state_dict(pruner.state_dict())

    assert again.step() == pruner.step() == 0.75
    assert all(tenon.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_state_that_is_not_a_pruner_s_is_refused_and_changes_nothing():
    pruner = Pruner(net(), 0.75, Lottery(every=2, rewind=1), example=tenon.ones(1, 4))
    before = pruner.state_dict()

    with pytest.raises(PruningError, match=r"lacks \['states'\]; it has \['early', 'steps'\]"):
        pruner.load_state_dict({"steps": 3, "early": {}})

    assert pruner.state_dict() == before


def test_schedules_that_go_nowhere_are_refused():
    for make in (lambda: Gradual(3, begin=3), lambda: Gradual(3, every=0)):
        with pytest.raises(PruningError, match="begin to a later end"):
            make()
    with pytest.raises(PruningError, match="step 0 or later, got begin=-1"):
        OneShot(-1)
    model = net()
    for amount, error in ((1.0, PruningError), (2, PruningError), (1.5, ValueError), (-0.1, ValueError)):
        with pytest.raises(error):
            Pruner(model, amount, OneShot(2))
    assert "0.weight" in model.state_dict()
    for make in (lambda: Lottery(3, rounds=0), lambda: Lottery(3, rewind=3)):
        with pytest.raises(PruningError, match="a lottery has 1 or more rounds"):
            make()


def run_of(tmp_path, *lines, resumed=None, width=8):
    """A run of the digits from a TOML file, in this process; its session at the end."""
    file = tmp_path / "run.toml"
    head = f'recipe = "digits"\nbatch_size = 256\noutput = "{tmp_path}"\nlog.tensorboard = false\n'
    file.write_text(head + f"model_options.width = {width}\n" + "\n".join(lines))
    config, recipe = resolve(str(file), (), None)
    session = loop.open_session(config, recipe, resumed)
    loop.run(session)
    return session


SCHEDULES = {
    "one-shot": 'schedule = "one-shot"\nbegin = 2',
    "gradual": "every = 2",
    "lottery": 'schedule = "lottery"\nevery = 2\nrounds = 2\nrewind = 1',
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_masks_channels_as_its_configuration_says(tmp_path, schedule):
    lines = ["epochs = 1", "[prune]", "amount = 0.5", 'scope = "layer"', 'criterion = "Taylor"']

    model = run_of(tmp_path, *lines, SCHEDULES[schedule]).model
    tenon.prune.compact(model, tenon.zeros(1, 1, 8, 8), seconds=0)

    assert (model.features[0].out_channels, model.features[3].out_channels) == (4, 8)


@pytest.mark.slow
def test_a_run_of_a_lottery_goes_back_with_its_optimizer_and_schedule_and_resumes(tmp_path):
    lines = ["epochs = 2", "checkpoint.steps = 5", "checkpoint.keep = 9"]
    lines += ["[optimizer]", 'name = "SGD"', "lr = 0.1", "momentum = 0.9"]
    lines += ["[scheduler]", 'name = "ExponentialLR"', "gamma = 0.5", 'per = "step"']
    lines += [
        "[prune]",
        "amount = 0.5",
        'what = "weights"',
        'schedule = "lottery"',
        "every = 6",
        "rewind = 2",
    ]
    whole = run_of(tmp_path, *lines)
    checkpoint = min((whole.folder / "checkpoints").glob("*.safetensors"))

    session = run_of(tmp_path, *lines, resumed=fetch(whole.communicator, checkpoint, Trust()))

    assert checkpoint.stem.endswith("05") and session.step == whole.step == 12
    assert whole.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5 ** (2 + 12 - 6))
    assert session.optimizer.param_groups[0]["lr"] == whole.optimizer.param_groups[0]["lr"]
    state = whole.model.state_dict()
    assert all(tenon.equal(t, state[name]) for name, t in session.model.state_dict().items())


@pytest.mark.slow
def test_a_run_that_goes_on_ends_with_the_masks_of_one_that_was_not_interrupted(tmp_path):
    lines = ["epochs = 2", "[prune]", "amount = 0.6", 'what = "weights"', 'criterion = "Random"', "end = 8"]
    whole = run_of(tmp_path, *lines)
    checkpoint = min((whole.folder / "checkpoints").glob("*.safetensors"))

    session = run_of(tmp_path, *lines, resumed=fetch(whole.communicator, checkpoint, Trust()))

    masks = {name: b for name, b in session.model.named_buffers() if name.endswith("_mask")}
    assert session.step == whole.step == 12
    assert sum(int((m == 0).sum()) for m in masks.values()) == round(
        0.6 * sum(m.numel() for m in masks.values())
    )
    state = whole.model.state_dict()
    assert all(tenon.equal(t, state[name]) for name, t in session.model.state_dict().items())


def test_a_run_goes_on_from_a_checkpoint_that_version_0_1_0_wrote(tmp_path):
    """It goes back to the early step with the weights that the checkpoint holds of that."""
    data = Path(__file__).parents[1] / "serialize" / "data"
    file = shutil.copy(data / "pruned-run.safetensors", tmp_path)  # the run goes on next to it
    lines = ["epochs = 2", "optimizer.name = 'SGD'", "optimizer.lr = 0.1"]
    lines += ["prune.amount = 0.5", "prune.what = 'weights'", "prune.schedule = 'lottery'"]
    lines += ["prune.every = 6", "prune.rewind = 1", "checkpoint.every = 0"]

    folder, saved = fetch(launch(), Path(file), Trust())
    session = run_of(tmp_path, *lines, resumed=(folder, saved), width=1)

    (section,) = host().save_sections(session).values()
    (before,) = saved["plugins"].values()
    assert (before["steps"], section["steps"], session.step) == (5, 12, 12)
    assert all(tenon.equal(section["early"][name], t) for name, t in before["early"].items())
    assert zeros(session.model.modules()) > 0


def test_a_section_with_bad_values_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"prune\.amount"):
        run_of(tmp_path, "[prune]", "amount = 1.5")
    with pytest.raises(LookupError, match="Magnitude"):
        run_of(tmp_path, "[prune]", "amount = 0.5", 'criterion = "Magnitud"')

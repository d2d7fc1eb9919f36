"""Masks that grow in training, in one's own loop and in that of ``tenon train``."""

import pytest

import tenon
from tenon import nn
from tenon.errors import ConfigError, PruningError
from tenon.prune import Gradual, Lottery, OneShot, Pruner
from tenon.training import loop
from tenon.training.checkpoint import fetch
from tenon.training.command import resolve


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


def test_a_pruner_goes_on_from_its_state():
    model, other = net(), net()
    pruner = Pruner(model, 0.75, Lottery(every=2, rewind=1), example=tenon.ones(1, 4))
    train(model, pruner, tenon.optim.SGD(model.parameters(), lr=0.1), 1)
    again = Pruner(other, 0.75, Lottery(every=2, rewind=1), example=tenon.ones(1, 4))

    other.load_state_dict(model.state_dict())
    again.load_state_dict(pruner.state_dict())

    assert again.step() == pruner.step() == 0.75
    assert all(tenon.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_schedules_that_go_nowhere_are_refused():
    for make in (lambda: Gradual(3, begin=3), lambda: Gradual(3, every=0)):
        with pytest.raises(PruningError, match="begin to a later end"):
            make()
    for make in (lambda: Lottery(3, rounds=0), lambda: Lottery(3, rewind=3)):
        with pytest.raises(PruningError, match="a lottery has 1 or more rounds"):
            make()


def run_of(tmp_path, *lines, resumed=None):
    """A run of the digits from a TOML file, in this process; its session at the end."""
    file = tmp_path / "run.toml"
    head = f'recipe = "digits"\nbatch_size = 256\noutput = "{tmp_path}"\nlog.tensorboard = false\n'
    file.write_text(head + "model_options.width = 8\n" + "\n".join(lines))
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


def test_a_run_that_goes_on_ends_with_the_masks_of_one_that_was_not_interrupted(tmp_path):
    lines = ["epochs = 2", "[prune]", "amount = 0.6", 'what = "weights"', 'criterion = "Random"', "end = 8"]
    whole = run_of(tmp_path, *lines)
    checkpoint = min((whole.folder / "checkpoints").glob("*.safetensors"))

    session = run_of(tmp_path, *lines, resumed=fetch(whole.communicator, checkpoint))

    masks = {name: b for name, b in session.model.named_buffers() if name.endswith("_mask")}
    assert session.step == whole.step == 12
    assert sum(int((m == 0).sum()) for m in masks.values()) == round(
        0.6 * sum(m.numel() for m in masks.values())
    )
    state = whole.model.state_dict()
    assert all(tenon.equal(t, state[name]) for name, t in session.model.state_dict().items())


def test_a_section_with_bad_values_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"prune\.amount"):
        run_of(tmp_path, "[prune]", "amount = 1.5")
    with pytest.raises(LookupError, match="Magnitude"):
        run_of(tmp_path, "[prune]", "amount = 0.5", 'criterion = "Magnitud"')

"""``channel_groups``: the groups of channels in a captured graph, which are those that pruning masks."""

import copy

import pytest

import tenon
from tenon import nn
from tenon.errors import ModuleTypeError, PruningError
from tenon.export import capture, export, unflatten
from tenon.prune import ChannelGroup, channel_groups, compact, mask_channels
from tenon.testing.suites.target_models import MODELS


def network():
    tenon.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 8), nn.ReLU(), nn.Linear(8, 2)
    ).eval()  # fmt: skip


def test_groups_name_the_axes_that_shrink_together():
    graph = capture(network(), tenon.randn(2, 1, 6, 6))

    assert channel_groups(graph) == [
        ChannelGroup(
            (
                ("0.bias", 0), ("0.weight", 0), ("1.bias", 0), ("1.running_mean", 0), ("1.running_var", 0),
                ("1.weight", 0), ("4.weight", 1),
            ),
            6,
        ),
        ChannelGroup((("4.bias", 0), ("4.weight", 0), ("6.weight", 1)), 8),
    ]  # fmt: skip


def test_a_program_and_a_graph_of_any_batch_size_have_the_same_groups():
    model, x = network(), tenon.randn(2, 1, 6, 6)
    expected = channel_groups(capture(model, x))

    assert channel_groups(export(model, (x,))) == expected
    assert channel_groups(capture(model, x, dynamic={"input": {0: "batch"}})) == expected
    assert channel_groups(capture(unflatten(capture(model, x)), x)) == expected


@pytest.mark.parametrize("name", ["digits", "resnet", "mobilenet", "gpt", "unet", "lstm_tagger"])
def test_what_is_masked_is_a_share_of_the_groups(name):
    example = MODELS[name]()
    groups = channel_groups(capture(example.model, *example.args))

    masked = mask_channels(copy.deepcopy(example.model), example.args, 0.25)

    assert masked == round(0.25 * sum(group.count for group in groups))


def test_groups_of_the_compacted_model_are_smaller():
    model, x = network(), tenon.randn(2, 1, 6, 6)
    mask_channels(model, x, 0.5, scope="layer")

    compact(model, x, seconds=0)

    assert [group.count for group in channel_groups(capture(model, x))] == [3, 4]


def test_channels_on_which_an_op_without_a_rule_depends_are_in_no_group():
    class Sorted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.second(self.first(x).sort(1)[0])

    assert channel_groups(capture(Sorted().eval(), tenon.randn(2, 4))) == []


def test_other_things_than_the_graph_of_a_model_are_refused():
    model = nn.Linear(3, 2)
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    with pytest.raises(
        ModuleTypeError, match=r"takes a captured graph, got Linear\. .*capture\(model, example\)"
    ):
        channel_groups(model)
    with pytest.raises(PruningError, match=r"the graph writes weight, as that of a training step"):
        channel_groups(capture(step, tenon.randn(2, 3), train=True))
    with pytest.raises(ModuleTypeError, match=r"takes a module, got CapturedGraph\. .*unflatten"):
        mask_channels(capture(model, tenon.randn(2, 3)), tenon.randn(2, 3), 0.5)

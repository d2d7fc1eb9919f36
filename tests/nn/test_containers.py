"""Containers. Their behaviour is compared with torch's in test_module_oracle; here are properties of tenon's own."""

from collections import OrderedDict

import pytest

import tenon
from tenon import nn


class Times(nn.Module):
    def __init__(self, factor=2.0):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor

    def extra_repr(self):
        return f"{self.factor:g}"


def factors(modules):
    return [module.factor for module in modules]


def test_sequential_chains_its_modules():
    net = nn.Sequential(Times(2), Times(3))

    assert net(tenon.ones(1)).tolist() == [6.0]
    assert nn.Sequential()(5) == 5


def test_sequential_takes_names_from_an_ordered_dict():
    net = nn.Sequential(OrderedDict(first=Times(2), second=Times(3)))

    assert net.first is net[0]
    assert list(net[1:]._modules) == ["second"]
    assert repr(net) == "Sequential(\n  (first): Times(2)\n  (second): Times(3)\n)"


def test_sequential_edits_keep_numbers_in_order():
    net = nn.Sequential(Times(1), Times(2), Times(3))

    net.insert(1, Times(9))
    del net[0]
    net.append(Times(4)).extend([Times(5)])
    net[-1] = Times(6)

    assert factors(net) == [9, 2, 3, 4, 6]
    assert list(net._modules) == ["0", "1", "2", "3", "4"]
    assert net.pop(1).factor == 2
    assert net(tenon.ones(1)).item() == 9 * 3 * 4 * 6


def test_sequential_can_be_extended_by_itself():
    net = nn.Sequential(Times(2))

    net.extend(net[:])
    net += net

    assert len(net) == 4


def test_sequential_refuses_what_is_not_a_module():
    net = nn.Sequential(Times(1))

    with pytest.raises(TypeError, match=r"is not a Module subclass"):
        net.append(5)
    with pytest.raises(TypeError, match=r"module should be of type"):
        net.insert(0, 5)
    with pytest.raises(IndexError, match=r"index 7 is out of range"):
        net[7]
    assert len(net) == 1


def test_module_list_repeats_are_printed_once():
    net = nn.ModuleList(
        [Times(1), Times(2), Times(2), Times(2), nn.Sequential(Times(1)), nn.Sequential(Times(1))]
    )

    assert repr(net) == (
        "ModuleList(\n"
        "  (0): Times(1)\n"
        "  (1-3): 3 x Times(2)\n"
        "  (4-5): 2 x Sequential(\n"
        "    (0): Times(1)\n"
        "  )\n"
        ")"
    )


def test_module_list_inserts_like_a_python_list():
    net, plain = nn.ModuleList([Times(1), Times(2)]), [1, 2]

    for index, factor in ((0, 3), (-1, 4), (99, 5), (-99, 6)):
        net.insert(index, Times(factor))
        plain.insert(index, factor)

    assert factors(net) == plain


def test_module_list_slices_and_adds_to_new_lists():
    net = nn.ModuleList([Times(i) for i in range(5)])

    assert factors(net[1:4:2]) == [1, 3]
    assert factors(net.__add__([Times(9)])) == [0, 1, 2, 3, 4, 9]
    del net[::2]
    assert factors(net) == [1, 3]
    assert list(net._modules) == ["0", "1"]


def test_module_dict_updates_from_pairs_mappings_and_module_dicts():
    net = nn.ModuleDict({"b": Times(1)})
    net.update([("a", Times(2))])
    net.update(nn.ModuleDict({"c": Times(3)}))

    assert list(net) == ["b", "a", "c"]
    assert net["c"].factor == 3 and net.c is net["c"]
    with pytest.raises(ValueError, match=r"sequence element #1 has length 1; 2 is required"):
        net.update([("d", Times(1)), ("e",)])
    assert "d" not in net


def test_module_dict_refuses_names_of_its_own_methods():
    with pytest.raises(KeyError, match=r"attribute 'keys' already exists"):
        nn.ModuleDict({"keys": Times(1)})


def test_parameter_list_turns_tensors_into_parameters():
    params = nn.ParameterList([tenon.ones(1), nn.Parameter(tenon.ones(2)), "text"])

    assert [type(p) for p in params] == [nn.Parameter, nn.Parameter, str]
    assert [name for name, _ in params.named_parameters()] == ["0", "1"]
    assert len(params[0:2]) == 2
    with pytest.raises(IndexError):
        params[3]


def test_parameter_list_is_unchanged_by_a_failed_append():
    params = nn.ParameterList([tenon.ones(1)])
    setattr(nn.ParameterList, "1", "taken")
    try:
        with pytest.raises(KeyError, match=r"attribute '1' already exists"):
            params.append(tenon.ones(1))
        assert len(params) == 1
    finally:
        delattr(nn.ParameterList, "1")


def test_parameter_dict_sorts_plain_mappings_as_the_state_dict_shows():
    plain = nn.ParameterDict({"foo": tenon.ones(3), "bar": tenon.ones(4)})
    ordered = nn.ParameterDict(OrderedDict(foo=tenon.ones(3), bar=tenon.ones(4)))

    assert list(plain.state_dict()) == ["bar", "foo"]
    assert list(ordered.state_dict()) == ["foo", "bar"]


def test_parameter_dict_merges_like_a_dict():
    left = nn.ParameterDict({"a": tenon.zeros(1), "b": tenon.zeros(1)})
    right = nn.ParameterDict({"b": tenon.ones(1), "c": tenon.ones(1)})

    merged = left | right
    left |= right

    assert list(merged) == list(left) == ["a", "b", "c"]
    assert merged["b"] is right["b"] and left["b"] is right["b"]
    assert list({"z": tenon.ones(1)} | right) == ["z", "b", "c"]


def test_parameter_containers_print_dtype_and_size():
    assert repr(nn.ParameterList([tenon.ones(2, 3), 5])) == (
        "ParameterList(\n"
        "    (0): Parameter containing: [torch.float32 of size 2x3]\n"
        "    (1): Object of type: int\n"
        ")"
    )
    assert repr(nn.ParameterDict({"w": tenon.ones(2)})) == (
        "ParameterDict(  (w): Parameter containing: [torch.FloatTensor of size 2])"
    )


def test_containers_of_containers_train_and_move_together():
    net = nn.ModuleDict({"a": nn.ModuleList([nn.ParameterList([tenon.ones(1)])])})

    net.eval().double()

    assert net["a"][0].training is False
    assert net["a"][0][0].dtype is tenon.float64


def test_deprecated_container_still_works():
    with pytest.warns(FutureWarning, match=r"nn.Container. is deprecated"):
        net = nn.Container(a=Times(2))

    assert net.a.factor == 2

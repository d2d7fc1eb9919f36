"""Replacing a pattern in a traced program."""

import pytest

import tenon
from tenon import nn
from tenon.fx import symbolic_trace
from tenon.fx.subgraph_rewriter import replace_pattern, replace_pattern_with_filters


def test_each_occurrence_is_replaced():
    traced = symbolic_trace(lambda x: tenon.neg(x) + tenon.neg(tenon.neg(x)))

    found = replace_pattern(traced, lambda a: tenon.neg(a), lambda a: a * 3)

    assert len(found) == 3 and [m.anchor.name for m in found] == ["neg", "neg_1", "neg_2"]
    assert traced(tenon.tensor(2.0)).item() == 6.0 + 18.0


def test_several_results_are_replaced():
    def program(x, y):
        a, b = x + y, x - y
        return a * b + a

    traced = symbolic_trace(program)
    replace_pattern(traced, lambda x, y: (x + y, x - y), lambda x, y: (x * y, y))

    assert traced(tenon.tensor(2.0), tenon.tensor(5.0)).item() == 10.0 * 5.0 + 10.0


def test_a_replacement_can_return_its_argument():
    traced = symbolic_trace(lambda x: (x * 1) * 1 + 2)

    replaced = replace_pattern_with_filters(traced, lambda x: x * 1, lambda x: x)

    assert [each.replacements for each in replaced] == [[], []]
    assert traced(tenon.tensor(4.0)).item() == 6.0
    assert len(traced.graph.nodes) == 3


def test_filters_say_which_occurrences():
    traced = symbolic_trace(lambda x, y: (x + 1) * (x + y))

    def plain_number(match, graph, pattern):
        return isinstance(match.placeholder_nodes[1], int)

    replaced = replace_pattern_with_filters(traced, lambda a, b: a + b, lambda a, b: a - b, [plain_number])

    assert len(replaced) == 1
    assert traced(tenon.tensor(3.0), tenon.tensor(4.0)).item() == 2.0 * 7.0


def test_a_callback_chooses_the_replacement():
    traced = symbolic_trace(lambda x: (x + 1) * (x + 2))

    def scaled(match, graph, pattern):
        factor = match.placeholder_nodes[1] * 10
        return symbolic_trace(lambda a, b: a * factor).graph

    replace_pattern_with_filters(traced, lambda a, b: a + b, replacement_callback=scaled)

    assert traced(tenon.tensor(3.0)).item() == 30.0 * 60.0


class Old(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.Sigmoid()

    def forward(self, x):
        return self.act(x)


class New(nn.Module):
    def __init__(self):
        super().__init__()
        self.other = nn.Tanh()
        self.scale = nn.Parameter(tenon.tensor([2.0]))

    def forward(self, x):
        return self.other(x) * self.scale


def test_modules_of_the_replacement_move_in_and_unused_ones_out():
    traced = symbolic_trace(Old())
    x = tenon.rand(3)

    replace_pattern(traced, Old(), New())

    assert traced(x).allclose(x.tanh() * 2)
    assert [name for name, _ in traced.named_children()] == ["other"]


def test_numbers_of_arguments_and_results_must_agree():
    with pytest.raises(AssertionError, match="pattern has 1 arguments and its replacement 2"):
        replace_pattern(symbolic_trace(lambda x: -x), lambda a: -a, lambda a, b: a + b)
    with pytest.raises(AssertionError, match=r"returns 1 values and its replacement\s+2"):
        replace_pattern(symbolic_trace(lambda x: -x), lambda a: -a, lambda a: (a, a))


def test_rewriting_is_that_of_pytorch():
    torch = pytest.importorskip("torch")

    def build(library, replace):
        def program(x, w):
            y = library.cat([x, w]).sum()
            z = library.cat([w, x]).sum()
            return library.relu(y) + z

        traced = library.fx.symbolic_trace(program)
        replace(traced, lambda a, b: library.cat([a, b]).sum(), lambda a, b: library.stack([b, a]))
        return traced.code.replace("torch.", "tenon.")

    assert build(tenon, replace_pattern) == build(torch, torch.fx.replace_pattern)

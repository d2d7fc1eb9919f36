"""Constants computed once."""

import tenon
from tenon import nn
from tenon.fx import symbolic_trace
from tenon.fx.experimental.const_fold import get_unique_attr_name_in_module, split_const_subgraphs


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(tenon.rand(4, 4))
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y):
        twice = self.a + self.a.t()
        return x - twice, y + self.linear(twice), self.a * 1


def test_what_depends_on_no_argument_is_computed_at_the_first_call():
    net = Weighted()
    x, y = tenon.rand(4, 4), tenon.rand(4)

    folded = split_const_subgraphs(net)

    assert not folded.has_folding_been_run
    assert all(a.allclose(b) for a, b in zip(folded(x, y), net(x, y), strict=True))
    assert folded.has_folding_been_run
    assert {n.op for n in folded.graph.nodes} == {"placeholder", "get_attr", "call_function", "output"}
    with tenon.no_grad():
        net.a.fill_(0.0)
    assert not folded(x, y)[0].allclose(net(x, y)[0])  # the constants are kept


def test_a_program_without_constants_stays_as_it_is():
    folded = split_const_subgraphs(symbolic_trace(lambda x: x + 1))

    assert folded.const_subgraph_module is None
    assert folded(tenon.tensor(1.0)).item() == 2.0


def test_nodes_can_be_left_out():
    net = Weighted()

    folded = split_const_subgraphs(net, skip_folding_node_fn=lambda node: True)

    assert folded.const_subgraph_module is None


def test_random_numbers_are_drawn_at_every_call():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(tenon.zeros(8))

        def forward(self, x):
            return x + tenon.rand_like(self.a)

    folded = split_const_subgraphs(Noisy())

    assert not folded(tenon.zeros(8)).equal(folded(tenon.zeros(8)))


def test_names_are_numbered_if_taken():
    traced = symbolic_trace(lambda x: x)
    traced.folded = tenon.zeros(1)

    assert get_unique_attr_name_in_module(traced, "folded") == "folded_1"
    assert get_unique_attr_name_in_module(traced, "1.weight") == "_1_weight"

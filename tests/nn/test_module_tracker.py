"""``ModuleTracker``: in which modules a program is, forward and backward."""

from __future__ import annotations

import tenon
from tenon import nn
from tenon.utils.module_tracker import ModuleTracker


class Twice(nn.Module):
    def __init__(self, places):
        super().__init__()
        self.places, self.layers = (
            places,
            nn.ModuleList([Note(places), nn.ModuleDict({"last": Note(places)})]),
        )

    def forward(self, x):
        return self.layers[1]["last"](self.layers[0]([x]))


class Note(nn.Module):
    def __init__(self, places):
        super().__init__()
        self.places = places

    def forward(self, x):
        out = (x[0] if isinstance(x, list) else x["x"]).exp()
        self.places()
        out.register_hook(lambda grad: self.places())
        return {"x": out * 2}


def test_modules_are_named_where_they_run_forward_and_backward():
    seen = []
    model = Twice(lambda: seen.append((sorted(tracker.parents - {"Global"}), tracker.is_bw)))
    first, last = ["Twice", "Twice.layers.0"], ["Twice", "Twice.layers.1.last"]

    with ModuleTracker() as tracker:
        for _ in range(2):
            model(tenon.ones(2, requires_grad=True) * 1)["x"].sum().backward()
            assert tracker.parents == {"Global"} and not tracker.is_bw
    model(tenon.ones(2, requires_grad=True))

    assert seen[:8] == [(first, False), (last, False), (last, True), (first, True)] * 2
    assert seen[8:] == [([], False)] * 2


def test_a_module_inside_of_itself_and_inputs_without_gradients_leave_no_name_behind():
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x, deep=True):
            return self(x, False) if deep else self.inner(x)

    model = Again()
    x = tenon.ones(2, requires_grad=True)
    with ModuleTracker() as tracker:
        model(tenon.ones(2)).sum().backward()  # nothing says when backward leaves the model
        assert tracker.parents == {"Global"}

        tenon.autograd.grad(model(x).sum(), x)
        assert tracker.parents == {"Global"}

"""Tied weights: one name in a graph, stored once, and tied again in every form that comes back."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import BundleError
from tenon.export import capture, export, load, lower, save, unflatten
from tenon.export.document import to_document, views_of
from tenon.export.schema import from_document


class Tied(nn.Module):
    """Embedding and head share a weight; two layers share a bias; two names for one buffer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.body = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.body[1].bias = self.body[0].bias
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", tenon.ones(4))
        self.register_buffer("factor", self.scale)

    def forward(self, indices):
        x = self.embedding(indices)
        for layer in self.body:
            x = layer(x).relu()
        return self.head(x * self.scale + self.factor)


INDICES = tenon.tensor([1, 3, 0])
ALIASES = {"body.1.bias": "body.0.bias", "head.weight": "embedding.weight", "factor": "scale"}


@pytest.fixture
def model():
    tenon.manual_seed(0)
    return Tied().eval()


def program_file(model, folder):
    save(export(model, (INDICES,)), folder / "program.pt2")
    return load(folder / "program.pt2")


def bundle(model, folder):
    save(model, folder / "bundle", (INDICES,), targets=())
    return load(folder / "bundle").graph


FORMS = {
    "program": lambda model, folder: export(model, (INDICES,)).module(),
    "file": lambda model, folder: program_file(model, folder).module(),
    "lowered": lambda model, folder: export(model, (INDICES,)).run_decompositions().module(),
    "unflattened": lambda model, folder: unflatten(capture(model, INDICES)),
    "unflattened file": lambda model, folder: unflatten(program_file(model, folder)),
    "bundle": lambda model, folder: unflatten(bundle(model, folder)),
}


@pytest.mark.parametrize("form", FORMS)
def test_tied_weights_come_back_tied(form, model, tmp_path):
    again = FORMS[form](model, tmp_path)

    assert set(again.state_dict()) == set(model.state_dict())
    held = {
        **dict(again.named_parameters(remove_duplicate=False)),
        **dict(again.named_buffers(remove_duplicate=False)),
    }
    assert all(held[name] is held[label] for name, label in ALIASES.items())
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in model.parameters())
    again.load_state_dict(model.state_dict())
    assert tenon.allclose(again(INDICES), model(INDICES))


def test_a_graph_has_one_name_for_a_tied_weight_and_its_file_one_tensor(model):
    graph = capture(model, INDICES)
    document, arrays = to_document(graph)

    assert graph.signature.aliases == ALIASES
    assert not set(ALIASES) & set(arrays)
    assert (
        from_document(document, {k: tenon.as_tensor(v) for k, v in arrays.items()}, "file").signature.aliases
        == ALIASES
    )
    assert lower(graph, {"embedding", "linear", "relu", "mul", "add"}).signature.aliases == ALIASES


def test_layers_with_tied_weights_are_layers_again_and_share_them(model):
    again = unflatten(capture(model, INDICES))

    assert isinstance(again.embedding, nn.Embedding) and isinstance(again.head, nn.Linear)
    assert again.head.weight is again.embedding.weight
    assert again.get_submodule("body.1").bias is again.get_submodule("body.0").bias


def test_a_tied_weight_that_an_op_reads_too_stays_with_ops():
    class Summed(Tied):
        def forward(self, indices):
            return self.head(self.embedding(indices)) + self.embedding.weight.sum()

    model = Summed().eval()

    again = unflatten(capture(model, INDICES))

    assert not isinstance(again.get_submodule("embedding"), nn.Embedding)
    assert again.head.weight is again.embedding.weight
    assert tenon.allclose(again(INDICES), model(INDICES))


def test_a_step_trains_a_tied_weight_once(model):
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

    def step(indices):
        optimizer.zero_grad()
        loss = model(indices).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    graph = capture(step, INDICES, train=True)

    labels = [write.target.label for write in graph.writes]
    assert labels.count("embedding.weight") == 1 and "head.weight" not in labels


def test_programs_read_from_files_have_parameters_that_train_where_they_did(model, tmp_path):
    model.body[0].weight.requires_grad_(False)

    again = program_file(model, tmp_path).module()

    expected = {name: p.requires_grad for name, p in model.named_parameters()}
    assert {name: p.requires_grad for name, p in again.named_parameters()} == expected
    again(INDICES).sum().backward()
    assert again.get_parameter("embedding.weight").grad is not None


@pytest.mark.parametrize(
    "aliases",
    [
        {"a.b": "missing"},
        {"scale": "embedding.weight"},
        {"__class__": "scale"},
        {"a..b": "scale"},
        {"x": 1},
        ["x"],
    ],
)
def test_files_with_other_names_that_make_no_sense_are_refused(model, aliases):
    document, arrays = to_document(capture(model, INDICES))
    document["signature"]["aliases"] = aliases

    with pytest.raises(BundleError):
        from_document(document, {k: tenon.as_tensor(v) for k, v in arrays.items()}, "file")


class Overlapping(nn.Module):
    """A weight and its transpose, a part of a buffer, and a buffer of its own."""

    def __init__(self):
        super().__init__()
        self.back = nn.Parameter(tenon.randn(4, 3))
        self.there = nn.Parameter(self.back.detach().t())
        self.register_buffer("row", self.back.detach()[1])
        self.register_buffer("own", tenon.randn(3))

    def forward(self, x):
        return (x @ self.there @ self.back + self.row) * self.own


def shares(a, b):
    return np.shares_memory(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("form", ["bundle", "program", "graph", "file"])
def test_states_that_share_memory_are_stored_once_and_share_it_again(form, tmp_path):
    model, x = Overlapping().eval(), tenon.randn(2, 3)
    if form == "bundle":
        save(model, tmp_path / "b", (x,), targets=["numpy"])
        made = unflatten(load(tmp_path / "b").graph)
        stored = tenon.load(tmp_path / "b" / "weights.safetensors")
        assert sorted(stored) == ["back", "own"] and tenon.export.verify(tmp_path / "b").passed
    elif form == "graph":
        made = unflatten(capture(model, x))
        assert not shares(made.back, model.back)
    else:
        save(export(model, (x,)), tmp_path / "p.pt2")
        made = load(tmp_path / "p.pt2")
        made = made.module() if form == "program" else unflatten(made)

    assert tenon.equal(made(x), model(x)) and set(made.state_dict()) == set(model.state_dict())
    assert shares(made.there, made.back) and shares(made.row, made.back)
    assert not shares(made.own, made.back)
    with tenon.no_grad():
        made.back.mul_(2)
    assert tenon.equal(made.there, 2 * model.there) and tenon.equal(made.row, 2 * model.row)


@pytest.mark.parametrize(
    "view",
    [
        {"of": "there", "offset": 0, "strides": [1, 3]},
        {"of": "x", "offset": 0, "strides": [1, 3]},
        {"of": "back", "offset": 1, "strides": [1, 3]},
        {"of": "back", "offset": -1, "strides": [1, 3]},
        {"of": "back", "offset": 0, "strides": [1, -3]},
        {"of": "back", "offset": 0, "strides": [1]},
        {"of": "back", "offset": 0, "strides": [1, 1 << 60]},
        {"of": "back", "offset": 0, "strides": [1, 3], "more": 1},
        {"of": ["back"], "offset": 0, "strides": [1, 3]},
        "back",
    ],
)
def test_a_view_outside_of_what_is_stored_is_refused(view):
    graph = capture(Overlapping().eval(), tenon.randn(2, 3))
    document, arrays = to_document(graph, views_of(graph))
    (entry,) = [node for node in document["nodes"] if node.get("name") == "there"]
    assert entry["view"] == {"of": "back", "offset": 0, "strides": [1, 3]}
    stored = {name: tenon.from_numpy(array) for name, array in arrays.items()}
    from_document(document, stored, "graph.json")
    entry["view"] = view

    with pytest.raises(BundleError):
        from_document(document, stored, "graph.json")

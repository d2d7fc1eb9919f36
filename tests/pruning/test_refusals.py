"""Errors for unsuitable models and examples, and for structures in state dicts."""

import pytest

import tenon
from tenon import nn
from tenon.errors import CheckpointError, ModuleTypeError, PruningError
from tenon.nn.utils import prune


def zero(module, name, places):
    mask = tenon.ones_like(getattr(module, name))
    mask[places] = 0
    prune.custom_from_mask(module, name, mask)


def test_load_refuses_the_state_of_another_model_and_changes_nothing():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    zero(model[0], "weight", [0])
    tenon.prune.compact(model, tenon.randn(2, 4), seconds=0)
    state = model.state_dict()
    other = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

    with pytest.raises(CheckpointError, match="of '1', which has no such number"):
        tenon.prune.load(other, state)
    longer = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(2, 2))
    with pytest.raises(CheckpointError, match=r"missing \['2.weight', '2.bias'\]"):
        tenon.prune.load(longer, state)
    assert longer[0].out_features == 6
    odd = nn.Sequential(nn.Embedding(4, 6), nn.Linear(6, 2))
    with pytest.raises(CheckpointError):
        tenon.prune.load(odd, state)
    with pytest.raises(CheckpointError, match="does not describe the structure"):
        tenon.prune.load(model, {**state, "pruned_structure": tenon.zeros(3, dtype=tenon.uint8)})

    assert other[0].out_features == 6 and tenon.prune.structure_of(other) == {}
    plain = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    assert tenon.prune.load(plain, nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)).state_dict()) is plain


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ('{"version":2,"modules":{}}', "version 2"),
        ('{"version":1,"modules":[]}', "does not describe the structure"),
        ('{"version":1,"modules":{"0":3}}', "does not describe the structure"),
        ('{"version":1,"modules":{"0":{"out_features":"6"}}}', "not numbers"),
        ('{"version":1,"modules":{"0":{"packed":4}}}', "lacks sizes"),
        ("[1", "does not describe the structure"),
    ],
)
def test_a_structure_that_was_tampered_with_is_refused_and_changes_nothing(said, refusal):
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    state = {**model.state_dict(), "pruned_structure": tenon.tensor(list(said.encode()), dtype=tenon.uint8)}
    wanted = {name: t.clone() for name, t in model.state_dict().items()}

    with pytest.raises(CheckpointError, match=refusal):
        tenon.prune.load(model, state)
    assert all(tenon.equal(wanted[name], t) for name, t in model.state_dict().items())
    assert model[0].out_features == 6


def untouched(model, example, error, match):
    """Check that ``compact`` raises, and that the model is unchanged."""
    state = {name: t.clone() for name, t in model.state_dict().items()}
    text = repr(model)
    with pytest.raises(error, match=match):
        tenon.prune.compact(model, example, seconds=0)
    assert repr(model) == text and list(state) == list(model.state_dict())
    assert all(tenon.equal(state[name], t) for name, t in model.state_dict().items())


def test_an_op_of_which_nothing_is_known_is_an_error_that_names_it():
    class Sorted(nn.Module):
        def forward(self, x):
            return x.gather(1, x.argsort(1))

    model = nn.Sequential(nn.Linear(4, 6, bias=False), Sorted(), nn.Linear(6, 2))
    zero(model[0], "weight", [0, 3])

    untouched(model, tenon.randn(2, 4), PruningError, r"argsort' in '1'")


def test_a_model_without_whole_zero_channels_is_refused():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    prune.l1_unstructured(model[0], "weight", 3)
    untouched(model, tenon.randn(2, 4), PruningError, "no channel can be removed")
    zero(model[1], "weight", [0])
    untouched(model, tenon.randn(2, 4), PruningError, r"1 zero rows of 1\.weight stay: they are outputs")


def test_numbers_that_are_not_finite_lazy_layers_and_other_objects_are_refused():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    zero(model[0], "weight", [0])
    with tenon.no_grad():
        model[0].weight_orig[0, 0] = float("inf")
    with pytest.raises(PruningError, match=r"0\.weight_orig' has numbers that are not finite"):
        tenon.prune.compact(model, tenon.randn(1, 2))
    with pytest.raises(PruningError, match="has no shape yet"):
        tenon.prune.compact(nn.LazyLinear(3), tenon.randn(1, 2))
    with pytest.raises(ModuleTypeError, match="takes a module"):
        tenon.prune.compact("model", tenon.randn(1, 2))


def test_wrapped_and_quantized_models_and_examples_that_give_no_numbers_are_refused():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    small = tenon.quantize(model, "int8-weights").model
    with pytest.raises(PruningError, match=r"'0' has weights of few bits.*Prune first"):
        tenon.prune.mask_weights(small, 0.5)
    zero(model[0], "weight", [0])
    with pytest.raises(ModuleTypeError, match=r"Give it model\.module"):
        tenon.prune.compact(nn.parallel.DistributedDataParallel(model), tenon.randn(2, 4))
    with pytest.raises(ModuleTypeError, match=r"Give it model\.module"):
        tenon.prune.pack(nn.parallel.DistributedDataParallel(model), tenon.randn(2, 4))
    untouched(model, tenon.full((2, 4), float("nan")), PruningError, "outputs that are not finite")


def test_an_example_or_data_that_does_not_fit_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    zero(model[0], "weight", [0])
    untouched(model, tenon.randn(2, 5), RuntimeError, "2x5")
    wanted = {name: t.clone() for name, t in model.state_dict().items()}
    with pytest.raises(ValueError, match="no labels"):
        tenon.prune.compact(model, tenon.randn(2, 4), data=[], seconds=0)
    assert all(tenon.equal(wanted[name], t) for name, t in model.state_dict().items())


def test_code_that_counts_on_its_sizes_and_attention_of_one_head_are_named():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x):
            y = self.first(x)
            assert y.shape[-1] == 6, "six are needed"
            return self.last(y)

    model = Counts()
    zero(model.first, "weight", [0])
    untouched(
        model, tenon.randn(2, 4), PruningError, "does not run without its zero channels: six are needed"
    )

    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.last = nn.MultiheadAttention(8, 1, batch_first=True), nn.Linear(8, 2)

        def forward(self, x):
            return self.last(self.attention(x, x, x)[0])

    model, x = Attends().eval(), tenon.randn(2, 3, 8)
    with pytest.raises(PruningError, match="no channels, heads or units"):
        tenon.prune.mask_channels(model, x, 0.5, keep=["last"])
    zero(model.attention, "in_proj_weight", [1, 9, 17])
    untouched(model, x, PruningError, "in_proj_weight stay: they are of the only head")

"""States and inputs of other kinds than quantized layers have: one error, and the model as it was."""

import pytest

import tenon
from tenon import nn, quantization
from tenon.errors import StateDictError, TenonError

pytestmark = pytest.mark.together

LAYERS = {
    "linear": (quantization.DynamicLinear, lambda: nn.Linear(6, 4), "weight"),
    "embedding": (quantization.QuantizedEmbedding, lambda: nn.Embedding(6, 4), "weight"),
    "bag": (quantization.QuantizedEmbeddingBag, lambda: nn.EmbeddingBag(6, 4), "weight"),
    "lstm": (quantization.DynamicLSTM, lambda: nn.LSTM(6, 4), "weight_hh_l0"),
    "gru cell": (quantization.DynamicGRUCell, lambda: nn.GRUCell(6, 4), "weight_ih"),
}
OTHERS = {
    "floats": lambda w: w.float(),
    "wider": lambda w: w.long(),
    "text": lambda w: "x",
    "None": lambda w: None,
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_weight_of_another_kind_is_refused_and_nothing_is_loaded(layer, other):
    kind, make, weight = LAYERS[layer]
    model = nn.Sequential(nn.Linear(2, 2), kind.of(make()), nn.Linear(2, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = {name: value + 1 for name, value in before.items()}
    state[f"1.{weight}"] = OTHERS[other](before[f"1.{weight}"])

    with pytest.raises(StateDictError, match=f"1.{weight} is "):
        model.load_state_dict(state)

    after = model.state_dict()
    assert all(
        after[name].dtype is value.dtype and tenon.equal(after[name], value) for name, value in before.items()
    )


@pytest.mark.parametrize("layer", LAYERS)
def test_scales_of_another_float_dtype_are_converted(layer):
    kind, make, _ = LAYERS[layer]
    model = kind.of(make())
    state = {name: v.double() if v.is_floating_point() else v for name, v in model.state_dict().items()}

    model.load_state_dict(state)

    assert {v.dtype for v in model.state_dict().values()} <= {tenon.int8, tenon.float32}


@pytest.mark.parametrize("wrong", [None, "a", [1.0] * 6], ids=str)
@pytest.mark.parametrize("layer", ["lstm", "gru cell"])
def test_an_input_that_is_no_tensor_is_the_error_of_the_float_layer(layer, wrong):
    kind, make, _ = LAYERS[layer]
    raised = []
    for each in (make(), kind.of(make())):
        with pytest.raises((TenonError, TypeError, AttributeError)) as caught:
            each(wrong)
        raised.append(caught.type)

    assert raised[0] is raised[1]

"""State dicts of models can be exchanged through files with PyTorch's models."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import CheckpointError


class Model(nn.Module):
    """An encoder and a decoder that share a weight, and a counter."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__()
        self.encoder = nn.Parameter(tenon.full((2, 3), value))
        self.decoder = self.encoder
        self.bias = nn.Parameter(tenon.full((3,), -value), requires_grad=False)
        self.register_buffer("steps", tenon.tensor(int(value)))


@pytest.fixture(params=["model.pt", "model.safetensors"])
def path(request, tmp_path):
    return tmp_path / request.param


def test_a_state_dict_loads_into_another_model(path):
    tenon.save(Model(7.0).state_dict(), path)
    model = Model(0.0)

    found = tenon.load(path)
    result = model.load_state_dict(found)

    assert str(result) == "<All keys matched successfully>"
    assert model.encoder.tolist() == [[7.0] * 3] * 2 and model.steps.item() == 7
    assert list(found) == ["encoder", "decoder", "bias", "steps"]


def test_tied_weights_stay_tied_when_loaded_without_a_model(path):
    tenon.save(Model().state_dict(), path)

    found = tenon.load(path)
    found["encoder"][0, 0] = 99

    assert found["decoder"][0, 0].item() == 99


def test_parameters_that_are_one_are_one_again(path):
    model = Model()
    tenon.save({"encoder": model.encoder, "decoder": model.decoder, "bias": model.bias}, path)

    found = tenon.load(path)

    assert found["encoder"] is found["decoder"]
    assert isinstance(found["bias"], nn.Parameter) and not found["bias"].requires_grad


def test_loaded_tensors_compute_and_differentiate(path):
    tenon.save({"w": nn.Parameter(tenon.tensor([1.0, 2.0, 3.0]))}, path)

    weight = tenon.load(path)["w"]
    (weight * weight).sum().backward()

    assert weight.grad.tolist() == [2.0, 4.0, 6.0]


def test_a_damaged_file_changes_nothing_in_the_model(path):
    tenon.save(Model(7.0).state_dict(), path)
    path.write_bytes(path.read_bytes()[:-20])
    model = Model(1.0)

    with pytest.raises(CheckpointError):
        model.load_state_dict(tenon.load(path))

    assert model.encoder.tolist() == [[1.0] * 3] * 2


def test_results_of_a_computation_are_saved_without_their_history(path):
    weight = tenon.ones(2, requires_grad=True)
    tenon.save({"y": weight * 3, "detached": (weight * 3).detach()}, path)

    found = tenon.load(path)

    assert found["y"].requires_grad and found["y"].is_leaf and found["y"].tolist() == [3.0, 3.0]
    assert not found["detached"].requires_grad


def test_a_module_itself_is_refused_with_what_to_save_instead(path):
    with pytest.raises(TypeError, match=r"obj\['model'\]\.state_dict\(\)"):
        tenon.save({"model": Model()}, path)


@pytest.mark.oracle
def test_a_state_dict_loads_into_a_torch_model_and_comes_back(tmp_path):
    torch = pytest.importorskip("torch")

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.Parameter(torch.zeros(2, 3))
            self.decoder = self.encoder
            self.bias = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
            self.register_buffer("steps", torch.tensor(0))

    theirs, ours = Theirs(), Model(0.0)
    tenon.save(Model(5.0).state_dict(), tmp_path / "ours.pt")

    theirs.load_state_dict(torch.load(tmp_path / "ours.pt", weights_only=True))
    torch.save(theirs.state_dict(), tmp_path / "theirs.pt")
    ours.load_state_dict(tenon.load(tmp_path / "theirs.pt"))

    np.testing.assert_array_equal(theirs.encoder.detach().numpy(), np.full((2, 3), 5.0))
    assert ours.encoder.tolist() == [[5.0] * 3] * 2
    assert ours.bias.tolist() == [-5.0] * 3 and ours.steps.item() == 5

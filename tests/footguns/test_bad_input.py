"""Bad input of every kind gets one clear error that names values and place, and changes nothing."""

import subprocess
import sys

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import CheckpointError, DeviceError, DTypeError, IndexRangeError, ShapeError, TenonError


class Net(nn.Module):
    """A model with a name for every place."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        self.head = nn.Linear(5, 2)  # wrong on purpose: the encoder ends in 4

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


def error_of(kind, function):
    with pytest.raises(kind) as caught:
        function()
    assert isinstance(caught.value, TenonError)
    return str(caught.value)


def test_wrong_shapes_name_the_module_path_and_both_shapes():
    text = error_of(ShapeError, lambda: Net()(tenon.tensor([0, 1])))

    assert "(2x4 and 5x2)" in text and text.endswith("(in module head (Linear))")


def test_an_index_out_of_range_names_value_size_and_module():
    text = error_of(IndexRangeError, lambda: Net()(tenon.tensor([7])))

    assert "index 7" in text and "5 rows" in text and text.endswith("(in module embed (Embedding))")


def test_a_label_out_of_range_names_the_label_and_the_classes():
    logits = tenon.randn(2, 3)

    text = error_of(IndexRangeError, lambda: nn.functional.cross_entropy(logits, tenon.tensor([0, 3])))

    assert "Target 3 is out of bounds" in text


def test_labels_of_the_wrong_dtype_are_told_what_to_do():
    text = error_of(
        DTypeError, lambda: nn.functional.cross_entropy(tenon.randn(2, 3), tenon.tensor([0.0, 1.0]))
    )

    assert ".long()" in text


def test_a_wrong_dtype_names_both_dtypes_and_the_module():
    text = error_of(DTypeError, lambda: nn.Sequential(nn.Linear(3, 2))(tenon.ones(1, 3, dtype=tenon.float64)))

    assert "Double and Float" in text and "module 0 (Linear)" in text


def test_a_device_that_is_not_there_says_why_and_leaves_the_module_alone():
    if tenon.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    net = nn.Linear(2, 2)
    before = net.weight.detach().clone()

    error_of(DeviceError, lambda: net.to("cuda"))

    assert net.weight.device.type == "cpu" and net.weight.equal(before)


def test_a_device_type_that_nobody_serves_lists_the_known_ones():
    assert "cpu" in error_of(DeviceError, lambda: tenon.zeros(2, device="toaster"))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.sum(),
        lambda x: x @ tenon.ones(3, 2),
        lambda x: nn.functional.softmax(x, dim=1),
        lambda x: nn.Linear(3, 2)(x),
        lambda x: nn.functional.relu(x) * 2 + 1,
        lambda x: tenon.cat([x, x]),
        lambda x: x.reshape(3, 0),
        lambda x: nn.functional.layer_norm(x, (3,)),
    ],
)
def test_empty_tensors_go_through_forward_and_backward(operation):
    x = tenon.ones(0, 3, requires_grad=True)

    operation(x).sum().backward()

    assert x.grad.shape == (0, 3)


def test_an_empty_reduction_without_identity_is_an_error_that_says_so():
    assert "numel() == 0" in error_of(ShapeError, lambda: tenon.ones(0).max())


@pytest.mark.parametrize(
    "make", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:2].expand(4, 6)], ids=["t", "step", "expand"]
)
def test_non_contiguous_and_zero_stride_inputs_give_what_their_copies_give(make):
    base = tenon.randn(4, 6, requires_grad=True)
    strange, plain = make(base), make(base).detach().clone().requires_grad_()
    layer = nn.Linear(strange.shape[1], 3)

    first, second = layer(strange).square().sum(), layer(plain).square().sum()
    first.backward()
    second.backward()

    assert first.item() == pytest.approx(second.item(), rel=1e-5)
    assert base.grad.sum().item() == pytest.approx(plain.grad.sum().item(), rel=1e-4, abs=1e-4)


def test_nan_targets_show_in_the_loss_instead_of_hiding():
    loss = nn.functional.mse_loss(tenon.zeros(3), tenon.tensor([0.0, float("nan"), 1.0]))

    assert np.isnan(loss.item())


def test_a_failed_load_changes_nothing():
    net, other = (
        nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 4)),
    )
    before = {k: v.clone() for k, v in net.state_dict().items()}

    text = error_of(TenonError, lambda: net.load_state_dict(other.state_dict()))

    assert "size mismatch for 1.weight" in text
    assert all(v.equal(before[k]) for k, v in net.state_dict().items())


@pytest.mark.parametrize("damage", ["cut", "flip"])
@pytest.mark.parametrize("name", ["net.pt", "net.safetensors"])
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, name, damage):
    path = tmp_path / name
    tenon.save(nn.Linear(30, 30).state_dict(), path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    path.write_bytes(
        content[:middle]
        if damage == "cut"
        else content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    )

    assert name in error_of(CheckpointError, lambda: tenon.load(path))


def test_a_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path):
    import pickle

    class Attack:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'ran')!r}, 'w').close()",))

    (tmp_path / "bad.pt").write_bytes(pickle.dumps({"weight": Attack()}))

    error_of(CheckpointError, lambda: tenon.load(tmp_path / "bad.pt"))

    assert not (tmp_path / "ran").exists()


def test_an_in_place_change_of_a_leaf_is_refused_before_it_happens():
    weight = tenon.ones(3, requires_grad=True)

    error_of(TenonError, lambda: weight.add_(1))

    assert weight.tolist() == [1, 1, 1]


def test_an_unknown_optimizer_offers_the_nearest():
    with pytest.raises(AttributeError, match=r"Did you mean 'SGD'\?"):
        tenon.optim.SDG([tenon.ones(1, requires_grad=True)])


def test_started_by_a_launcher_without_mpi_says_what_to_install():
    program = "import sys\nsys.modules['mpi4py'] = None\nimport tenon.distributed as dist\ndist.get_rank()\n"

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=300,
        env={"PMI_RANK": "1", "PMI_SIZE": "2", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip

    assert done.returncode != 0
    assert "rank 1 of 2" in done.stderr and "pip install" in done.stderr

"""Two backends side by side: the CPU's and one that a plugin brings, whose memory NumPy cannot see."""

import copy
import pickle

import numpy as np
import pytest
from devices import compare
from programs import PROGRAMS
from training import OPTIMIZERS, Net, train

import tenon
from tenon import distributed, nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.errors import DeviceError, IndexRangeError, ShapeError
from tenon.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.together


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_same_on_both_devices(name):
    compare(PROGRAMS[name], "fake")


def test_factories_and_likes_make_tensors_there():
    x = tenon.ones(2, 3, device="fake")

    made = [
        x, tenon.zeros(2, device="fake"), tenon.full((2,), 7, device="fake"), tenon.arange(3, device="fake"),
        tenon.eye(2, device="fake"), tenon.linspace(0, 1, 3, device="fake"), tenon.tensor([1, 2], device="fake"),
        tenon.randn(2, device="fake"), tenon.zeros_like(x), tenon.rand_like(x), x.new_ones(2), x.new_tensor([1.0]), x + 1,
        x.sum(), x[0], x.to(tenon.float64), x.clone(), x.detach(),
    ]  # fmt: skip

    assert {str(t.device) for t in made} == {"fake:0"}
    assert x.sum().item() == 6 and x.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_the_default_device_can_be_the_plugins():
    with tenon.device("fake"):
        layer = nn.Linear(3, 2)
        x = tenon.randn(4, 3)

    assert {p.device.type for p in layer.parameters()} == {"fake"}
    assert layer(x).device.type == "fake"
    assert tenon.zeros(1).device.type == "cpu"


def test_tensors_go_there_and_back():
    x = tenon.randn(3, 4)
    there = x.to("fake")

    assert there.device == tenon.device("fake", 0)
    assert there.to("fake") is there and there.to("fake:0") is there and x.to("cpu") is x
    assert there.cpu().device.type == "cpu" and tenon.equal(there.cpu(), x)
    x.zero_()
    assert there.abs().sum().item() > 0


def test_an_index_that_is_not_there_is_an_error():
    with pytest.raises(DeviceError, match=r"fake:3.*1 fake device"):
        tenon.zeros(1, device="fake:3")


def test_operands_on_two_devices_are_an_error_that_names_both_and_their_shapes():
    here, there = tenon.ones(2, 3), tenon.ones(3, device="fake")

    for operation in (lambda: here + there, lambda: tenon.cat([here, here.to("fake")]), lambda: here @ there):
        with pytest.raises(RuntimeError, match="same device") as caught:
            operation()
        text = str(caught.value)
        assert "cpu" in text and "fake:0" in text and "[2, 3]" in text and ".to(" in text


def test_a_cpu_scalar_mixes_with_a_tensor_anywhere():
    x, s = tenon.ones(3, device="fake"), tenon.tensor(2.0, requires_grad=True)

    y = (x * s + s).sum()
    y.backward()

    assert y.device.type == "fake" and y.item() == 12
    assert s.grad.device.type == "cpu" and s.grad.item() == 6
    with pytest.raises(RuntimeError, match="same device"):
        tenon.ones(3) * tenon.ones((), device="fake")


def test_gradients_arrive_where_their_leaves_are():
    here, there = tenon.ones(3, requires_grad=True), tenon.full((3,), 2.0, device="fake", requires_grad=True)

    ((here.to("fake") * there).cpu() * here).sum().backward()

    assert here.grad.device.type == "cpu" and here.grad.tolist() == [4, 4, 4]
    assert there.grad.device.type == "fake" and there.grad.tolist() == [1, 1, 1]


def test_a_module_moves_with_everything_it_holds():
    model = Net()
    model.head.weight.grad = tenon.ones_like(model.head.weight)
    weight, before = model.conv.weight, model.conv.weight.detach().clone()

    assert model.to("fake") is model

    held = [*model.parameters(), *model.buffers(), model.head.weight.grad]
    assert {t.device.type for t in held} == {"fake"}
    assert model.conv.weight is weight and weight.requires_grad and weight.is_leaf
    assert tenon.equal(weight.detach().cpu(), before)
    with pytest.raises(RuntimeError, match="same device"):
        model(tenon.randn(2, 1, 8, 8))
    assert model.cpu().conv.weight is weight and weight.device.type == "cpu"


def test_a_meta_module_gets_memory_on_the_device():
    with tenon.device("meta"):
        layer = nn.Linear(3, 2)

    layer.to_empty(device="fake")

    assert layer.weight.device.type == "fake"
    nn.init.normal_(layer.weight)
    assert np.isfinite(layer.weight.detach().cpu().numpy()).all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_takes_the_same_steps_on_both_devices(optimizer):
    expected, model, _ = train("cpu", optimizer)

    actual, other, optimiser = train("fake", optimizer)

    assert actual == pytest.approx(expected, rel=1e-4)
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(
            other.state_dict()[name].cpu().numpy(), value.numpy(), rtol=1e-3, atol=1e-5
        )
    held = [
        v
        for state in optimiser.state.values()
        for v in state.values()
        if isinstance(v, tenon.Tensor) and v.ndim
    ]
    assert held or optimizer == "SGD"
    assert {v.device.type for v in held} <= {"fake"}


def test_an_optimizer_state_follows_its_parameters_to_another_device():
    _, model, optimiser = train("cpu", "Adam", steps=2)
    saved = copy.deepcopy(optimiser.state_dict())
    other = Net().to("fake")
    other.load_state_dict(model.state_dict())
    resumed = tenon.optim.Adam(other.parameters(), **OPTIMIZERS["Adam"])

    resumed.load_state_dict(saved)
    other(tenon.randn(2, 1, 8, 8, device="fake")).sum().backward()
    resumed.step()

    moments = [s["exp_avg"] for s in resumed.state.values()]
    assert moments and {m.device.type for m in moments} == {"fake"}


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_saved_tensors_remember_their_device(suffix, tmp_path):
    state = Net().to("fake").state_dict()
    tenon.save(dict(state), tmp_path / f"m.{suffix}")

    back, home = (
        tenon.load(tmp_path / f"m.{suffix}"),
        tenon.load(tmp_path / f"m.{suffix}", map_location="cpu"),
    )

    assert {str(t.device) for t in back.values()} == {"fake:0"}
    assert {str(t.device) for t in home.values()} == {"cpu"}
    assert all(tenon.equal(home[k], v.cpu()) for k, v in state.items())


def test_pickles_and_deep_copies_stay_on_the_device():
    x = tenon.randn(2, 3, device="fake").requires_grad_()

    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert str(other.device) == "fake:0" and other.requires_grad
        assert tenon.equal(other.detach(), x.detach())
        other.detach().zero_()
        assert x.abs().sum().item() > 0


def test_numpy_gets_nothing_without_being_asked_for():
    x = tenon.ones(2, device="fake")

    with pytest.raises((TypeError, RuntimeError), match=r"cpu\(\)|host"):
        x.numpy()
    assert "fake" in repr(x) and "1., 1." in repr(x)


def test_indices_outside_are_refused_as_on_the_cpu():
    for device in ("cpu", "fake"):
        x, rows = tenon.arange(12.0, device=device).reshape(4, 3), tenon.tensor([0, 9], device=device)
        with pytest.raises(IndexRangeError):
            x[rows]
        with pytest.raises(IndexRangeError):
            x[rows] = 0.0
        with pytest.raises(IndexRangeError):
            x.gather(0, tenon.tensor([[5, 0, 0]], device=device))
        with pytest.raises(IndexRangeError):
            nn.functional.embedding(rows, x)
    assert x[tenon.tensor([-1, 0], device="fake")].tolist() == [[9, 10, 11], [0, 1, 2]]


def test_shape_errors_are_the_same_there():
    with pytest.raises(ShapeError) as here:
        tenon.ones(2, 3) + tenon.ones(4)
    with pytest.raises(ShapeError) as there:
        tenon.ones(2, 3, device="fake") + tenon.ones(4, device="fake")

    assert str(here.value) == str(there.value)


def test_an_unknown_device_type_lists_the_known_ones():
    with pytest.raises(DeviceError, match="device string: abacus; backends here: cpu, cuda, fake, meta"):
        tenon.zeros(1, device="abacus")


def test_ranks_average_gradients_on_the_device():
    data = np.random.default_rng(3).standard_normal((12, 3)).astype(np.float32)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def gradients(device, x, **options):
        own = copy.deepcopy(model).to(device)
        call = DistributedDataParallel(own, **options) if options else own
        call(tenon.tensor(x, device=device)).square().mean().backward()
        assert {p.grad.device.type for p in own.parameters()} == {device}
        return [p.grad.cpu().numpy() for p in own.parameters()]

    def work(communicator):
        for cap in (25, 1e-5):
            actual = gradients("fake", data[communicator.rank :: 2], bucket_cap_mb=cap)
            for a, e in zip(actual, expected, strict=True):
                np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)

    expected = gradients("cpu", data)
    run_ranks(2, work)


def test_collectives_take_and_fill_tensors_of_the_device():
    def work(communicator):
        x = tenon.full((3,), float(communicator.rank + 1), device="fake")
        distributed.all_reduce(x)
        assert x.device.type == "fake" and x.tolist() == [3, 3, 3]
        parts = [tenon.zeros(2, device="fake") for _ in range(2)]
        distributed.all_gather(parts, tenon.full((2,), float(communicator.rank), device="fake"))
        assert [p.tolist() for p in parts] == [[0, 0], [1, 1]] and parts[1].device.type == "fake"
        y = tenon.full((2,), float(communicator.rank), device="fake")
        distributed.broadcast(y, src=1)
        assert y.tolist() == [1, 1]

    run_ranks(2, work)


def test_options_of_an_optimizer_may_be_tensors_of_the_host():
    p = tenon.ones(2, device="fake", requires_grad=True)
    q = tenon.ones(2, requires_grad=True)
    for leaf, options in (
        (p, {"lr": tenon.tensor(0.1), "betas": (tenon.tensor(0.5), tenon.tensor(0.75))}),
        (q, {"lr": 0.1, "betas": (0.5, 0.75)}),
    ):
        leaf.grad = tenon.full((2,), 2.0, device=leaf.device)
        tenon.optim.Adam([leaf], **options).step()

    assert p.tolist() == q.tolist() != [1, 1]


def test_arrays_of_the_host_are_copied_there():
    array = np.ones(3, np.float32)

    with tenon.device("fake"):
        made = tenon.asarray(array)
        with pytest.raises(ValueError, match="copy"):
            tenon.asarray(array, copy=False)

    array[0] = 5
    assert made.device.type == "fake" and made.tolist() == [1, 1, 1]


def test_indices_may_be_on_the_host():
    x = tenon.arange(6.0, device="fake").reshape(3, 2)

    assert x[tenon.tensor([2, 0])].tolist() == [[4, 5], [0, 1]]
    assert x[x.cpu() > 2].tolist() == [3, 4, 5]
    x[tenon.tensor([1])] = 0.0
    assert x.tolist() == [[0, 1], [0, 0], [4, 5]] and x.device.type == "fake"
    assert nn.init.sparse_(tenon.empty(6, 2, device="fake"), 0.5).eq(0).sum().item() == 6

"""The random functions of the public interface, on tensors."""

import numpy as np
import pytest

import tenon


@pytest.fixture(autouse=True)
def _keep_default_state():
    with tenon.random.fork_rng():
        yield


def test_states_are_byte_tensors_that_restore_the_stream():
    state = tenon.get_rng_state()
    expected = tenon.randn(5)

    tenon.set_rng_state(state)

    assert isinstance(state, tenon.Tensor) and state.dtype is tenon.uint8 and tuple(state.shape) == (5056,)
    assert tenon.equal(tenon.randn(5), expected)


def test_generators_have_tensor_states_too():
    g = tenon.Generator().manual_seed(3)
    other = tenon.Generator()

    other.set_state(g.get_state())

    assert tenon.equal(tenon.rand(4, generator=other), tenon.rand(4, generator=g))


def test_first_numbers_of_seed_one_are_pytorchs():
    tenon.manual_seed(1)

    np.testing.assert_allclose(tenon.randn(2, 3)[0].numpy(), [0.6614, 0.2669, 0.0617], atol=5e-5)


@pytest.mark.draws
@pytest.mark.oracle
def test_states_of_tenon_and_pytorch_are_interchangeable():
    torch = pytest.importorskip("torch", reason="parity with PyTorch needs the extra `oracle`")
    torch.manual_seed(5)
    torch.randn(21)

    tenon.set_rng_state(torch.get_rng_state())
    assert tenon.randn(7).tolist() == torch.randn(7).tolist()

    tenon.rand(100)
    torch.set_rng_state(torch.from_numpy(tenon.get_rng_state().numpy()))
    assert tenon.randn(99).tolist() == torch.randn(99).tolist()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("value", ["axis", "gradient"])
@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("normal_", "mean"),
        ("uniform_", "from"),
        ("exponential_", "lambd"),
        ("cauchy_", "median"),
        ("log_normal_", "mean"),
        ("geometric_", "p"),
    ],
)
def test_parameters_of_draws_in_place_are_numbers(method, argument, value, compiled):
    parameter = tenon.full((3,), 0.5) if value == "axis" else tenon.tensor(0.5, requires_grad=True)
    draw = lambda x, p: getattr(x.clone(), method)(p)  # noqa: E731

    function = tenon.compile(draw) if compiled else draw

    for _ in range(3):
        with pytest.raises(
            TypeError, match=rf"argument '{argument}' \(position 1\) must be float, not Tensor"
        ):
            function(tenon.ones(3), parameter)
        assert draw(tenon.ones(3), tenon.tensor(0.5)).shape == (3,)

"""First-party parametrizations and the older norms: values, gradients and buffers are torch's."""

import importlib
import warnings

import numpy as np
import pytest

import tenon

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]

LAYERS = {
    "tall": ("Linear", (3, 5), (2, 3)),
    "wide": ("Linear", (5, 3), (2, 5)),
    "square": ("Linear", (4, 4), (2, 4)),
    "convolution": ("Conv2d", (2, 3, 3), (2, 2, 5, 5)),
    "transposed": ("ConvTranspose2d", (2, 3, 3), (2, 2, 5, 5)),
}
WAYS = {
    **{f"weight_norm {dim}": ("weight_norm", {"dim": dim}) for dim in (0, 1, -1, None)},
    **{f"spectral_norm {options}": ("spectral_norm", options) for options in ({}, {"n_power_iterations": 3})},
    **{
        f"orthogonal {name} {based}": ("orthogonal", {"orthogonal_map": name, "use_trivialization": based})
        for name in ("matrix_exp", "cayley", "householder")
        for based in (True, False)
    },
}


def trained(lib, attach, layer):
    """Outputs and gradients of four steps, the last in evaluation, then every buffer."""
    kind, arguments, shape = LAYERS[layer]
    lib.manual_seed(0)
    module = getattr(lib.nn, kind)(*arguments).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        attach(lib.nn.utils, module)
    x = lib.tensor(np.random.default_rng(0).standard_normal(shape))
    optimizer = lib.optim.SGD(module.parameters(), lr=0.1)
    seen = []
    for step in range(4):
        module.train(step < 3)
        optimizer.zero_grad()
        out = module(x)
        out.sin().sum().backward()
        seen += [out.detach().numpy(), *(p.grad.numpy().copy() for p in module.parameters())]
        optimizer.step()
    return seen + [buffer.numpy() for buffer in module.buffers()], list(module.state_dict())


def assert_same(attach, layer):
    ours, our_names = trained(tenon, attach, layer)
    theirs, their_names = trained(torch, attach, layer)
    assert our_names == their_names
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.draws
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("way", WAYS)
def test_parametrizations_train_as_torchs(way, layer):
    name, options = WAYS[way]
    assert_same(lambda utils, module: getattr(utils.parametrizations, name)(module, **options), layer)


@pytest.mark.draws
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_the_older_norms_train_as_torchs(name, layer):
    assert_same(lambda utils, module: getattr(utils, name)(module), layer)


@pytest.mark.parametrize("step", ["spectral_norm", "weight_norm", "orthogonal", "l1_unstructured"])
def test_checkpoints_move_both_ways(step, tmp_path):
    def built(lib, seed):
        lib.manual_seed(seed)
        module = lib.nn.Linear(4, 4)
        utils = importlib.import_module(f"{lib.__name__}.nn.utils.parametrizations")
        if step == "l1_unstructured":
            importlib.import_module(f"{lib.__name__}.nn.utils.prune").l1_unstructured(module, "weight", 0.5)
        else:
            getattr(utils, step)(module)
        return module.eval()

    def assert_equal(a, b):
        x = np.ones((1, 4), np.float32)
        np.testing.assert_allclose(
            a(tenon.tensor(x)).detach().numpy(), b(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6
        )

    ours, theirs = built(tenon, 1), built(torch, 2)
    tenon.save(ours.state_dict(), tmp_path / "ours.pt")
    theirs.load_state_dict(torch.load(tmp_path / "ours.pt"))
    assert_equal(ours, theirs)
    theirs = built(torch, 3)
    torch.save(theirs.state_dict(), tmp_path / "theirs.pt")
    ours.load_state_dict(tenon.load(tmp_path / "theirs.pt"))
    assert_equal(ours, theirs)

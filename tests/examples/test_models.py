"""The models in ``examples/models`` and the scripts in ``ports``: the same files under torch and under tenon.

Only lines that import differ. Weights go both ways as ``.pt`` and ``.safetensors``; outputs, gradients and ten
steps of training agree.
"""

from __future__ import annotations

import contextlib
import gc
import io
import re
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import tenon

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
PORTS = Path(__file__).resolve().parent / "ports"
NAMES = sorted(path.stem for path in MODELS.glob("*.py"))
#: Of the two that are made of convolutions, CI trains the larger one.
TRAINED = [pytest.param(name, marks=pytest.mark.slow) if name == "unet" else name for name in NAMES]


def under(lib, name):
    """The example ``name`` as a module of ``lib``, which its import line names."""
    text = (MODELS / f"{name}.py").read_text(encoding="utf-8")
    assert len(re.findall(r"\btenon\b", text)) == 1, "an example names the library once"
    names = {"__name__": f"{name}_{lib.__name__}"}
    text = text.replace("import tenon as torch", f"import {lib.__name__} as torch")
    exec(compile(text, f"{name}.py", "exec"), names)
    return SimpleNamespace(**names)


def made(lib, name, seed=0):
    module = under(lib, name)
    lib.manual_seed(seed)
    return module, module.make()


def loss_and_gradients(module, model):
    """In float64: networks of norms over a few samples magnify rounding a thousand times."""
    model.double().zero_grad()
    parts = [part.double() if part.dtype.is_floating_point else part for part in module.batch(3)]
    loss = module.loss_of(model, parts)
    loss.backward()
    return [loss.detach().numpy(), *(p.grad.numpy() for p in model.parameters())]


def arrays(state):
    return {key: value.detach().numpy() for key, value in state.items()}


def saved(lib, state, path):
    """Write ``state`` as a user of ``lib`` would, in the format that the suffix names."""
    if lib is torch and path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file({key: value.clone() for key, value in state.items()}, path)
    else:
        lib.save(state, path)


def load_into(lib, model, path):
    """Tied weights are in a ``.safetensors`` file once, as torch's own ``save_model`` leaves them."""
    if lib is torch and path.suffix == ".safetensors":
        from safetensors.torch import load_model

        load_model(model, path)
    else:
        model.load_state_dict(lib.load(path))


@pytest.mark.draws
@pytest.mark.parametrize("name", TRAINED)
def test_weights_go_both_ways(name, tmp_path):
    sides = {lib: made(lib, name, seed) for seed, lib in enumerate((torch, tenon))}
    for lib, other in ((torch, tenon), (tenon, torch)):
        module, model = sides[lib]
        module.train(model, 1)
        expected = arrays(model.state_dict())

        for suffix in (".pt", ".safetensors"):
            path = tmp_path / f"{lib.__name__}{suffix}"
            saved(lib, model.state_dict(), path)
            fresh = sides[other][0].make()
            load_into(other, fresh, path)

            found = arrays(fresh.state_dict())
            assert list(found) == list(expected)
            for key, value in expected.items():
                np.testing.assert_array_equal(found[key], value, err_msg=key)
        compared = (loss_and_gradients(module, model), loss_and_gradients(sides[other][0], fresh))
        for a, b in zip(*compared, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


#: Fewer than ten where rounding grows a thousandfold within them, and differs most without AVX2.
STEPS = {"resnet": 5}


@pytest.mark.parametrize("name", TRAINED)
def test_ten_steps_agree(name):
    # PyTorch sets the threads of the OpenMP that oneDNN may share with it, and the order of sums with them.
    tenon.set_num_threads(tenon.get_num_threads())
    runs = []
    for lib in (tenon, torch):
        module, model = made(lib, name)
        runs.append((module.train(model, STEPS.get(name, 10)), arrays(model.state_dict())))

    (ours, weights), (theirs, expected) = runs
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    assert list(weights) == list(expected)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short(name):
    assert len((MODELS / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 150


def test_the_language_model_goes_on_as_torchs():
    found = []
    for lib in (tenon, torch):
        module, model = made(lib, "gpt2")
        module.train(model, 3)
        found.append(model.generate(lib.zeros(2, 1, dtype=lib.long), 10).tolist())

    assert found[0] == found[1]


@pytest.mark.manual
def test_ten_steps_of_gpt2_small_agree():
    losses = []
    for lib in (tenon, torch):
        module = under(lib, "gpt2")
        lib.manual_seed(0)
        model = module.make(module.SMALL)
        losses.append(module.train(model, 10, lambda step, m=module: m.batch(step, m.SMALL, length=16)))
        del model, module
        gc.collect()

    np.testing.assert_allclose(*losses, rtol=0, atol=1e-4)


def printed(lib, name, monkeypatch):
    """What the script ``name`` prints with its imports taken from ``lib``."""
    text = (PORTS / f"{name}.py").read_text(encoding="utf-8")
    text = re.sub(r"^import torch$", f"import {lib.__name__} as torch", text, flags=re.M)
    text = re.sub(r"^(import|from) torch\b(?! as)", rf"\1 {lib.__name__}", text, flags=re.M)
    text = text.replace("import torch as torch", "import torch")
    out, script = io.StringIO(), ModuleType(f"port_{name}")
    monkeypatch.setitem(sys.modules, script.__name__, script)
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        if lib is torch:
            warnings.simplefilter("ignore")
        exec(compile(text, f"{name}.py", "exec"), script.__dict__)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "image_models" else ())
        for name in sorted(path.stem for path in PORTS.glob("*.py"))
    ],
)
def test_a_public_style_needs_only_the_import_changed(name, monkeypatch):
    ours, theirs = (printed(lib, name, monkeypatch) for lib in (tenon, torch))

    assert len(ours) == len(theirs) > 5
    for line, expected in zip(ours, theirs, strict=True):
        words = zip(line.split(), expected.split(), strict=True)
        for word, wanted in words:
            if re.fullmatch(r"-?\d+\.\d+", wanted):
                assert float(word) == pytest.approx(float(wanted), rel=1e-3, abs=2e-4), line
            else:
                assert word == wanted

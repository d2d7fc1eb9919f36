"""The reference builds from the docstrings, and every public name has one."""

import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load():
    spec = importlib.util.spec_from_file_location("build_reference", ROOT / "docs" / "build_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load()


def documented(thing):
    own = getattr(thing, "__doc__", None)
    inherited = not isinstance(thing, type) or any(own == base.__doc__ for base in thing.__mro__[1:])
    return bool(own and own.strip()) and not (isinstance(thing, type) and inherited)


@pytest.mark.together
@pytest.mark.parametrize("name", reference.PAGES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(name)
    public = reference.public_names(module)

    bare = [n for n, thing in public.items() if not reference.is_value(thing) and not documented(thing)]

    assert public and inspect.getdoc(module)
    assert bare == []


@pytest.mark.together
@pytest.mark.parametrize("name", reference.PAGES)
def test_every_public_method_has_a_docstring(name):
    bare = []
    for public, thing in reference.public_names(importlib.import_module(name)).items():
        if isinstance(thing, type):
            parts = list(reference.members(thing))
            bare += [
                f"{public}: {head}" for head, text in zip(parts[::2], parts[1::2], strict=True) if not text
            ]

    assert bare == []


def test_everything_that_dir_lists_can_be_had():
    import tenon

    missing = [name for name in dir(tenon) if not hasattr(tenon, name)]

    assert missing == []


@pytest.mark.slow
def test_the_reference_builds(tmp_path):
    reference.main(tmp_path)

    assert {p.stem for p in tmp_path.glob("*.md")} == {"README", *reference.PAGES}
    layers = (tmp_path / "tenon.nn.md").read_text()
    assert "## Linear\n\n```python\nLinear(in_features: int, out_features: int, bias: bool = True" in layers
    tensor = (tmp_path / "tenon.md").read_text()
    assert "### Tensor.backward(" in tensor and "### Tensor.sum(" in tensor
    assert "- `float32`: `torch.float32`" in tensor
    ops = (tmp_path / "tenon.ops.md").read_text()
    assert "sum(x, *, axes, keepdims)" in ops and "<" not in "".join(
        line for line in ops.splitlines() if line.startswith("## ")
    )

"""Every name that torch's users expect exists, is documented, and is torch's."""

import inspect
import tomllib
from pathlib import Path

import pytest

import tenon

NAMES = tomllib.loads((Path(__file__).parent / "names.toml").read_text(encoding="utf-8"))
HOLDERS = {"tensor": "Tensor", "torch": ""}
TIERS = [(holder, tier) for holder in NAMES for tier in NAMES[holder]]


def holder_of(lib, holder):
    return lib.Tensor if HOLDERS[holder] else lib


def listed(holder, tier, what):
    return NAMES[holder][tier][what].split()


@pytest.mark.parametrize(("holder", "tier"), TIERS)
def test_every_listed_name_exists(holder, tier):
    found = holder_of(tenon, holder)
    absent = [n for n in listed(holder, tier, "names") if not hasattr(found, n)]

    assert sorted(absent) == sorted(listed(holder, tier, "missing"))


def test_nothing_of_tier_one_is_missing():
    assert listed("tensor", "tier1", "missing") == []
    assert listed("torch", "tier1", "missing") == []


@pytest.mark.oracle
@pytest.mark.parametrize(("holder", "tier"), TIERS)
def test_every_listed_name_is_torchs(holder, tier):
    torch = pytest.importorskip("torch")
    found = holder_of(torch, holder)

    assert [n for n in listed(holder, tier, "names") if not hasattr(found, n)] == []


@pytest.mark.parametrize(("holder", "tier"), TIERS)
def test_every_function_is_documented(holder, tier):
    found = holder_of(tenon, holder)
    names = set(listed(holder, tier, "names")) - set(listed(holder, tier, "missing"))

    silent = [
        n for n in sorted(names) if callable(getattr(found, n)) and not inspect.getdoc(getattr(found, n))
    ]

    assert silent == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tenon' has no attribute 'sofmax'"):
        _ = tenon.sofmax


def test_dir_lists_functions_classes_and_submodules():
    assert {"Tensor", "cat", "zeros", "nn", "float32", "device", "einsum"} <= set(dir(tenon))


def test_the_device_class_stays_in_place_of_its_module():
    import tenon.device  # puts the module on the package the first time

    assert str(tenon.device("cuda", 1)) == "cuda:1"
    assert isinstance(tenon.ones(1).device, tenon.device)


def test_functions_carry_their_name_and_signature():
    assert tenon.softmax.__name__ == "softmax"
    assert list(inspect.signature(tenon.softmax).parameters) == ["input", "dim", "dtype", "out"]
    assert list(inspect.signature(tenon.permute).parameters) == ["input", "dims", "out"]


@pytest.mark.oracle
def test_constants_are_torchs():
    torch = pytest.importorskip("torch")

    assert (tenon.pi, tenon.e, tenon.inf, tenon.newaxis) == (torch.pi, torch.e, torch.inf, torch.newaxis)
    assert tenon.nan != tenon.nan


def test_the_version_is_the_distributions():
    from importlib.metadata import version

    assert tenon.__version__ == tenon.version.__version__ == version("tenon-platform")

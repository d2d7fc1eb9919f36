"""The behaviour of the namespace; tests/parity compares the names in it."""

import inspect

import pytest

import tenon


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

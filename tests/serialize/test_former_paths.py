"""Pickles name modules by the paths at the time they were written: those can still be imported."""

import importlib
import pickle

import pytest

import tenon

MOVED = {
    "tenon.tensors.tensor": "tenon.core.tensor",
    "tenon.tensors.size": "tenon.core.size",
    "tenon.tensors.memory_formats": "tenon.core.formats",
    "tenon.tensors.layout": "tenon.core.layout",
    "tenon.tensors.creation.create": "tenon.core.create",
    "tenon.tensors.storage.untyped": "tenon.core.storage",
    "tenon.compat.typed_storage": "tenon.core.typed_storage",
    "tenon.tensors.methods.movement": "tenon.core.methods.movement",
    "tenon.engine.value": "tenon.core.value",
}


@pytest.mark.parametrize("present", MOVED)
def test_a_former_path_is_the_same_module(present):
    assert importlib.import_module(MOVED[present]) is importlib.import_module(present)


def test_a_pickle_that_names_former_paths_loads():
    values = [tenon.ones(2), tenon.Size([3]), tenon.channels_last, tenon.arange(4).storage()]

    text = pickle.dumps(values, protocol=0)
    for present, former in MOVED.items():
        text = text.replace(f"c{present}\n".encode(), f"c{former}\n".encode())
    assert b"ctenon.core." in text and b"ctenon.tensors" not in text
    tensor, size, layout, storage = pickle.loads(text)

    assert tensor.tolist() == [1.0, 1.0] and size == (3,) and layout is tenon.channels_last
    assert storage.tolist() == [0, 1, 2, 3]


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"tenon\.core\.nonsense"):
        importlib.import_module("tenon.core.nonsense")

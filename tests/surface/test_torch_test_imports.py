"""Names at the top of PyTorch's test files of saving: helpers of theirs, and switches without effect here."""

import os

import pytest

import tenon
from tenon import _utils_internal
from tenon._subclasses import fake_tensor
from tenon.errors import UnsupportedError
from tenon.sparse import check_sparse_tensor_invariants as invariants
from tenon.utils import _import_utils


def test_the_switch_of_sparse_checks_is_kept_and_set_back():
    @invariants(enable=True)
    def inside():
        return invariants.is_enabled()

    assert tenon.sparse.check_sparse_tensor_invariants is invariants
    assert inside() and not invariants.is_enabled()
    with invariants(), invariants(False):
        assert not invariants.is_enabled()
    invariants.enable()
    assert invariants.is_enabled()
    invariants.disable()
    with invariants() as _, pytest.raises(RuntimeError, match="already activated"):
        again = invariants()
        with again, again:
            pass
    assert not invariants.is_enabled()


def test_paths_and_optional_modules_are_found():
    assert _utils_internal.get_file_path_2("a", "b") == os.path.join("a", "b")
    assert os.path.samefile(_utils_internal.get_file_path("__init__.py"), tenon.__file__)
    assert _import_utils.check_module_exists("numpy") and not _import_utils.check_module_exists("no_such_one")
    assert (_import_utils.import_dill() is not None) == _import_utils.dill_available()


def test_no_tensor_is_fake():
    assert not isinstance(tenon.ones(2), fake_tensor.FakeTensor)
    for make in (fake_tensor.FakeTensorMode, fake_tensor.FakeTensorConverter, fake_tensor.FakeTensor):
        with pytest.raises(UnsupportedError, match="fake tensors are not supported"):
            make()

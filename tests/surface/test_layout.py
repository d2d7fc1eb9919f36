"""``layout`` and ``pin_memory`` of factory functions; other values are errors."""

import copy

import pytest

import tenon
from tenon.errors import UnsupportedError


def test_all_tensors_are_strided_and_another_layout_is_refused():
    t = tenon.zeros(2, layout=tenon.strided)

    assert t.layout is tenon.strided is tenon.ones_like(t, layout=tenon.strided).layout
    assert isinstance(t.layout, tenon.layout) and repr(t.layout) == "torch.strided"
    assert copy.deepcopy(t.layout) is t.layout
    for make in (tenon.zeros, tenon.empty, tenon.randn, tenon.arange, t.new_ones):
        with pytest.raises(UnsupportedError, match=r"torch\.sparse_coo"):
            make(2, layout=tenon.sparse_coo)
    assert repr(tenon._mkldnn) == "torch._mkldnn" and t.layout is not tenon._mkldnn


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "rand", "randn", "eye", "arange"])
def test_a_word_that_a_factory_does_not_know_is_an_error(name):
    with pytest.raises(TypeError, match="colour"):
        getattr(tenon, name)(2, colour="red")


def test_normal_numbers_may_require_a_gradient():
    assert tenon.normal(0.0, 1.0, (2,), requires_grad=True).requires_grad

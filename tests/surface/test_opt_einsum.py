"""``torch.backends.opt_einsum``: how the order of contractions of ``einsum`` is chosen."""

import types

import numpy as np
import pytest

import tenon
from tenon.backends import opt_einsum
from tenon.errors import ArgumentError


@pytest.fixture
def installed(monkeypatch):
    """A stand-in for opt_einsum that contracts the last two operands first, and the calls that it received."""
    asked = []

    def contract_path(equation, *shapes, optimize, **options):
        asked.append((equation, shapes, optimize))
        return [(1, 2), (0, 1)], None

    monkeypatch.setattr(opt_einsum, "is_available", lambda: True)
    monkeypatch.setattr(
        opt_einsum, "get_opt_einsum", lambda: types.SimpleNamespace(contract_path=contract_path)
    )
    for name, value in (("enabled", True), ("strategy", "auto")):
        monkeypatch.setitem(vars(opt_einsum), name, value)
    return asked


def test_einsum_contracts_in_the_order_that_opt_einsum_finds(installed):
    x, y, z = (tenon.randn(n, m, requires_grad=True) for n, m in ((2, 3), (3, 4), (4, 5)))

    with opt_einsum.flags(strategy="greedy"):
        found = tenon.einsum("ij,jk,kl->li", x, y, z)
    with opt_einsum.flags(enabled=False):
        plain = tenon.einsum("ij,jk,kl->li", x, y, z)
    tenon.einsum("ij,jk", x, y)  # two operands have one order

    assert installed == [("ij,jk,kl->li", ((2, 3), (3, 4), (4, 5)), "greedy")]
    np.testing.assert_allclose(found.tolist(), plain.tolist(), rtol=1e-5, atol=1e-6)
    first, second = (tenon.autograd.grad(each.sum(), (x, y, z)) for each in (found, plain))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-5, atol=1e-6)


def test_switches_that_would_change_nothing_are_refused(installed, monkeypatch):
    assert opt_einsum.set_flags(True, "optimal") == (True, "auto") and opt_einsum.strategy == "optimal"
    with pytest.raises(ValueError, match="must be one of"):
        opt_einsum.strategy = "best"
    opt_einsum.enabled = False
    with pytest.raises(ArgumentError, match="not enabled"):
        opt_einsum.strategy = "auto"

    monkeypatch.setattr(opt_einsum, "is_available", lambda: False)
    for setting in ({"enabled": True}, {"strategy": "auto"}):
        with pytest.raises(ArgumentError, match="opt_einsum is not available"), opt_einsum.flags(**setting):
            pass
    with opt_einsum.flags(enabled=False):
        assert not opt_einsum.enabled

"""PyTorch's module ``torch._subclasses.meta_utils``: compare the metadata of two tensors."""

from __future__ import annotations

from collections.abc import Callable

from tenon.tensors.tensor import Tensor

__all__ = ["assert_metadata_eq"]


def assert_metadata_eq(
    assert_eq: Callable[[object, object], None],
    m1: Tensor,
    m2: Tensor,
    *,
    skip_symbolic: bool = False,
    skip_leaf: bool = False,
) -> None:
    """Call ``assert_eq`` with each property of two tensors, of their gradients and of the bases of views.

    ``skip_symbolic`` leaves out sizes and strides, ``skip_leaf`` whether they are leaves.
    """
    names = ["dtype", "requires_grad"] + ([] if skip_leaf else ["is_leaf"])
    calls = ["is_inference", "is_conj", "is_neg", "_is_view"]
    calls += [] if skip_symbolic else ["size", "stride", "storage_offset"]
    for name in names:
        assert_eq(getattr(m1, name), getattr(m2, name))
    for name in calls:
        assert_eq(getattr(m1, name)(), getattr(m2, name)())
    grads = [t.grad if t.is_leaf or t.retains_grad else None for t in (m1, m2)]
    assert_eq(grads[0] is not None, grads[1] is not None)
    bases = [m1._base, m2._base] if m1._is_view() else [None, None]
    for first, second in (grads, bases):
        if first is None or second is None:
            continue
        assert_metadata_eq(assert_eq, first, second, skip_symbolic=skip_symbolic, skip_leaf=skip_leaf)

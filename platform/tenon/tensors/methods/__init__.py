"""Tensor's methods, by what they do. They call ops by name through the op table and import none."""

from __future__ import annotations

from tenon.tensors.methods.arithmetic import Arithmetic
from tenon.tensors.methods.autograd import Autograd
from tenon.tensors.methods.convert import Convert
from tenon.tensors.methods.elsewhere import Elsewhere
from tenon.tensors.methods.fill import Fill
from tenon.tensors.methods.forms import through_method
from tenon.tensors.methods.indexing import Indexing
from tenon.tensors.methods.matrix import Matrix
from tenon.tensors.methods.memory import Memory
from tenon.tensors.methods.movement import Movement
from tenon.tensors.methods.numeric import Numeric
from tenon.tensors.methods.numpy_names import take_both
from tenon.tensors.methods.overriding import Overriding
from tenon.tensors.methods.placement import Placement
from tenon.tensors.methods.products import Products
from tenon.tensors.methods.reduction import Reduction
from tenon.tensors.methods.scan import Scan
from tenon.tensors.methods.splitting import Splitting
from tenon.tensors.methods.titles import title_all

ALL_METHODS = (
    Arithmetic, Reduction, Movement, Indexing, Convert, Autograd, Fill, Numeric, Products, Placement, Scan,
    Matrix, Memory, Splitting, Elsewhere, Overriding,
)  # fmt: skip

for _family in ALL_METHODS:
    take_both(_family)
    for _name, _member in vars(_family).items():
        if getattr(_member, "__name__", "") == "method":  # made by a factory
            _member.__name__, _member.__qualname__ = _name, f"{_family.__name__}.{_name}"
for _name in ("cumsum", "cumprod", "tril", "triu"):
    setattr(Arithmetic, f"{_name}_", through_method(_name))
title_all(ALL_METHODS)

"""Tensor's methods, by what they do. They call ops by name through the op table and import none."""

from __future__ import annotations

from tenon.core.methods.arithmetic import Arithmetic
from tenon.core.methods.autograd import Autograd
from tenon.core.methods.convert import Convert
from tenon.core.methods.elsewhere import Elsewhere
from tenon.core.methods.fill import Fill
from tenon.core.methods.forms import through_method
from tenon.core.methods.indexing import Indexing
from tenon.core.methods.matrix import Matrix
from tenon.core.methods.memory import Memory
from tenon.core.methods.movement import Movement
from tenon.core.methods.numeric import Numeric
from tenon.core.methods.numpy_names import take_both
from tenon.core.methods.overriding import Overriding
from tenon.core.methods.placement import Placement
from tenon.core.methods.products import Products
from tenon.core.methods.reduction import Reduction
from tenon.core.methods.scan import Scan
from tenon.core.methods.splitting import Splitting
from tenon.core.methods.titles import title_all

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

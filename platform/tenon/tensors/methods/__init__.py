"""Tensor's methods, by what they do. They call ops by name through the op table and import none."""

from __future__ import annotations

from functools import partial

from tenon.compat.node_names import title_all
from tenon.engine.op import table
from tenon.tensors.methods.arithmetic import Arithmetic
from tenon.tensors.methods.autograd import Autograd
from tenon.tensors.methods.closeness import Closeness
from tenon.tensors.methods.convert import Convert
from tenon.tensors.methods.cumulative import Cumulative
from tenon.tensors.methods.fill import Fill
from tenon.tensors.methods.forwarded import Forwarded
from tenon.tensors.methods.indexing import Indexing
from tenon.tensors.methods.masks import Masks
from tenon.tensors.methods.matrix import Matrix
from tenon.tensors.methods.memory import Memory
from tenon.tensors.methods.movement import Movement
from tenon.tensors.methods.numeric import Numeric
from tenon.tensors.methods.numpy_names import accept_numpy_names
from tenon.tensors.methods.op_methods import attach
from tenon.tensors.methods.ordering import Ordering
from tenon.tensors.methods.overriding import Overriding
from tenon.tensors.methods.placement import Placement
from tenon.tensors.methods.products import Products
from tenon.tensors.methods.properties import Properties
from tenon.tensors.methods.rearrangement import Rearrangement
from tenon.tensors.methods.reduction import Reduction
from tenon.tensors.methods.splitting import Splitting
from tenon.tensors.methods.statistics import Statistics

ALL_METHODS = (
    Arithmetic, Closeness, Reduction, Ordering, Movement, Rearrangement, Indexing, Masks, Convert, Properties,
    Autograd, Fill, Numeric, Products, Placement, Statistics, Cumulative, Matrix, Memory, Splitting,
    Forwarded, Overriding,
)  # fmt: skip

for _family in ALL_METHODS:
    accept_numpy_names(_family)
    for _name, _member in vars(_family).items():
        if getattr(_member, "__name__", "") == "method":  # made by a factory
            _member.__name__, _member.__qualname__ = _name, f"{_family.__name__}.{_name}"
title_all(ALL_METHODS)
table.for_each(partial(attach, ALL_METHODS))

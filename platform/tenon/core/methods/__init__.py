"""Tensor's methods, by what they do. They call ops by name through the op table and import none."""

from __future__ import annotations

from tenon.core.methods.arithmetic import Arithmetic
from tenon.core.methods.autograd import Autograd
from tenon.core.methods.convert import Convert
from tenon.core.methods.fill import Fill
from tenon.core.methods.indexing import Indexing
from tenon.core.methods.movement import Movement
from tenon.core.methods.reduction import Reduction

ALL_METHODS = (Arithmetic, Reduction, Movement, Indexing, Convert, Autograd, Fill)

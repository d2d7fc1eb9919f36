"""Python's operators: their syntax in generated code, and those with a reflected form."""

from __future__ import annotations

import operator as o
from typing import Any

#: Function of ``operator`` -> the expression.
OPERATOR_FORMATS: dict[Any, str] = {  # by a function
    o.eq: "{} == {}", o.ne: "{} != {}", o.lt: "{} < {}", o.gt: "{} > {}", o.le: "{} <= {}", o.ge: "{} >= {}",
    o.pos: "+{}", o.neg: "-{}", o.invert: "~{}", o.getitem: "{}[{}]",
    o.add: "{} + {}", o.sub: "{} - {}", o.mul: "{} * {}", o.floordiv: "{} // {}", o.truediv: "{} / {}",
    o.mod: "{} % {}", o.pow: "{} ** {}", o.lshift: "{} << {}", o.rshift: "{} >> {}", o.and_: "{} & {}",
    o.or_: "{} | {}", o.xor: "{} ^ {}", o.matmul: "{} @ {}",
}  # fmt: skip
#: Function of ``operator`` -> the statement.
INPLACE_FORMATS: dict[Any, str] = {  # by a function
    o.iadd: "{} += {}", o.iand: "{} &= {}", o.ifloordiv: "{} //= {}", o.ilshift: "{} <<= {}",
    o.imod: "{} %= {}", o.imul: "{} *= {}", o.imatmul: "{} @= {}", o.ior: "{} |= {}", o.ipow: "{} **= {}",
    o.irshift: "{} >>= {}", o.isub: "{} -= {}", o.itruediv: "{} /= {}", o.ixor: "{} ^= {}",
    o.setitem: "{}[{}] = {}",
}  # fmt: skip
#: Operators that Python also calls on the right operand, ``__radd__``.
REFLECTED = (
    o.add, o.sub, o.mul, o.floordiv, o.truediv, o.mod, o.pow, o.lshift, o.rshift, o.and_, o.or_, o.xor,
    o.matmul,
)  # fmt: skip

"""Names for annotations of values that have no common class; to a type checker each is ``Any``.

Use them in place of a bare ``Any``, and ``object`` for a value that is only passed on, compared or printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

#: The array of a backend: ``numpy.ndarray``, ``cupy.ndarray`` or ``jax.Array``. They share NumPy's interface
#: and no class, and the platform may not import the libraries of backends.
Array: TypeAlias = Any
#: A module or object with the functions of NumPy's namespace: ``numpy``, ``cupy`` or a backend's own. ``xp``
#: in forwards.
ArrayNamespace: TypeAlias = Any
#: A namespace with the ops as functions: ``tenon.ops``, a backend's kernels or the shape rules; ``f`` in
#: rules. Its attributes are generated from the op table.
OpNamespace: TypeAlias = Any
#: A value inside of a rule: a tensor, an array or an Aval, as the rule's ``f`` takes it.
Operand: TypeAlias = Any
#: What an op returns, or its forward or shape rule: an operand, or a tuple of them for several outputs.
OpResult: TypeAlias = Any
#: One attribute of an op's call. The keyword-only parameters of the op's ``infer`` state the type of each.
Attr: TypeAlias = Any
#: The attributes of an op's call, by name.
Attrs: TypeAlias = dict[str, Attr]
#: A dtype of NumPy's, of any scalar type.
NumpyDType: TypeAlias = np.dtype[Any]
#: Tensors in tuples, lists, dicts and dataclasses of any depth, as modules and compiled functions take and
#: return them; Python's type system has no type for "the same structure with other leaves".
Nested: TypeAlias = Any
#: The positional arguments of an op's call: tensors, numbers, and None where an input is optional.
Arguments: TypeAlias = tuple[Any, ...]
#: A gradient inside of a backward pass: an array, or a tensor where the pass runs on tensors (with
#: ``create_graph``); for a node with several outputs a list of these, with None where no gradient arrived.
Gradient: TypeAlias = Any
#: A kernel, a forward or a rule: its parameters are the inputs and attrs of its op, which differ by op.
OpFunction: TypeAlias = Callable[..., Any]
#: An argument that is passed on to a callable with a signature of its own, or a result that is passed back.
#: A type checker refuses ``object`` there, and a ParamSpec where the callable is not an argument too.
Forwarded: TypeAlias = Any

"""Functions that are a tensor's method called on the first argument: ``tenon.exp(x)`` is ``x.exp()``.

One mechanism makes them all from the methods: torch's parameter name ``input``, NumPy's ``axis`` and
``keepdims``, ``out=``, and the two refusals that torch makes (a first argument that is no tensor; ``out=``
where a gradient would be lost).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tenon.dtypes import scalar_name
from tenon.engine.value import Value
from tenon.errors import DTypeError
from tenon.tensors.creation.create import as_tensor
from tenon.tensors.creation.factories import write_out, written
from tenon.tensors.overlap import refuse_overlap, refuse_partial
from tenon.tensors.rerouting import ask_first
from tenon.tensors.results import NamedResult
from tenon.tensors.tensor import Tensor

#: Functions whose result is no tensor, so that they take no ``out``.
_PLAIN = "allclose equal is_complex is_floating_point is_nonzero is_same_size is_signed numel"
#: Functions that take a Python number in the place of their first tensor, as in torch, and which of them take
#: one in the place of the second as well.
_NUMBERS = """
    add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor div divide float_power
    floor_divide mul multiply pow remainder sub subtract true_divide xlogy
"""
_ONLY_NUMBERS = frozenset(
    ["add", "div", "divide", "floor_divide", "mul", "multiply", "sub", "subtract", "true_divide"]
)
_ELEMENTWISE = """
    abs absolute acos acosh addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh
    asin asinh atan atan2 atanh bitwise_not ceil clamp clamp_max clamp_min clip clone conj conj_physical
    copysign cos cosh deg2rad digamma eq erf erfc erfinv exp exp2 expm1 fix floor fmax fmin fmod frac
    frexp gcd ge greater greater_equal gt heaviside hypot i0 igamma igammac isclose isfinite isinf isnan
    isneginf isposinf isreal lcm ldexp le lerp less less_equal lgamma log log10 log1p log2 logaddexp
    logaddexp2 logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum
    mvlgamma nan_to_num ne neg negative nextafter not_equal positive rad2deg reciprocal relu round rsqrt
    sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc
"""
_REDUCING = """
    all amax amin aminmax any argmax argmin argsort bincount corrcoef count_nonzero cov cummax cummin
    cumprod cumsum diff dist hash_tensor histc kthvalue log_softmax logcumsumexp logsumexp max mean median
    min mode msort nanmean nanmedian nanquantile nansum norm prod quantile renorm softmax sort std sum
    topk unique unique_consecutive var
"""
_MOVING = """
    argwhere broadcast_to chunk detach diagonal diagonal_scatter dsplit flatten flip fliplr flipud gather
    hsplit index_add index_copy index_fill index_put index_select masked_scatter masked_select moveaxis
    movedim narrow permute put ravel repeat_interleave reshape roll rot90 scatter scatter_add
    scatter_reduce select select_scatter slice_scatter squeeze swapaxes swapdims t take take_along_dim
    tensor_split tile transpose tril triu unbind unflatten unsqueeze vsplit
"""
_MATRICES = """
    addbmm addmm addmv addr adjoint baddbmm bmm cholesky cholesky_inverse cholesky_solve cross det diag
    diag_embed diagflat dot ger inner inverse kron logdet matmul matrix_exp matrix_power mm mv outer
    pinverse qr slogdet svd trace vdot
"""
#: Functions that write into their first argument, and some that return no new tensor: without ``out``.
_WRITING = """
    abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ atanh_
    ceil_ clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_
    exp_ expm1_ fill_ fix_ floor_ frac_ gcd_ i0_ index_put_ is_inference lcm_ ldexp_ log10_ log1p_ log2_
    log_ logit_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_ round_ rsqrt_ sigmoid_ sin_ sinc_
    sinh_ split_with_sizes sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_
"""
_RANDOM = "bernoulli multinomial"
#: Functions whose ``out`` has to be of the result's own dtype.
_EXACT = frozenset(["aminmax", "cummax", "cummin", "gather", "logcumsumexp", "mode", "multinomial", "sort"])
#: Those of them that say so in the words of a kernel.
_SCANS = frozenset(["cummax", "cummin", "logcumsumexp"])
#: Functions whose ``out`` must not lie over the memory of what they read.
_APART = frozenset(["gather", "index_select", "kthvalue", "masked_select"])
#: Functions whose ``out`` may lie exactly over what they read, but not partly.
_OVER = frozenset([*_NUMBERS.split(), *_ELEMENTWISE.split()]) - {"clone", "frexp", "masked_fill"}
#: Functions which keep their input's dtype, that of ``out`` too.
_KEEPING = frozenset(
    [
        "abs", "absolute", "bitwise_not", "ceil", "clamp", "clamp_max", "clamp_min", "clip", "conj_physical",
        "fix", "floor", "frac", "neg", "negative", "round", "sgn", "sign", "trunc",
    ]
)  # fmt: skip
_BOOLEAN = frozenset(["isneginf", "isposinf", "signbit"])
_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x2": "other"}

Function = Callable[..., Any]


def refuse(name: str, value: Any) -> TypeError:
    """The error for a first argument that is no tensor."""
    kind = type(value)
    said = f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__
    return TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {said}")


#: Functions that resize ``out`` without a warning.
_DRAWN = ("bernoulli", "multinomial")


def into(out: Any, made: Any) -> Any:
    """``made`` written into ``out``: a tensor, or a tuple of them for functions with several results."""
    if isinstance(made, tuple):
        written = [write_out(o, m) for o, m in zip(out, made, strict=True)]
        return type(made)(written) if isinstance(made, NamedResult) else tuple(written)
    return write_out(out, made)


def _check_exact(name: str, out: Any, made: Any) -> None:
    for given, found in zip(*(v if isinstance(v, tuple) else (v,) for v in (out, made)), strict=True):
        if given.raw.dtype != found.raw.dtype:
            if name in _SCANS:
                kinds = [scalar_name(v.dtype) for v in (found, given)]
                raise DTypeError(f"{name}: expected scalar_type {kinds[0]} but found {kinds[1]} for out")
            if name == "mode":
                part = "values" if found is made.values else "indices"
                raise DTypeError(
                    f"expected scalar type '{scalar_name(found.dtype)}' but got '{scalar_name(given.dtype)}'"
                    f" for {part} output"
                )
            raise DTypeError(
                f"{name}(): Expected out tensor to have dtype {found.dtype}, but got {given.dtype} instead"
            )


def derive(name: str, numbers: bool = False, plain: bool = False) -> Function:
    """The function ``name`` made from ``Tensor``'s method of that name."""
    method: Function = getattr(Tensor, name)
    parameters = list(inspect.signature(method).parameters.values())[1:]

    def function(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None and not kwargs and args and isinstance(args[0], Value):
            return method(*args)  # the common case: 0.15 us less
        if kwargs:
            kwargs = {_NUMPY_NAMES.get(k, k): v for k, v in kwargs.items()}
            if "input" in kwargs:
                args = (kwargs.pop("input"), *args)
        if not args:
            raise TypeError(f"{name}() missing 1 required positional argument: 'input'")
        if not isinstance(args[0], Value):
            if ask_first(args[0]):
                return function(*args, **({} if out is None else {"out": out}), **kwargs)
            if not numbers or not isinstance(args[0], (int, float, complex)):
                raise refuse(name, args[0])
            if not any(isinstance(a, Value) for a in (*args, *kwargs.values())):
                if name not in _ONLY_NUMBERS:
                    raise TypeError(f"{name}(): one of the first two arguments must be a Tensor, got {args}")
                args = (as_tensor(args[0]), *args[1:])
        if out is not None and (name in _APART or name in _OVER):
            check = refuse_overlap if name in _APART else refuse_partial
            for each in out if isinstance(out, tuple) else (out,):
                check(each, *(a for a in args if isinstance(a, Value)))
        made = method(*args, **kwargs)
        if out is not None and name == "bernoulli":
            made = made.to(out.dtype)
        if out is not None and (name in _EXACT or kwargs.get("dtype") is not None):
            _check_exact(name, out, made)
        if out is None:
            return made
        if name in _BOOLEAN and out.raw.dtype.kind != "b":
            raise DTypeError(f"{name} does not support non-boolean outputs.")
        if name in _KEEPING and args[0].raw.dtype == made.raw.dtype != out.raw.dtype:
            found, wanted = scalar_name(out.dtype), scalar_name(made.dtype)
            raise DTypeError(f"Found dtype {found} but expected {wanted}: {name} keeps it, in out= too.")
        return written(out, made) if name in _DRAWN else into(out, made)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "tenon"
    function.__doc__ = (
        f"{inspect.getdoc(method) or ''}\n\nThe method ``Tensor.{name}`` as a function of ``input``."
    )
    function.__signature__ = _signature(parameters, plain)  # type: ignore[attr-defined]
    return function


def _signature(parameters: list[inspect.Parameter], plain: bool) -> inspect.Signature:
    kind = inspect.Parameter
    if parameters and parameters[0].kind is kind.VAR_POSITIONAL:  # sizes, which have a keyword too
        parameters = [
            parameters[1].replace(kind=kind.POSITIONAL_OR_KEYWORD, default=kind.empty),
            *parameters[2:],
        ]
    rest = [p for p in parameters if p.kind is kind.VAR_KEYWORD]
    own = [p for p in parameters if p.kind is not kind.VAR_KEYWORD]
    out = [] if plain else [kind("out", kind.KEYWORD_ONLY, default=None)]
    return inspect.Signature([kind("input", kind.POSITIONAL_OR_KEYWORD), *own, *out, *rest])


def derive_all() -> dict[str, Function]:
    """All derived functions by name."""
    found = {name: derive(name, numbers=True) for name in _NUMBERS.split()}
    found |= {name: derive(name, plain=True) for name in [*_PLAIN.split(), *_WRITING.split()]}
    for names in (_ELEMENTWISE, _REDUCING, _MOVING, _MATRICES, _RANDOM):
        found |= {name: derive(name) for name in names.split()}
    return found

"""PyTorch's names of gradient nodes for functions that consist of several ops here, as ``MaxBackward0``.

The nodes of the results get the name; nodes of the other ops, further down the graph, keep their own. An op
states its node's name in ``Op.grad_name``. A method of several ops has no class that could do so, and is
listed in ``TITLES``; functions are decorated, ``@titled("NativeGroupNorm0")``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tenon.engine.grad_mode import MODE
from tenon.engine.tape import next_number
from tenon.engine.types import OpFunction
from tenon.engine.value import Value

F = TypeVar("F", bound=OpFunction)
#: A name without ``Backward``; two names, the first one for a tuple of results, the second one for a single
#: result; or a function that returns one of these for the arguments. "" keeps the ops' own names.
Title: TypeAlias = str | Callable[..., str]


def _if(test: Callable[..., bool], title: str, otherwise: str = "") -> Callable[..., str]:
    """Choose the title by a predicate of the arguments."""
    return lambda *args, **kwargs: title if test(*args, **kwargs) else otherwise


def _unless_binary(name: str) -> Callable[..., str]:
    """Keep the op's name for the form with two tensors, which is one op."""
    return _if(lambda x, *a, **k: "other" in k or isinstance((*a, 0)[0], Value), "", name)


def _number_or_tensor(name: str, index: int, *keywords: str) -> Callable[..., str]:
    """``name`` with 0 for a number, with 1 for a tensor as the argument at ``index`` or under a keyword."""

    def title(*args: object, **kwargs: object) -> str:
        value = args[index] if len(args) > index else next((kwargs[k] for k in keywords if k in kwargs), None)
        return f"{name}{int(isinstance(value, Value))}"

    return title


def _of_scatter(x: object, dim: object, index: object, src: object = None, **kwargs: object) -> str:
    return ("" if kwargs.get("reduce") else "Scatter0") if isinstance(src, Value) else "Scatter1"


def _has_sizes(x: object, split_size: object = 0, *args: object, **kwargs: object) -> bool:
    return isinstance(split_size, (list, tuple)) or "split_sizes" in kwargs


#: Methods whose gradient node has the name of the method: ``Addmm0`` of ``addmm``.
_NAMED_AS_METHOD = (
    "addbmm addcdiv addcmul addmm addmv addr aminmax angle baddbmm bernoulli bmm cauchy_ cholesky"
    " cholesky_inverse cholesky_solve conj_physical cummax cummin diag_embed diagonal_scatter dist"
    " exponential_ frac gather geometric_ index_add index_copy index_reduce index_select kthvalue ldexp"
    " log_normal_ logaddexp2 logit masked_scatter masked_select mode mvlgamma nan_to_num nansum narrow_copy"
    " normal_ ormqr put renorm repeat roll rot90 scatter_add scatter_reduce select_scatter slice_scatter t"
    " take topk trace uniform_ unsafe_split unsafe_split_with_sizes"
)
#: Method -> title of its gradient node. Which of several functions PyTorch records, and under which overload,
#: follows from its own definitions alone, so that the rest is a table.
TITLES: dict[str, Title] = {
    **{name: f"{''.join(map(str.capitalize, name.split('_')))}0" for name in _NAMED_AS_METHOD.split()},
    "as_strided_": "AsStrided1",
    "bernoulli_": _if(lambda x, p=0.5, **k: isinstance(p, Value), "Bernoulli1", "Bernoulli2"),
    "clamp_max": _number_or_tensor("ClampMax", 1, "max"),
    "clamp_min": _number_or_tensor("ClampMin", 1, "min"),
    "conj_physical_": "ConjPhysical1",
    "cov": "Squeeze0",
    "cross": "LinalgCross0",
    "deg2rad": "Deg2Rad0",
    "diag": _if(lambda x, *a, **k: x.raw.ndim == 1, "DiagEmbed0", "DiagonalBackward0_copy"),
    "div": _if(lambda *a, rounding_mode=None, **k: rounding_mode is not None, "Div2"),
    "index_fill": _number_or_tensor("IndexFill", 3, "value"),
    "kron": "UnsafeView0",
    "masked_fill": _number_or_tensor("MaskedFill", 2, "value"),
    "matrix_exp": "LinalgMatrixExp0",
    "max": _unless_binary("Max0 Max1"),
    "median": "Median1 Median0",
    "min": _unless_binary("Min0 Min1"),
    "nanmedian": "Nanmedian1 Nanmedian0",
    "polygamma_": "Polygamma1",
    "rad2deg": "Rad2Deg0",
    "repeat_interleave": _if(lambda x, repeats, *a, **k: isinstance(repeats, int), "View0"),
    "scatter": _of_scatter,
    "sort": _if(lambda x, *a, stable=None, **k: stable is not None, "Sort1", "Sort0"),
    "split": _if(_has_sizes, "SplitWithSizes0"),
    "squeeze": _if(lambda x, dim=None: isinstance(dim, (list, tuple)), "Squeeze2"),
    "squeeze_": _if(lambda x, dim=None: dim is None, "Squeeze3", "Squeeze4"),
    "t_": "T1",
    "tile": "Repeat0",
    "unsafe_chunk": "UnsafeSplit0",
    "unsqueeze_": "Unsqueeze1",
    "vdot": _if(lambda x, *a: x.raw.dtype.kind == "c", "Vdot0"),
    **dict.fromkeys(("dsplit", "hsplit", "tensor_split", "vsplit"), "Slice0"),
    **dict.fromkeys(("nanquantile", "quantile"), "Squeeze4"),
    **dict.fromkeys(("swapaxes_", "swapdims_", "transpose_"), "Transpose1"),
}


def titled(title: Title) -> Callable[[F], F]:
    """Decorate a function: the gradient nodes of its results are named ``title``."""

    def wrap(function: F) -> F:
        is_inplace = function.__name__.endswith("_")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:  # those of ``function``
            if not MODE.enabled:  # no node, no name
                return function(*args, **kwargs)
            # A view that is written to gets the history of its base.
            written_view = is_inplace and getattr((*args, *kwargs.values())[0], "_view", None) is not None
            start = next_number()
            result = function(*args, **kwargs)
            is_tuple = isinstance(result, tuple)
            for part in result if is_tuple else (result,):
                node = part._node if isinstance(part, Value) else None
                if node is not None and node.seq > start and not written_view:
                    names = (title if isinstance(title, str) else title(*args, **kwargs)).split()
                    if not names:
                        break
                    name = names[0] if is_tuple else names[-1]
                    node.title = name if "Backward" in name else f"{name[:-1]}Backward{name[-1]}"
            return result

        return call  # type: ignore[return-value]

    return wrap


def title_all(families: tuple[type, ...]) -> None:
    """Decorate the methods of ``TITLES`` in the classes that define them."""
    for family in families:
        for name, title in TITLES.items():
            if name in vars(family):
                setattr(family, name, titled(title)(vars(family)[name]))

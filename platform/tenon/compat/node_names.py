"""PyTorch's names of gradient nodes for functions that consist of several ops here, as ``MaxBackward0``.

The nodes of the results get the name; nodes of the other ops, further down the graph, keep their own. Methods
are listed in ``TITLES``; functions are decorated, ``@titled("NativeGroupNorm0")``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tenon.engine.grad_mode import MODE
from tenon.engine.tape import next_number
from tenon.engine.value import Value

F = TypeVar("F", bound=Callable[..., Any])
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


#: Method -> title of its gradient node.
TITLES: dict[str, Title] = {
    "addbmm": "Addbmm0", "addcdiv": "Addcdiv0", "addcmul": "Addcmul0", "addmm": "Addmm0", "addmv": "Addmv0",
    "addr": "Addr0", "aminmax": "Aminmax0", "angle": "Angle0", "baddbmm": "Baddbmm0",
    "bernoulli": "Bernoulli0", "bmm": "Bmm0", "cauchy_": "Cauchy0", "cholesky": "Cholesky0",
    "cholesky_inverse": "CholeskyInverse0", "cholesky_solve": "CholeskySolve0",
    "clamp_max": _number_or_tensor("ClampMax", 1, "max"),
    "clamp_min": _number_or_tensor("ClampMin", 1, "min"), "cov": "Squeeze0", "cross": "LinalgCross0",
    "cummax": "Cummax0", "cummin": "Cummin0", "deg2rad": "Deg2Rad0",
    "diag": _if(lambda x, *a, **k: x.raw.ndim == 1, "DiagEmbed0", "DiagonalBackward0_copy"),
    "diag_embed": "DiagEmbed0",
    "diagonal_scatter": "DiagonalScatter0", "dist": "Dist0",
    "div": _if(lambda *a, rounding_mode=None, **k: rounding_mode is not None, "Div2"),
    "dsplit": "Slice0", "exponential_": "Exponential0", "frac": "Frac0", "gather": "Gather0",
    "geometric_": "Geometric0", "hsplit": "Slice0", "index_add": "IndexAdd0", "index_copy": "IndexCopy0",
    "index_fill": _number_or_tensor("IndexFill", 3, "value"), "index_reduce": "IndexReduce0",
    "index_select": "IndexSelect0", "kron": "UnsafeView0", "kthvalue": "Kthvalue0", "ldexp": "Ldexp0",
    "log_normal_": "LogNormal0", "logaddexp2": "Logaddexp20", "logit": "Logit0",
    "masked_fill": _number_or_tensor("MaskedFill", 2, "value"), "masked_scatter": "MaskedScatter0",
    "masked_select": "MaskedSelect0", "matrix_exp": "LinalgMatrixExp0", "max": _unless_binary("Max0 Max1"),
    "median": "Median1 Median0", "min": _unless_binary("Min0 Min1"), "mode": "Mode0",
    "mvlgamma": "Mvlgamma0", "nan_to_num": "NanToNum0", "nanmedian": "Nanmedian1 Nanmedian0",
    "nanquantile": "Squeeze4", "nansum": "Nansum0", "narrow_copy": "NarrowCopy0", "normal_": "Normal0",
    "ormqr": "Ormqr0", "put": "Put0", "quantile": "Squeeze4", "rad2deg": "Rad2Deg0", "renorm": "Renorm0",
    "repeat": "Repeat0",
    "repeat_interleave": _if(lambda x, repeats, *a, **k: isinstance(repeats, int), "View0"),
    "roll": "Roll0", "rot90": "Rot900", "scatter": _of_scatter, "scatter_add": "ScatterAdd0",
    "scatter_reduce": "ScatterReduce0", "select_scatter": "SelectScatter0", 
    "slice_scatter": "SliceScatter0",
    "sort": _if(lambda x, *a, stable=None, **k: stable is not None, "Sort1", "Sort0"),
    "split": _if(_has_sizes, "SplitWithSizes0"), "squeeze": _if(
        lambda x, dim=None: isinstance(dim, (list, tuple)), "Squeeze2"
    ), "t": "T0", "take": "Take0", "tensor_split": "Slice0", "tile": "Repeat0",
    "topk": "Topk0", "trace": "Trace0", "uniform_": "Uniform0", "unsafe_split": "UnsafeSplit0",
    "unsafe_split_with_sizes": "UnsafeSplitWithSizes0", "unsafe_chunk": "UnsafeSplit0",
    **dict.fromkeys(("transpose_", "swapaxes_", "swapdims_"), "Transpose1"), "t_": "T1",
    "unsqueeze_": "Unsqueeze1", "squeeze_": _if(
        lambda x, dim=None: dim is None, "Squeeze3", "Squeeze4"
    ), "as_strided_": "AsStrided1", "polygamma_": "Polygamma1",
    "conj_physical": "ConjPhysical0", "conj_physical_": "ConjPhysical1",
    "bernoulli_": _if(lambda x, p=0.5, **k: isinstance(p, Value), "Bernoulli1", "Bernoulli2"),
    "vdot": _if(lambda x, *a: x.raw.dtype.kind == "c", "Vdot0"), "vsplit": "Slice0",
}  # fmt: skip


def titled(title: Title) -> Callable[[F], F]:
    """Decorate a function: the gradient nodes of its results are named ``title``."""

    def wrap(function: F) -> F:
        is_inplace = function.__name__.endswith("_")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not MODE.enabled:  # no node, no name
                return function(*args, **kwargs)
            # A view that is written to gets the history of its base.
            written_view = is_inplace and (*args, *kwargs.values())[0]._view is not None
            start = next_number()
            result = function(*args, **kwargs)
            is_tuple = isinstance(result, tuple)
            names = (title if isinstance(title, str) else title(*args, **kwargs)).split()
            for part in (result if is_tuple else (result,)) if names else ():
                node = part._node if isinstance(part, Value) else None
                if node is not None and node.seq > start and not written_view:
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

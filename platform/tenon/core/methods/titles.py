"""torch's names for the gradients of methods that are several ops here: ``MaxBackward0``, ``LerpBackward1``.

The node of the last op carries the name; those of the others, further down the graph, keep their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenon.core.value import Value

#: Method -> the name of its gradient, without ``Backward``; two of them where the first one is that over a
#: dimension, with indices, and the second that of all elements.
TITLES: dict[str, str] = {
    "addbmm": "Addbmm0", "addcdiv": "Addcdiv0", "addcmul": "Addcmul0", "addmm": "Addmm0", "addr": "Addr0",
    "aminmax": "Aminmax0", "angle": "Angle0", "baddbmm": "Baddbmm0", "cross": "LinalgCross0",
    "cummax": "Cummax0", "cummin": "Cummin0", "deg2rad": "Deg2Rad0", "dist": "Dist0", "frac": "Frac0",
    "index_add": "IndexAdd0", "index_select": "IndexSelect0", "kthvalue": "Kthvalue0", "ldexp": "Ldexp0",
    "logaddexp2": "Logaddexp20", "logit": "Logit0", "masked_fill": "MaskedFill0",
    "masked_select": "MaskedSelect0", "matrix_exp": "LinalgMatrixExp0", "max": "Max0 Max1",
    "median": "Median1 Median0", "min": "Min0 Min1", "mode": "Mode0", "mvlgamma": "Mvlgamma0",
    "nan_to_num": "NanToNum0", "nanmedian": "Nanmedian1 Nanmedian0", "nansum": "Nansum0",
    "rad2deg": "Rad2Deg0", "renorm": "Renorm0", "repeat": "Repeat0", "rot90": "Rot900", "sgn": "Sgn0",
    "sort": "Sort0", "take": "Take0", "tile": "Repeat0", "topk": "Topk0", "trace": "Trace0",
}  # fmt: skip


def titled(method: Callable[..., Any], title: str) -> Callable[..., Any]:
    """``method`` with the last node of its result named ``title``."""
    names = [f"{name[:-1]}Backward{name[-1]}" for name in title.split()]

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = method(self, *args, **kwargs)
        first, name = (made[0], names[0]) if isinstance(made, tuple) else (made, names[-1])
        node = first._node
        if node is not None and node is not self._node and not (len(names) == 2 and _pair(args, kwargs)):
            node.title = name
        return made

    return call


def _pair(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this is the ``max`` of two tensors, which is one op."""
    return "other" in kwargs or (bool(args) and isinstance(args[0], Value))


def title_all(families: tuple[type, ...]) -> None:
    """Wrap every method of ``TITLES`` where it is defined."""
    for family in families:
        for name, title in TITLES.items():
            if name in vars(family):
                setattr(family, name, titled(vars(family)[name], title))

"""``with_checks``: give a function checks of its flags and whole numbers.

``keepdim="x"`` would count as true, and ``dim=True`` as 1. PyTorch refuses all but bools as flags (here
NumPy's count too), and bools, also NumPy's, as integers. So do functions whose parameters are annotated as
such, but for those that PyTorch reads in Python, where anything may stand for a bool (``FREE``, ``FREE_OF``).
The checks are instructions in front of the function's own, some nanoseconds for a parameter; a decorator
would take some 300. They are those that the running Python compiles for templates. As all jumps are relative,
only the tables of exceptions and of lines change (``exception_table.py``).
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from functools import cache
from types import CodeType

import numpy as np

from tenon.tensors.exception_table import RESUME, SUPPORTED, SUSPENDS, Entry, encoded, entries, same_line

#: Parameters of any function that PyTorch reads in Python.
FREE = frozenset((
    "_stacklevel", "antialias", "average_attn_weights", "get_infos", "hard", "inplace", "need_weights",
    "recompute_scale_factor", "reduce", "return_indices", "size_average",
))  # fmt: skip
#: Such parameters of single functions, of which others check parameters of the same name.
FREE_OF = {
    "backward": ("retain_graph", "create_graph"),
    "embedding_bag": ("include_last_offset",),
    "gaussian_nll_loss": ("full",),
    "grad": (
        "retain_graph",
        "create_graph",
        "allow_unused",
        "only_inputs",
        "is_grads_batched",
        "materialize_grads",
    ),
    "linear_cross_entropy": ("ignore_index",),
    "local_response_norm": ("size",),
    **dict.fromkeys(("max_unpool1d", "max_unpool2d"), ("kernel_size", "stride", "padding")),
    "multi_head_attention_forward": ("training", "use_separate_proj_weight", "add_zero_attn", "num_heads"),
    "multi_margin_loss": ("p",),
    **dict.fromkeys(("pca_lowrank", "svd_lowrank"), ("q", "niter", "center")),
    "stft": ("center",),
    **dict.fromkeys(
        ("norm", "vector_norm", "matrix_norm"), ("keepdim",)
    ),  # which name PyTorch's own functions
    "sum": ("keepdims",),  # called keepdim in its error
    "triplet_margin_with_distance_loss": ("swap",),
    "unravel_index": ("shape",),
}
#: The kinds of checks, and parts of annotations that stand for them; ``OPTIONAL`` is a flag that may be None.
FLAG, OPTIONAL, WHOLE, SIZES = "bool", "bool | None", "int", "tuple of ints"
_SIZES = frozenset((
    "Axes", "PerAxis", "SizeLike", "Sequence[int]", "int | Sequence[int]",
    "int | list[int] | tuple[int, ...]",
))  # fmt: skip
#: NumPy's bools, each of which is one object.
_OF_NUMPY = (np.False_, np.True_)
_DEREFERENCED = dis.opmap["LOAD_DEREF"]


@cache
def _check_of(annotation: str, name: str) -> str | None:
    if annotation in (FLAG, OPTIONAL):
        return OPTIONAL if name == "requires_grad" else annotation
    kind = annotation.removesuffix(" | None")
    return WHOLE if kind == "int" else SIZES if kind in _SIZES else None


def checks_of(function: Callable[..., object]) -> dict[str, str]:
    """The parameters of ``function`` that are checked, and how."""
    free = FREE_OF.get(function.__name__, ())
    return {
        name: check
        for name, annotation in function.__annotations__.items()
        if annotation.__class__ is str
        and (check := _check_of(annotation, name)) is not None
        and name != "return"
        and name not in FREE
        and name not in free
    }


def allows(check: str, value: object) -> bool:
    """Whether ``value`` passes ``check``."""
    if check in (WHOLE, SIZES):
        return not isinstance(value, (bool, np.bool_))
    return isinstance(value, (bool, np.bool_)) or (check == OPTIONAL and value is None)


def with_checks(code: CodeType, checks: dict[str, str], name: str) -> CodeType:
    """Return a copy of ``code`` that begins with a call of the global ``name()`` if a check fails.

    The code itself if no check can be added.
    """
    if not SUPPORTED or not checks or code.co_flags & SUSPENDS or len(code.co_names) > 126:
        return code
    consts, block = list(code.co_consts), b""
    places = tuple([_place(consts, constant) for constant in (False, True, None)])
    whole = [check for check in checks.values() if check in (WHOLE, SIZES)]
    of_numpy = tuple([_place(consts, constant) for constant in _OF_NUMPY]) if whole else ()
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for parameter, check in checks.items():
        if parameter in parameters:  # and not the rest of the arguments
            is_cell = parameter in code.co_cellvars
            index = parameters.index(parameter)
            block += _check(index, is_cell, check, places, len(code.co_names))
            if check in (WHOLE, SIZES):
                block += _check(index, is_cell, check, of_numpy, len(code.co_names))
    if len(consts) > 255:
        return code
    own = code.co_code
    start = 2 * own[::2].index(RESUME) + 2
    size = len(block)
    table = [Entry(e.start + size, e.end + size, e.target + size, e.depth) for e in entries(code)]
    return code.replace(
        co_code=own[:start] + block + own[start:],
        co_consts=tuple(consts),
        co_names=(*code.co_names, name),
        co_exceptiontable=encoded(table),
        co_linetable=_with_lines(code.co_linetable, start // 2, size // 2),
        co_stacksize=max(code.co_stacksize, _template.__code__.co_stacksize),
    )


def _template(flag: object) -> None:
    if flag is not False and flag is not True:
        check()  # type: ignore[name-defined]  # noqa: F821
    body  # type: ignore[name-defined]  # noqa: B018, F821


def _template_of_optional(flag: object) -> None:
    if flag is not False and flag is not True and flag is not None:
        check()  # type: ignore[name-defined]  # noqa: F821
    body  # type: ignore[name-defined]  # noqa: B018, F821


def _template_of_integers(value: object) -> None:
    if value is False or value is True:
        check()  # type: ignore[name-defined]  # noqa: F821
    body  # type: ignore[name-defined]  # noqa: B018, F821


_TEMPLATES = {
    FLAG: _template,
    OPTIONAL: _template_of_optional,
    WHOLE: _template_of_integers,
    SIZES: _template_of_integers,
}


def _place(consts: list[object], constant: bool | np.bool_ | None) -> int:
    """The index of ``constant``, which is not 0 or 1, in ``consts``, to which it is appended if need be."""
    for index, each in enumerate(consts):
        if each is constant:
            return index
    consts.append(constant)
    return len(consts) - 1


def _check(parameter: int, is_cell: bool, check: str, places: tuple[int, ...], name: int) -> bytes:
    """The instructions that check one parameter."""
    block, variables, constants, calls = _parts(check)
    changed = bytearray(block)
    for at in variables:
        changed[at + 1] = parameter
        if is_cell:
            changed[at] = _DEREFERENCED
    for at, index in constants:
        changed[at + 1] = places[index]
    for at, bit in calls:
        changed[at + 1] = name << 1 | bit
    return bytes(changed)


@cache
def _parts(check: str) -> tuple[bytes, list[int], list[tuple[int, int]], list[tuple[int, int]]]:
    """The instructions of a template, and where they name its parameter, False, True or None, and the
    function to call, with the bit that goes with its number."""
    code = _TEMPLATES[check].__code__
    start = end = 0
    variables, constants, calls = [], [], []
    for step in dis.get_instructions(code):
        at = step.offset
        if step.opcode == RESUME:
            start = at + 2
        elif step.opname == "LOAD_GLOBAL" and step.argval == "body":
            end = at
            break
        elif step.opname.startswith("LOAD_FAST"):
            variables.append(at - start)
        elif step.opname == "LOAD_CONST":
            constants.append((at - start, (False, True, None).index(step.argval)))
        elif step.opname == "LOAD_GLOBAL":
            assert step.arg is not None
            calls.append((at - start, step.arg & 1))
    return code.co_code[start:end], variables, constants, calls


def _with_lines(table: bytes, start: int, count: int) -> bytes:
    """The line table with ``count`` instructions before number ``start``, on the line of the one before."""
    at = passed = 0
    while passed < start:
        first, begin = table[at], at
        length = (first & 7) + 1
        at += 1
        while at < len(table) and table[at] < 128:
            at += 1
        if passed + length > start:  # the entry goes on behind the checks
            kept = start - passed
            entry = bytes((first & ~7 | kept - 1,)) + table[begin + 1 : at]
            return table[:begin] + entry + same_line(count) + same_line(length - kept) + table[at:]
        passed += length
    return table[:at] + same_line(count) + table[at:]

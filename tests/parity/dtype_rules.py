"""The known reasons why calls with some dtypes differ from torch, in the order in which they are tried."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from parity.catalogue import Case
from parity.dtype_sweep import Operand
from parity.exact import further

from tenon import errors

COMPARISONS = re.compile(r"^(eq|ne|lt|le|gt|ge|less|less_equal|greater|greater_equal|not_equal|isin)_?$")
TIES = {"topk", "kthvalue", "sort", "argsort", "msort", "mode", "median", "nanmedian"}


@dataclass(frozen=True)
class Difference:
    """A call and what differs: ``kind`` as ``dtype_sweep.compare`` names it, ``words`` on both sides."""

    case: Case
    operands: tuple[Operand | None, ...]
    kind: str
    words: str

    @property
    def name(self) -> str:
        """The function's name without ``Tensor.`` and its namespace."""
        return self.case.name.rpartition(".")[2]

    @property
    def shown(self) -> list[str]:
        return ["-" if o is None else str(o) for o in self.operands]

    def has(self, *starts: str) -> bool:
        """Whether an operand's description begins with one of ``starts``."""
        return any(s.startswith(starts) or s.removeprefix("large ").startswith(starts) for s in self.shown)

    def __str__(self) -> str:
        return f"{self.case} {self.shown}: {self.kind}: {self.words}"


@dataclass(frozen=True)
class Rule:
    """One row of the page."""

    key: str
    what: str
    reason: str
    fits: Callable[[Difference], bool]
    #: Values that differ may not be further from the exact ones than torch's: see ``exact.py``.
    judged: bool = False


def rule_of(difference: Difference) -> Rule | None:
    """The first rule that ``difference`` fits; None also where its values are further from the exact ones."""
    rule = next((rule for rule in RULES if rule.fits(difference)), None)
    if rule is not None and rule.judged and difference.kind.startswith("values"):
        import torch

        if further(torch, difference.case, difference.operands):
            return None
    return rule


def _raised(d: Difference) -> bool:
    """Whether tenon's error is one for callers."""
    name = d.words.partition(":")[0]
    return hasattr(errors, name) or name in ("TypeError", "IndexError", "ValueError", "OverflowError")


def _named(*names: str, kinds: str | tuple[str, ...] = "") -> Callable[[Difference], bool]:
    return lambda d: d.name.rstrip("_") in names and d.kind.startswith(kinds)


def _half_complex(d: Difference) -> bool:
    return "complex32" in d.words or ("Half" in d.words and "complex" in d.words.lower()) or (
        d.has("float16") and (d.has("complex", "(1+2j)") or (d.kind == "refuses" and "complex" in d.name))
    )  # fmt: skip


def _narrow(d: Difference) -> bool:
    return d.kind.startswith("values") and d.has("float16", "bfloat16", "large")


RULES = (
    Rule("NumPy bool and complex", "NumPy's `bool` and `complex64` scalars as operands",
         "torch reads a NumPy bool as the float 1.0, and drops the imaginary part of a NumPy complex number. Here they count as"
         " the Python numbers that they are.", lambda d: d.has("bool(", "complex64(")),
    Rule("NumPy scalars in result_type", "`result_type` of NumPy scalars",
         "torch treats every NumPy scalar as a Python float; here its own kind counts, as in every op.", _named("result_type")),
    Rule("half complex", "float16 combined with complex numbers",
         "There is no complex32: the result is complex64, of which torch's is the rounding. Two float16 parts are refused with"
         " the advice to widen them.", _half_complex, judged=True),
    Rule("undefined memory", "`resize_as_` to more elements, `data`",
         "The new elements are undefined, and memory views cannot be ordered, so nothing can be compared.", _named("resize_as", "data")),
    Rule("no kernel in torch", "results where torch raises NotImplementedError",
         "torch has no kernel for this dtype; tenon's op supports every dtype.",
         lambda d: d.kind.startswith("computes") and ("NotImplementedError" in d.words or "not implemented" in d.words)),
    Rule("a number for a tensor", "a Python number or NumPy scalar is accepted in place of a tensor",
         "It counts as a 0-d tensor, by the rules of promotion; torch requires a tensor.",
         lambda d: d.kind == "computes" and ("must be Tensor" in d.words or "expected Tensor" in d.words
                                             or "invalid combination" in d.words or "object has no" in d.words)),
    Rule("stricter in torch", "results where torch refuses a dtype, a pair of dtypes or a 0-d operand",
         "tenon promotes the operands, or the op is defined for the dtype and shape; programs that rely on torch's error must check.",
         lambda d: d.kind == "computes"),
    Rule("derivatives torch lacks", "gradients where torch has none",
         "torch's derivative is not implemented, supports fewer dtypes, or raises an error; tenon computes the formula.",
         lambda d: d.kind.startswith("computes ")),
    Rule("other errors", "both raise, with exceptions of different kinds",
         "Checks of dtype, rank and type are made in another order, so that of two faults another is reported.",
         lambda d: d.kind == "error" and _raised(d)),
    Rule("zero derivatives", "None where torch has a gradient of zeros",
         "The derivative does not depend on the operand, or is of a function to whole numbers or booleans, so the tape records"
         " nothing; torch makes zeros.", lambda d: d.kind.startswith("no ") or "None, torch (" in d.words or ", torch None" in d.words),
    Rule("numbers that wrap", "comparing uint8 with, or searching it for, a negative number",
         "torch first wraps the number to the tensor's dtype: 200 < -1 is True there. Here the true values are compared.",
         lambda d: d.has("uint8") and (COMPARISONS.match(d.name) is not None or d.name in ("searchsorted", "bucketize"))),
    Rule("order of equal elements", "indices of equal elements", "torch does not define which of equal elements comes first.",
         lambda d: d.name in TIES and d.kind.startswith("values")),
    Rule("gradients of integers in torch", "gradients of a function of a float and an integer tensor",
         "torch's formula squares or negates the integers in their own dtype, where they overflow; tenon's in the result's dtype.",
         lambda d: d.name.rstrip("_") in ("atan2", "arctan2", "zeta", "hypot", "soft_margin_loss", "ctc_loss", "copysign", "div",
                                          "divide", "true_divide") and d.kind.startswith("values of")
         and "result" not in d.kind and d.has("uint8", "int", "bool", "large int"), judged=True),
    Rule("hidden results", "dtype and shape of the further results of `embedding_bag` and `batch_norm_update_stats`",
         "They are for torch's own backward pass, and tenon's does not read them.",
         _named("embedding_bag", "batch_norm_update_stats", kinds=("dtype", "shape"))),
    Rule("alpha of booleans", "`add` of booleans with an `alpha`", "The product with a whole `alpha` is whole; torch's sum stays"
         " boolean.", _named("add", kinds="dtype")),
    Rule("differences that wrap", "`gradient` of integers whose differences overflow their dtype",
         "Both wrap, but at the ends, where three elements are combined, the order of operations differs.", _named("gradient", kinds="values")),
    Rule("losses of integers", "the dtype of losses of integer tensors",
         "Here a loss is a float; torch returns an integer where the options allow.",
         lambda d: d.kind == "dtype of result" and d.has("uint8", "int", "bool") and (d.name.endswith("loss"))),
    Rule("losses of mixed dtypes", "the dtype of a loss of two float dtypes",
         "Here the promoted dtype (the input's, if weights are given); torch uses that of one of the two, which one depends on the op.",
         lambda d: d.kind == "dtype of result" and (d.name.endswith(("loss", "with_logits", "solve_triangular")))),
    Rule("whole factors", "`addcmul` of integers and a `value` that is not an integer",
         "torch silently truncates `value` to an integer; here the product is a float.", _named("addcmul", kinds="dtype")),
    Rule("uint8 images", "`interpolate` of uint8", "torch rounds weights to 16 bits first; results may differ by 1.",
         lambda d: d.name in ("interpolate", "upsample", "upsample_bilinear", "upsample_nearest") and d.has("uint8")),
    Rule("special values of complex", "complex powers, products and sigmoids of infinities, NaN and 0",
         "C does not define the results for non-finite parts; NumPy's and torch's libraries differ.",
         lambda d: d.kind.startswith("values") and d.has("complex", "(1+2j)", "-1") and d.name.rstrip("_") in
         ("pow", "sigmoid", "add", "float_power", "cumsum", "cumprod", "expit", "reciprocal", "div", "divide", "true_divide")),
    Rule("outside the domain", "gradients of `logit` outside (0, 1), poles of `polygamma`, factorizations of matrices that are not Hermitian",
         "The result is NaN, infinite or undefined there, and so are values that either library derives from it.",
         lambda d: d.name.rstrip("_") in ("logit", "polygamma", "digamma", "lgamma", "multigammaln", "mvlgamma", "cholesky", "cholesky_ex",
                                          "cholesky_inverse", "ldl_factor", "ldl_solve", "sinc", "float_power", "prod", "zeta", "logaddexp", "fmod")
         and d.kind.startswith("values")),
    Rule("bits of float32", "Bessel and Airy functions of values in the thousands, `i0` near the largest finite number",
         "tenon computes in float64 and rounds once; torch in float32.",
         lambda d: d.has("large") and d.case.name.startswith(("special.", "i0")) and d.kind.startswith("values"), judged=True),
    Rule("16 bits", "float16, bfloat16 and numbers near the limits of a dtype",
         "Intermediate results are rounded, or leave the range, in other places. None is further from the result of the same"
         " call in float64 than torch's is, but for the tolerance of the dtype.", _narrow, judged=True),
    Rule("arguments of other kinds", "`embedding_bag` of other indices, attention of integers, polynomials of complex numbers, and"
         " the like, refused with a DTypeError", "torch computes, but no result is defined: integers wrap, bits are read as another"
         " dtype, imaginary parts are dropped. The error names the dtype and the conversion.",
         lambda d: d.kind.startswith("refuses") and _raised(d)),
)  # fmt: skip

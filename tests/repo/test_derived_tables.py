"""What the op classes and methods say is what the tables of op names said that they replace."""

import tenon
from tenon.engine.op import table
from tenon.tensors.methods.function_forms import FUNCTION_FORMS

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
_METHODS = """
    as_strided as_strided_scatter index_reduce narrow_copy nonzero_static resolve_conj resolve_neg
    unsafe_chunk unsafe_split unsafe_split_with_sizes
"""
_PLAIN_OF_MEMORY = "as_strided_ is_conj is_neg resize_as_"
#: Products, where 16 bits are faster.
LOWER = ("linear", "matmul", "addmm", "conv", "convolution", "conv_input_grad")
#: Losses, products of many numbers, and what LAPACK computes.
FLOAT32 = (
    "nll_loss", "cross_entropy", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "prod", "inv", "solve", "det", "slogdet",
    "cholesky", "qr", "svdvals", "svd_parts", "eigh",
)  # fmt: skip
#: Ops that run in float32 over three spatial axes only.
FLOAT32_IN_SPACE = ("max_pool", "max_pool_indices", "avg_pool", "adaptive_avg_pool")

#: Ops that a GPU runs in float32 besides.
_CUDA_FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
    "sinh", "tan", "pow", "softmax", "log_softmax", "layer_norm", "softplus", "cumprod", "cumsum", "sum",
    "logsumexp", "vector_norm",
)  # fmt: skip


TRANSCENDENTAL = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid",
)  # fmt: skip
#: What kind of number an element is.
PREDICATES = ("isnan", "isinf", "isfinite", "signbit")
UNARY = [
    *(name for name in TRANSCENDENTAL if name != "erfc"), *PREDICATES,
    "abs", "rsqrt", "square", "reciprocal", "floor", "ceil", "trunc", "sign", "relu", "logical_not",
    "bitwise_not",
]  # fmt: skip
BINARY = [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "hypot",
    "remainder",
    "fmod",
    "floor_divide",
    "logaddexp",
]
ALIASES = {
    "absolute": "abs", "negative": "neg", "multiply": "mul", "divide": "div", "true_divide": "div",
    "subtract": "sub",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "clip": "clamp",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh", "sgn": "sign", "fix": "trunc",
}  # fmt: skip
#: Methods that have an in-place form ``name_``.
INPLACE = [
    *(name for name in UNARY if name not in (*PREDICATES, "abs")), *BINARY, "add", "sub", "mul", "div", "pow",
    "neg", "clamp", "round", "lerp", "addcmul", "addcdiv", "nan_to_num",
]  # fmt: skip


#: Binary functions whose second argument is a tensor and never a number.
_OF_TENSORS = frozenset((
    "atan2", "fmax", "fmin", "hypot", "logaddexp", "logical_and", "logical_or", "logical_xor", "maximum",
    "minimum",
))  # fmt: skip
#: Binary functions that compare numbers.
_ORDERED = frozenset(("fmax", "fmin", "ge", "gt", "le", "lt", "maximum", "minimum"))
_NOT_THE_OP = _OF_TENSORS | _ORDERED | {
    "clamp", "gcd", "heaviside", "lcm", "ldexp", "nan_to_num", "neg", "nextafter", "polygamma", "pow", "put",
    "sub",
}  # fmt: skip
#: Those that are the op after all where everything is a real number.
_OF_REALS = frozenset(("clamp", "neg", "sub"))


def forms():
    names = f"{_NUMBERS} {_PLAIN} {_WRITING} {_PLAIN_OF_MEMORY} {_ELEMENTWISE} {_REDUCING} {_MOVING} {_MATRICES} {_RANDOM} {_METHODS}"
    for name in names.split():
        first = "tensor" if name not in _NUMBERS.split() else "numbers" if name in _ONLY_NUMBERS else "number"
        plain = name in [*_PLAIN.split(), *_WRITING.split()] or name in [
            *_PLAIN_OF_MEMORY.split(),
            "as_strided",
        ]
        out = (
            "none" if plain else "exact" if name in _EXACT else "kept" if name in _KEEPING
            else "boolean" if name in _BOOLEAN else "converted" if name == "bernoulli" else "cast"
        )  # fmt: skip
        memory = "apart" if name in _APART else "same" if name in _OVER else "any"
        refusal = "scan" if name in _SCANS else "result" if name == "mode" else "function"
        yield name, (first, out, memory, name in ("bernoulli", "multinomial"), refusal)


def test_functions():
    tenon.ones(1)
    derived = {n: (f.first, f.out, f.memory, f.resizes, f.refusal) for n, f in FUNCTION_FORMS.items()}

    assert derived == dict(forms())


def test_autocast():
    tenon.ones(1)
    cpu = dict.fromkeys(LOWER, "lower") | dict.fromkeys(FLOAT32, "float32")
    cuda = cpu | dict.fromkeys(_CUDA_FLOAT32, "float32") | dict.fromkeys(("atan2", "scatter"), "widest")
    cpu |= dict.fromkeys(FLOAT32_IN_SPACE, "float32 in space")
    cuda["binary_cross_entropy"] = "refused"

    assert {op.name: op.autocast for op in table if op.autocast} == cpu
    on_cuda = {op.name: op.autocast if op.autocast_cuda is None else op.autocast_cuda for op in table}
    assert {n: p.split(":")[0] for n, p in on_cuda.items() if p} == cuda


def test_methods():
    tenon.ones(1)
    public = {op.name: op for op in table if op.public}
    by_hand = {"add", "sub", "mul", "div", "pow", "neg", "clamp", "round", "nan_to_num"}
    rarer = {  # methods of Numeric, and of Convert
        "i0", "igamma", "igammac", "xlogy", "copysign", "heaviside", "nextafter", "gcd", "lcm", "sinc", "erfc",
        "erfinv", "lgamma", "digamma", "conj",
    }  # fmt: skip

    assert set(public) == {*UNARY, *BINARY} | by_hand | rarer
    assert {alias: op.name for op in public.values() for alias in op.aliases} == ALIASES
    assert {n for n, op in public.items() if not op.inplace_form} == {*PREDICATES, "conj"}
    assert {n for n, op in public.items() if op.second_is_tensor} == _OF_TENSORS | {
        "gcd", "igamma", "igammac", "lcm", "nextafter",
    }  # fmt: skip
    assert {n for n, op in public.items() if op.orders} == _ORDERED | {"xlogy"}
    assert {n for n, op in public.items() if op.inplace_form == "reals"} == _OF_REALS
    through = {
        n for n, op in public.items() if op.inplace_form == "method" or op.second_is_tensor or op.orders
    }
    others = {"ldexp", "polygamma", "put"}  # no ops, or not public ones
    assert through | _OF_REALS == (_NOT_THE_OP - others) | {"i0", "igamma", "igammac", "xlogy"}

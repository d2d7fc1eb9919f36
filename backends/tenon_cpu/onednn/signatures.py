"""The part of oneDNN's C interface (version 3) that is used here: functions, parameters, constants.

A signature is a word with one letter per parameter: ``p`` pointer, ``i`` int, ``u`` unsigned, ``q`` int64,
``f`` float, ``z`` size_t, ``d`` a list of int64 (dims, strides, padding), ``m`` a memory descriptor, ``h``
the descriptor of the forward primitive as a hint. Without declared types ctypes would truncate a pointer to
an int.

Next: ``library.py`` declares them on the loaded library.
"""

from __future__ import annotations

#: Functions that return a status.
STATUS: dict[str, str] = {
    "dnnl_engine_create": "piz",
    "dnnl_engine_destroy": "p",
    "dnnl_stream_create": "ppu",
    "dnnl_stream_destroy": "p",
    "dnnl_memory_desc_create_with_strides": "pidid",
    "dnnl_memory_desc_create_with_tag": "pidii",
    "dnnl_memory_desc_clone": "pp",
    "dnnl_memory_desc_destroy": "p",
    "dnnl_memory_desc_query": "pip",
    "dnnl_memory_create": "pppp",
    "dnnl_memory_destroy": "p",
    "dnnl_memory_set_data_handle": "pp",
    "dnnl_primitive_attr_create": "p",
    "dnnl_primitive_attr_destroy": "p",
    "dnnl_primitive_attr_set_post_ops": "pp",
    "dnnl_primitive_attr_set_scales_mask": "pii",
    "dnnl_primitive_attr_set_zero_points_mask": "pii",
    "dnnl_primitive_attr_set_scratchpad_mode": "pi",
    "dnnl_primitive_attr_set_fpmath_mode": "pi",
    "dnnl_post_ops_create": "p",
    "dnnl_post_ops_destroy": "p",
    "dnnl_post_ops_append_sum": "pfii",
    "dnnl_post_ops_append_eltwise": "piff",
    "dnnl_post_ops_append_binary": "pip",
    "dnnl_primitive_desc_query": "piip",
    "dnnl_primitive_desc_next_impl": "p",
    "dnnl_primitive_desc_destroy": "p",
    "dnnl_primitive_create": "pp",
    "dnnl_primitive_execute": "ppip",
    "dnnl_primitive_destroy": "p",
    "dnnl_get_primitive_cache_capacity": "p",
    "dnnl_reorder_primitive_desc_create": "pppppp",
}

#: Functions that return something else: the result's letter, then the parameters.
VALUES: dict[str, tuple[str, str]] = {
    "dnnl_version": ("p", ""),
    "dnnl_get_effective_cpu_isa": ("i", ""),
    "dnnl_memory_desc_equal": ("i", "pp"),
    "dnnl_memory_desc_get_size": ("z", "p"),
    "dnnl_primitive_desc_query_md": ("p", "pii"),
}

#: Parameters of ``dnnl_<name>_primitive_desc_create`` between the engine and the attributes.
PRIMITIVES: dict[str, str] = {
    "matmul": "mmmm",
    "inner_product_forward": "immmm",
    "inner_product_backward_data": "mmmh",
    "inner_product_backward_weights": "mmmmh",
    "convolution_forward": "iimmmmdddd",
    "convolution_backward_data": "immmddddh",
    "convolution_backward_weights": "immmmddddh",
    "deconvolution_forward": "iimmmmdddd",
    "deconvolution_backward_data": "immmddddh",
    "deconvolution_backward_weights": "immmmddddh",
    "pooling_forward": "iimmddddd",
    "pooling_backward": "immdddddh",
    "batch_normalization_forward": "immfu",
    "batch_normalization_backward": "immmfuh",
    "layer_normalization_forward": "immmfu",
    "layer_normalization_backward": "immmmfuh",
    "softmax_forward": "iimmi",
    "softmax_backward": "immmih",
    "eltwise_forward": "iimmff",
    "eltwise_backward": "immmffh",
    "binary": "immm",
    "reduction": "immff",
    "lstm_forward": "ii" + "m" * 11 + "u",
    "lstm_backward": "ii" + "m" * 22 + "uh",
    "gru_forward": "ii" + "m" * 7 + "u",
    "gru_backward": "ii" + "m" * 14 + "uh",
    "lbr_gru_forward": "ii" + "m" * 7 + "u",
    "lbr_gru_backward": "ii" + "m" * 14 + "uh",
}

STATUS_NAMES = (
    "success", "out_of_memory", "invalid_arguments", "unimplemented", "last_impl_reached", "runtime_error",
    "not_required", "invalid_graph", "invalid_graph_op", "invalid_shape", "invalid_data_type",
)  # fmt: skip
OUT_OF_MEMORY, UNIMPLEMENTED = 1, 3

#: Names of NumPy dtypes -> ``dnnl_data_type_t``.
DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "int32": 4, "int8": 5, "uint8": 6}

FORWARD_TRAINING, FORWARD_INFERENCE, BACKWARD = 64, 96, 128
BACKWARD_DATA, BACKWARD_WEIGHTS = 160, 192

#: ``dnnl_alg_kind_t``.
ALGORITHMS = {
    "convolution_direct": 0x1, "convolution_winograd": 0x2, "convolution_auto": 0x3,
    "deconvolution_direct": 0xA, "deconvolution_winograd": 0xB,
    "relu": 0x20, "tanh": 0x21, "elu": 0x22, "square": 0x23, "abs": 0x24, "sqrt": 0x25, "linear": 0x26,
    "soft_relu": 0x27, "hardsigmoid": 0x28, "logistic": 0x29, "exp": 0x2A, "gelu_tanh": 0x2B, "swish": 0x2C,
    "log": 0x2D, "clip": 0x2E, "clip_v2": 0x2F, "pow": 0x30, "gelu_erf": 0x31, "round": 0x32, "mish": 0x33,
    "hardswish": 0x34,
    "relu_from_out": 0x100, "tanh_from_out": 0x101, "elu_from_out": 0x102, "sqrt_from_out": 0x103,
    "logistic_from_out": 0x104, "exp_from_out": 0x105, "clip_v2_from_out": 0x106,
    "pooling_max": 0x1FF, "pooling_avg_include_padding": 0x2FF, "pooling_avg_exclude_padding": 0x3FF,
    "vanilla_rnn": 0x1FFF, "vanilla_lstm": 0x2FFF, "vanilla_gru": 0x3FFF, "lbr_gru": 0x4FFF,
    "add": 0x1FFF0, "mul": 0x1FFF1, "max": 0x1FFF2, "min": 0x1FFF3, "div": 0x1FFF4, "sub": 0x1FFF5,
    "reduction_max": 0x2FFF2, "reduction_min": 0x2FFF3, "reduction_sum": 0x2FFF4, "reduction_mul": 0x2FFF5,
    "reduction_mean": 0x2FFF6,
    "softmax": 0x30000, "log_softmax": 0x30001,
}  # fmt: skip

#: ``dnnl_normalization_flags_t``.
USE_GLOBAL_STATS, USE_SCALE, USE_SHIFT, FUSE_NORM_RELU = 1, 2, 4, 8

#: Positions of a primitive's arguments (``DNNL_ARG_*``).
SRC, SRC_1, SRC_2, DST, DST_1, DST_2 = 1, 2, 3, 17, 18, 19
WEIGHTS, WEIGHTS_1, WEIGHTS_2, WEIGHTS_3, BIAS = 33, 34, 35, 36, 41
MEAN, VARIANCE, SCALE, SHIFT, WORKSPACE, SCRATCHPAD = 49, 50, 51, 52, 64, 80
DIFF_SRC, DIFF_SRC_1, DIFF_SRC_2, DIFF_DST, DIFF_DST_1, DIFF_DST_2 = 129, 130, 131, 145, 146, 147
DIFF_WEIGHTS, DIFF_WEIGHTS_1, DIFF_WEIGHTS_2, DIFF_WEIGHTS_3, DIFF_BIAS = 161, 162, 163, 164, 169
DIFF_SCALE, DIFF_SHIFT = 255, 256
#: Added to an argument's position: its scales, its zero points.
SCALES, ZERO_POINTS = 4096, 8192
#: Times (1 + the post-op's index), plus ``SRC_1``: the position of a binary post-op's operand.
POST_OP = 32768

QUERY_IMPLEMENTATION, QUERY_SCRATCHPAD, QUERY_ARGUMENT = 8, 136, 255
FORMAT_ANY = 1
CPU, STREAM_IN_ORDER, SCRATCHPAD_USER = 1, 1, 1
MAX_NDIMS = 12

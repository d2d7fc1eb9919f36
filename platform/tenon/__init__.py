"""tenon: PyTorch's names, everything behind them a plugin, MPI from a plain pip install.

``import tenon as torch`` runs PyTorch's Modules note. Importing this package loads no plugin, no GPU
library and no MPI: names are imported at their first use (PEP 562), from the module listed here or
from ``tenon.functions``.
"""

# ruff: noqa: F401 - the imports for type checkers are the names that others import from here
from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from tenon.compat import finder as _finder

_finder.install()  # before a module of tenon is imported by a second name

from tenon.compat.version import __version__  # noqa: E402
from tenon.distributed.processes import startup as _startup  # noqa: E402
from tenon.plugins import namespaces as _namespaces  # noqa: E402
from tenon.tensors import public_functions as _public  # noqa: E402

if TYPE_CHECKING:  # for editors and type checkers; at run time these names are imported lazily
    from tenon.amp.autocast_mode import autocast
    from tenon.dtypes import bfloat16, dtype, float16, float32, float64, int8, int16, int32, int64, uint8
    from tenon.functions.einsum import einsum
    from tenon.functions.joining import cat, stack
    from tenon.functions.searching import where
    from tenon.random import Generator, get_rng_state, manual_seed, set_rng_state
    from tenon.serialize import load, save
    from tenon.tensors.autograd.grad_mode import (
        enable_grad,
        inference_mode,
        is_grad_enabled,
        no_grad,
        set_grad_enabled,
    )
    from tenon.tensors.creation.create import as_tensor, from_numpy, tensor
    from tenon.tensors.creation.factories import empty, full, ones, zeros
    from tenon.tensors.creation.random_factories import rand, randint, randn, randperm
    from tenon.tensors.creation.ranges import arange, linspace
    from tenon.tensors.size import Size
    from tenon.tensors.tensor import Tensor

#: Public name -> the module that defines it.
_MODULE_OF: dict[str, str] = {}


def _from(module: str, names: str) -> None:
    for name in names.split():
        _MODULE_OF[name] = module


_from("tenon.tensors.tensor", "Tensor")
_from("tenon.amp.autocast_mode", "autocast")
_from(
    "tenon.amp.state",
    "get_autocast_cpu_dtype get_autocast_gpu_dtype is_autocast_cpu_enabled "
    "is_autocast_enabled set_autocast_enabled get_autocast_dtype set_autocast_dtype "
    "is_autocast_cache_enabled set_autocast_cache_enabled clear_autocast_cache autocast_increment_nesting "
    "autocast_decrement_nesting",
)
_from("tenon.nn.compiler", "compile")
_from("tenon.tensors.size", "Size")
_from("tenon.tensors.creation.create", "tensor as_tensor from_numpy")
_from(
    "tenon.tensors.creation.factories",
    "zeros ones empty full zeros_like ones_like empty_like full_like eye "
    "scalar_tensor tril_indices triu_indices empty_strided empty_permuted",
)
_from("tenon.tensors.creation.ranges", "arange linspace logspace")
_from("tenon.errors", "OutOfMemoryError")
_from("tenon.tensors.storage.untyped", "UntypedStorage")
_from("tenon.compat.typed_storage", "TypedStorage")
_from(
    "tenon.compat.legacy_storages",
    "DoubleStorage FloatStorage HalfStorage BFloat16Storage LongStorage IntStorage ShortStorage CharStorage "
    "ByteStorage BoolStorage ComplexFloatStorage ComplexDoubleStorage QInt8Storage QInt32Storage "
    "QUInt8Storage QUInt4x2Storage QUInt2x4Storage _storage_classes",
)
_from("tenon.tensors.layout", "layout strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc _mkldnn")
_from(
    "tenon.compat.qscheme",
    "qscheme per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric "
    "per_channel_affine_float_qparams",
)
_from("tenon.autograd.anomaly_mode", "is_anomaly_check_nan_enabled is_anomaly_enabled set_anomaly_enabled")
_from("tenon.func", "vmap")
_from(
    "tenon.tensors.creation.random_factories",
    "rand randn randint randperm rand_like randn_like randint_like normal",
)
_from(
    "tenon.tensors.autograd.grad_mode",
    "no_grad enable_grad set_grad_enabled inference_mode is_grad_enabled is_inference_mode_enabled",
)
_from(
    "tenon.tensors.memory_formats",
    "memory_format contiguous_format preserve_format channels_last channels_last_3d",
)
_from("tenon.tensors.printing", "set_printoptions get_printoptions")
_from(
    "tenon.dtypes",
    "dtype bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 "
    "complex128 complex32 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "float4_e2m1fn_x2 qint8 qint32 quint8 quint4x2 quint2x4 int1 int2 int3 int4 int5 int6 int7 uint1 uint2 "
    "uint3 uint4 uint5 uint6 uint7 "
    "get_default_dtype set_default_dtype",
)
_from("tenon.device", "get_default_device set_default_device")
_from("tenon.amp", "GradScaler")
_from("tenon.distributed.communication.futures", "Future")
_from("tenon.random", "Generator default_generator manual_seed seed initial_seed get_rng_state set_rng_state")
#: Functions of a plugin that arguments override, as those of the platform; registered at their first use.
_DRAWING = "tenon.distributions.drawing"
_from(
    _DRAWING,
    "poisson binomial _standard_gamma _standard_gamma_grad _sample_dirichlet _dirichlet_grad",
)
_from("tenon.serialize", "save load")
_from("tenon.nn.summary", "summary")
_from("tenon.quantization", "quantize")
_from(
    "tenon.nn.functional",
    "adaptive_avg_pool1d avg_pool1d bilinear celu conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d "
    "adaptive_max_pool1d binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss "
    "hinge_embedding_loss "
    "kl_div margin_ranking_loss max_pool1d_with_indices poisson_nll_loss rrelu rrelu_ triplet_margin_loss "
    "cosine_similarity group_norm layer_norm max_pool1d max_pool2d max_pool3d pairwise_distance pdist prelu "
    "rms_norm selu threshold",
)

_from("tenon.nn.functional.masked_softmax", "_masked_softmax _softmax _softmax_backward_data")
_from("tenon.nn.functional.general_convolution", "conv_tbc convolution")
_from(
    "tenon.nn.functional.grid_sampling",
    "_grid_sampler_2d_cpu_fallback grid_sampler grid_sampler_2d grid_sampler_3d",
)
_from("tenon.compat.backends.nnpack", "_nnpack_available")
_from("tenon.nn.functional.recurrent", "gru lstm rnn_relu rnn_tanh")
_from("tenon.nn.functional.recurrent_cells", "gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell")
_from(
    "tenon.nn.functional.torch_namespace",
    "_embedding_bag _embedding_bag_forward_only alpha_dropout batch_norm batch_norm_update_stats celu_ "
    "channel_shuffle dropout dropout_ embedding embedding_bag feature_alpha_dropout feature_dropout "
    "hardshrink instance_norm native_channel_shuffle native_dropout pixel_shuffle pixel_unshuffle selu_ "
    "threshold_",
)

_RENAMED = {
    "_disable_dynamo": ("tenon.nn.compiler", "disable"),
    "half": ("tenon.dtypes", "float16"),
    "float": ("tenon.dtypes", "float32"),
    "double": ("tenon.dtypes", "float64"),
    "short": ("tenon.dtypes", "int16"),
    "int": ("tenon.dtypes", "int32"),
    "long": ("tenon.dtypes", "int64"),
    "cfloat": ("tenon.dtypes", "complex64"),
    "cdouble": ("tenon.dtypes", "complex128"),
    "chalf": ("tenon.dtypes", "complex32"),
}
_SUBMODULES = frozenset(
    [
        "amp",
        "autograd",
        "cli",
        "compat",
        "config",
        "cuda",
        "data",
        "distributed",
        "dtypes",
        "engine",
        "errors",
        "export",
        "extend",
        "func",
        "functions",
        "fx",
        "nn",
        "ops",
        "optim",
        "plugins",
        "profiler",
        "random",
        "serialize",
        "tensors",
        "testing",
        "training",
        "utils",
    ]
)


def __getattr__(name: str) -> Any:  # each name has its own type
    if name in _RENAMED:
        module, attribute = _RENAMED[name]
    elif name in _MODULE_OF:
        module, attribute = _MODULE_OF[name], name
    elif _is_submodule(name):
        return importlib.import_module(f"tenon.{name}")
    elif name == "torch":  # the module torch has a name "torch", and some code uses torch.torch.Tensor
        return sys.modules["tenon"]
    elif name.startswith("__"):
        raise AttributeError(f"module 'tenon' has no attribute {name!r}")
    else:
        return _function(name)
    importlib.import_module("tenon.ops")  # tensor methods need the ops
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    if module == _DRAWING:
        importlib.import_module("tenon.compat.rerouting").register("torch", {name: value})
    return value


def _is_submodule(name: str) -> bool:
    path = f"tenon.{name}"
    return name in _SUBMODULES or _finder.is_second_name(path) or path in _namespaces.PROVIDED


def _function(name: str) -> object:
    functions = importlib.import_module("tenon.functions")
    if name not in functions.__all__ and name not in functions.FUNCTION_FORMS:
        raise AttributeError(f"module 'tenon' has no attribute {name!r}")
    value = globals()[name] = getattr(functions, name)
    return value


def __dir__() -> list[str]:
    functions = importlib.import_module("tenon.functions")
    public = {n for n in globals() if not n.startswith("_")} - {
        "Any",
        "TYPE_CHECKING",
        "annotations",
        "importlib",
    }
    submodules = {*_SUBMODULES, *_finder.second_names("tenon"), *_namespaces.provided_below("tenon")}
    return sorted({*public, *_MODULE_OF, *_RENAMED, *submodules, *functions.__all__, "__version__"})


_public.register_lookup(lambda name: getattr(sys.modules["tenon"], name))
_startup.prepare()  # under a launcher: thread counts, before NumPy is imported, and failure hooks

# Bound here and not at first use: importing ``tenon.device`` would put the module in the class's place.
from tenon.device import Device as device  # noqa: E402

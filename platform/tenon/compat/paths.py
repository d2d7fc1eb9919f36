"""The table of module paths: which name leads to which module, and which modules are generated.

``MODULES`` gives a module a second name; the submodules of a package follow by themselves. ``FACES`` lists
modules that only re-export, as rows of ``"package.module: name, another as name"``. They have no file;
``finder.py`` makes them when they are imported. A submodule of a package with two names is listed under the
first one: ``tenon.compat.jit.x``, and ``tenon.jit.x`` follows.
"""

from __future__ import annotations

#: Modules that lie in ``tenon.compat`` and are known as submodules of ``tenon``.
_IN_COMPAT = (
    "_C _VF __config__ _dynamo _utils _utils_internal _vmap_internals accelerator backends cpu fx hub jit"
    " multiprocessing onnx overrides serialization sparse storage types version"
)

#: Former package -> present package -> modules that moved there; ``former>present`` if renamed. Pickles of
#: tensors name modules of ``tenon.core``.
_MOVED: dict[str, dict[str, str]] = {
    "tenon.core": {
        "tenon.engine": (
            "accumulate arrivals aval backend backward backward_end depth dispatch edges following"
            " generation grad_mode handle hooks interceptor late meta op order plans precision promotion"
            " quiet rounding saving scopes second_order sweep tape undefined value watch"
        ),
        "tenon.tensors": (
            "alerts copying dlpack formats inplace keys layout methods overlap overriding printing pytree"
            " pytree_paths qscheme refusal reread rerouting results saved_names saved_numbers size"
            " swapping tensor where"
        ),
        "tenon.tensors.creation": ("create draws factories filling ranges reading repeats triangles"),
        "tenon.tensors.storage": (
            "legacy_storages>legacy storage>untyped storage_moves>moves storage_sources>sources"
            " typed_storage>typed"
        ),
        "tenon.utils": ("packages"),
    },
    "tenon.distributed": {
        "tenon.distributed.communication": (
            "communicator calls arrays reduction traffic staging world local threaded objects"
            " operations futures"
        ),
        "tenon.distributed.processes": (
            "launcher launch startup orphans siblings threads unwinding failure report watchdog heartbeats"
        ),
        "tenon.distributed.messages": (
            "collectives coalesced point_to_point exchange process_group identity"
        ),
        "tenon.distributed.replicas": (
            "data_parallel data_parallel_join data_parallel_options>options bucket_home>bucket_destination"
            " buckets gradients accumulation logical_shards shard_buffers shard_sums stepped_with comm_hooks"
        ),
    },
    "tenon.ops": {
        "tenon.ops.matrices": "broken_matrices factorization linalg solving",
        "tenon.ops.spatial": "axis_tables grid patches pooling resampling sampling window window_choice",
    },
}


def _moved() -> dict[str, str]:
    rows = {}
    for before, packages in _MOVED.items():
        for package, names in packages.items():
            for name in names.split():
                former, _, present = name.partition(">")
                rows[f"{before}.{former}"] = f"{package}.{present or former}"
    return rows


#: Another name of a module -> the module.
MODULES: dict[str, str] = {
    **{f"tenon.{name}": f"tenon.compat.{name}" for name in _IN_COMPAT.split()},
    **_moved(),
    "tenon.__future__": "tenon.nn.conversion",
    "tenon._inductor.config": "tenon.compat.inductor_config",
    "tenon._logging.scribe": "tenon.compat.scribe",
    "tenon._subclasses.fake_tensor": "tenon.compat.fake_tensor",
    "tenon._subclasses.meta_utils": "tenon.compat.tensor_metadata",
    "tenon.ao.nn": "tenon.compat.quantized_layers",
    "tenon.compat.backends.opt_einsum": "tenon.functions.contraction_order",
    "tenon.compiler": "tenon.nn.compiler",
    "tenon.futures": "tenon.distributed.communication.futures",
    "tenon.signal.windows": "tenon.functions.windows",
}

#: A module without a file -> rows of what it re-exports.
FACES: dict[str, tuple[str, ...]] = {
    "tenon._inductor": ("tenon._inductor: config",),
    "tenon._inductor.utils": ("tenon.compat.accelerator: GPU_TYPES",),
    "tenon._logging": (),
    "tenon._subclasses": (),
    "tenon.ao": ("tenon.ao: nn, quantization",),
    "tenon.ao.quantization": (
        "tenon.quantization: FakeQuantize, convert, fuse_modules, prepare, prepare_qat, quantize_dynamic",
    ),
    "tenon.compat.fx.experimental": (),
    "tenon.compat.fx.experimental.proxy_tensor": ("tenon.compat.fx: get_proxy_mode",),
    "tenon.core": (),
    "tenon.functional": (
        "tenon.functions: atleast_1d, atleast_2d, atleast_3d, block_diag, broadcast_shapes, broadcast_tensors"
        ", cartesian_prod, cdist, chain_matmul, istft, lu, meshgrid, norm, pca_lowrank, split, stft"
        ", svd_lowrank, tensordot, unique, unique_consecutive, unravel_index",
        "tenon.functions.einsum: einsum",
    ),
    "tenon.mps": ("tenon.compat.absent_device: device_count, is_available",),
    "tenon.mtia": ("tenon.compat.absent_device: device_count, is_available",),
    "tenon.random.rejection": (
        "tenon.distributions.rejection: binomial, log_factorial, log_standard_gamma, poisson",
    ),
    "tenon.signal": ("tenon.signal: windows",),
    "tenon.xpu": ("tenon.compat.absent_device: device_count, is_available",),
}

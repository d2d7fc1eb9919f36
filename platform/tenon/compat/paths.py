"""The table of module paths: which name refers to which module.

A row gives a module a second name; the submodules of a package follow by themselves. Modules that re-export
names of several others are listed in ``reexports.py``.
"""

from __future__ import annotations

#: Modules of ``tenon.compat`` that are also submodules of ``tenon``.
_IN_COMPAT = (
    "_C _VF __config__ _dynamo _utils _utils_internal _vmap_internals accelerator backends cpu hub jit"
    " multiprocessing onnx overrides serialization sparse storage types version"
)

#: Modules of ``tenon.compat.<package>`` that are also submodules of ``tenon.<package>``.
_IN_COMPAT_OF = {
    "testing": "_comparison _utils",
    "utils": "_dtype_abbrs _import_utils _python_dispatch _pytree cpp_extension deterministic packages weak",
}

#: Former package -> present package -> modules that moved there; ``former>present`` if renamed. Pickles of
#: tensors name modules of ``tenon.core``.
_MOVED: dict[str, dict[str, str]] = {
    "tenon.observe": {"tenon.profiler.observe": "crossings>event_callbacks"},
    "tenon.training": {
        "tenon.distributed.checkpoint": "randomness>random_states",
        "tenon.training.launching": "relaunch>supervisor",
    },
    "tenon.core": {
        "tenon.engine": (
            "accumulate arrivals>hooks aval backward backward_end>running_pass depth>running_pass dispatch"
            " hooks interceptor op plans quiet scopes second_order>gradient_rules sweep tape undefined>sweep"
            " value watch>watchers"
        ),
        "tenon.kernels": "backend following meta order promotion rounding",
        "tenon.tensors.autograd": "edges>nodes grad_mode handle>handles saving>saved_tensor_hooks",
        "tenon.tensors": (
            "alerts copying dlpack formats>memory_formats generation inplace keys>index_parsing"
            " late>extensions layout methods overlap>memory_overlap precision printing pytree pytree_paths"
            " refusal>missing_derivatives reread>dtype_views results>named_results size swapping tensor"
            " where>call_site"
        ),
        "tenon.tensors.creation": (
            "create draws>random_factories factories filling>random_filling ranges reading>python_data"
            " repeats>repeat_indices triangles>triangle_indices"
        ),
        "tenon.tensors.storage": ("storage>untyped storage_moves>shared_methods storage_sources>sources"),
        "tenon.compat": (
            "legacy_storages overriding qscheme rerouting saved_names>saved_attributes"
            " saved_numbers>saved_readers typed_storage"
        ),
        "tenon.compat.utils": "packages",
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
            " buckets gradients accumulation logical_shards shard_buffers shard_sums"
            " stepped_with>last_step comm_hooks"
        ),
    },
    "tenon.engine": {
        "tenon.engine": (
            "arrivals>hooks backward_end>running_pass depth>running_pass second_order>gradient_rules"
            " undefined>sweep"
        ),
        "tenon.kernels": "backend expressions following kernel_table meta order promotion rounding",
        "tenon.tensors": "generation precision",
        "tenon.tensors.autograd": "edges>nodes handle>handles saving>saved_tensor_hooks",
    },
    "tenon.autograd": {
        "tenon.autograd": (
            "context>function_context delayed>error_nodes forward_checks>gradcheck_tangents"
            " jacobians>gradcheck_jacobians onward>tangent_taping outputs>function_outputs saved>saved_values"
        ),
    },
    "tenon.functions": {
        "tenon.functions": (
            "choosing>searching control>control_flow copies>view_copies counting>histograms"
            " indefinite>ldl_factorization making>creation older_factorizations>torch_factorizations"
            " older_making>deprecated_creation"
            " questions>predicates reading>mapped_files slopes>numerical_gradient spectra>short_time_fourier"
            " typed>tensor_types"
        ),
    },
    "tenon.graph": {
        "tenon.graph": (
            "direct>numpy_calls functions>scalar_functions gradients>leaf_gradients halves>partition"
            " hooked>recorded_hooks host>side_effects lent>program_gradients lines>source_cache"
            " options>optimizer_options order>topological_sort pairs>differentiable_replay"
            " places>guarded_values plan>memory_plan virtual>virtual_memory"
        ),
    },
    "tenon.graph.passes": {
        "tenon.graph.passes": (
            "keep_old>copy_overwritten pooled_gate>gate_before_unpool pooled_relu>relu_after_pool"
            " spread_sum>sum_before_unpool takes>cluster_limits"
        ),
    },
    "tenon.nn": {
        "tenon.nn": (
            "compiled>optimized_module conversion>conversion_settings"
            " old_backward_hooks>legacy_backward_hooks placement>error_context scopes>call_listeners"
            " traverse>traversal"
        ),
    },
    "tenon.nn.functional": {
        "tenon.nn.functional": (
            "any_convolution>general_convolution cells>recurrent_cells chosen_pooling>pooling_variants"
            " linear_classes>linear_cross_entropy older_names>torch_namespace"
            " randomised_activation>randomized_relu sampling>grid_sampling"
        ),
    },
    "tenon.nn.layers": {
        "tenon.nn.layers": (
            "adaptive>adaptive_softmax chosen_pool>pool_variants positions>positional_encodings"
            " randomised_activation>randomized_relu"
        ),
    },
    "tenon.core.methods": {
        "tenon.compat": "titles>node_names",
        "tenon.tensors.methods": (
            "elsewhere>forwarded forms>op_methods old_order>deprecated_order scan>statistics"
        ),
    },
    "tenon.tensors.methods": {
        "tenon.compat": "titles>node_names",
        "tenon.tensors.methods": (
            "elsewhere>forwarded forms>op_methods old_order>deprecated_order scan>statistics"
        ),
    },
    "tenon.tensors": {
        "tenon.compat": "saved_names>saved_attributes saved_numbers>saved_readers",
        "tenon.tensors": (
            "formats>memory_formats keys>index_parsing overlap>memory_overlap public>public_functions"
            " refusal>missing_derivatives reread>dtype_views results>named_results where>call_site"
        ),
    },
    "tenon.tensors.creation": {
        "tenon.tensors.creation": (
            "draws>random_factories filling>random_filling reading>python_data repeats>repeat_indices"
            " triangles>triangle_indices"
        ),
    },
    "tenon.tensors.storage": {
        "tenon.compat": "typed>typed_storage",
        "tenon.tensors.storage": "moves>shared_methods",
    },
    "tenon.ops": {
        "tenon.compat": "standing>torch_dispatch torch_dispatch",
        "tenon.ops": (
            "kinds>dtype_queries placing>slice_scatter prod_parts>prod_gradient random_slopes>randomized_relu"
        ),
        "tenon.ops.matrices": "broken_matrices>factorization_failures factorization linalg solving",
        "tenon.ops.spatial": (
            "axis_tables grid patches pooling resampling sampling window window_choice>max_pool_indices"
        ),
    },
    "tenon.ops.matrices": {"tenon.ops.matrices": "broken_matrices>factorization_failures"},
    "tenon.ops.spatial": {"tenon.ops.spatial": "window_choice>max_pool_indices"},
}


def _moved() -> dict[str, str]:
    rows = {}
    for before, packages in _MOVED.items():
        for package, names in packages.items():
            for name in names.split():
                former, _, present = name.partition(">")
                rows[f"{before}.{former}"] = f"{package}.{present or former}"
    return rows


#: Path of a module before it moved -> its present path. Old code and files name them; they have no stubs.
FORMER = _moved()

#: Another name of a module -> the module.
MODULES: dict[str, str] = {
    **{f"tenon.{name}": f"tenon.compat.{name}" for name in _IN_COMPAT.split()},
    **{
        f"tenon.{package}.{name}": f"tenon.compat.{package}.{name}"
        for package, names in _IN_COMPAT_OF.items()
        for name in names.split()
    },
    **FORMER,
    "tenon.__future__": "tenon.nn.conversion_settings",
    "tenon._inductor.config": "tenon.compat.inductor_config",
    "tenon._logging.scribe": "tenon.compat.scribe",
    "tenon._subclasses.fake_tensor": "tenon.compat.fake_tensor",
    "tenon._subclasses.meta_utils": "tenon.compat.tensor_metadata",
    "tenon.autograd.profiler": "tenon.compat.autograd_profiler",
    "tenon.autograd.profiler_util": "tenon.compat.autograd_events",
    "tenon.ao.nn": "tenon.compat.quantized_layers",
    "tenon.compat.backends.opt_einsum": "tenon.functions.contraction_order",
    "tenon.compiler": "tenon.nn.compiler",
    "tenon.distributed._tensor": "tenon.distributed.tensor",
    "tenon.distributed.tensor._dtensor_spec": "tenon.distributed.tensor.dtensor_spec",
    "tenon.distributed.elastic.multiprocessing.errors": "tenon.compat.elastic_errors",
    "tenon.fft": "tenon.functions.fft",
    "tenon.fx._lazy_graph_module": "tenon.compat.lazy_graph_module",
    "tenon.futures": "tenon.distributed.communication.futures",
    "tenon.linalg": "tenon.functions.linalg",
    "tenon.nn.pruning": "tenon.nn.masks",
    "tenon.observe": "tenon.profiler.observe",
    "tenon.ops._c10d_functional": "tenon.distributed.tensor.collective_names",
    "tenon.ops.c10d": "tenon.distributed.tensor.collective_names",
    "tenon.ops.c10d_functional": "tenon.distributed.tensor.collective_names",
    "tenon.optim.clip": "tenon.nn.utils.clip_grad",
    "tenon.signal.windows": "tenon.functions.windows",
    "tenon.special": "tenon.functions.special",
    "tenon.utils._foreach_utils": "tenon.optim.grouping",
    "tenon.utils.data._utils.collate": "tenon.compat.utils.collate",
    "tenon.utils.data.datapipes": "tenon.compat.utils.datapipes",
    "tenon.nn.common_types": "tenon.compat.common_types",
    "tenon.utils.checkpoint": "tenon.autograd.checkpoint",
    "tenon.utils.device_states": "tenon.autograd.device_states",
    "tenon.utils.graph_exec_group": "tenon.autograd.graph_exec_group",
    "tenon.utils.selective_checkpoint": "tenon.autograd.selective_checkpoint",
    "tenon.utils.tensorboard.writer": "tenon.utils.tensorboard",
}

"""The table of modules that only re-export names: they have no file, ``finder.py`` creates them on import.

A row is ``"package.module: name, another as name"``; no rows make an empty package. A submodule of a package
with two names is listed under the first one: ``tenon.compat.utils.x``, and ``tenon.utils.x`` follows.
"""

#: A module without a file -> the rows of its re-exports.
REEXPORTS: dict[str, tuple[str, ...]] = {
    "tenon._inductor": ("tenon._inductor: config",),
    "tenon._inductor.utils": ("tenon.compat.accelerator: GPU_TYPES",),
    "tenon._logging": (),
    "tenon._ops": (
        "tenon.ops.aten: Operator as OpOverload, Operator as OpOverloadPacket",
        "tenon: ops",
    ),
    "tenon._subclasses": (),
    "tenon.ao": ("tenon.ao: nn, quantization",),
    "tenon.ao.quantization": (
        "tenon.quantization: FakeQuantize, convert, fuse_modules, prepare, prepare_qat, quantize_dynamic",
    ),
    "tenon.autograd.grad_mode": (
        "tenon.tensors.autograd.grad_mode: enable_grad, inference_mode, is_grad_enabled,"
        " is_inference_mode_enabled, no_grad, set_grad_enabled, set_multithreading_enabled",
    ),
    "tenon.core": (),
    "tenon.distributed._composable": (
        "tenon.distributed.fsdp: fully_shard",
        "tenon.distributed.fsdp.checkpoint_in_place: checkpoint",
    ),
    "tenon.distributed._composable.fsdp": (
        "tenon.distributed.fsdp: CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy,"
        " fully_shard, register_fsdp_forward_method",
    ),
    "tenon.distributed.checkpoint._dedup_save_plans": (
        "tenon.distributed.checkpoint.duplicates: dedup_save_plans",
    ),
    "tenon.distributed.checkpoint._nested_dict": (
        "tenon.distributed.checkpoint.flattening: flatten_state_dict, unflatten_state_dict",
    ),
    "tenon.distributed.checkpoint._traverse": (
        "tenon.distributed.checkpoint.flattening: get_element, set_element, traverse_state_dict",
    ),
    "tenon.distributed.checkpoint.utils": (
        "tenon.distributed.checkpoint: CheckpointException",
        "tenon.distributed.checkpoint.planner_helpers: find_state_dict_object, find_tensor_shard",
    ),
    "tenon.distributed.tensor.parallel.style": (
        "tenon.distributed.tensor.parallel: ColwiseParallel, ParallelStyle, PrepareModuleInput,"
        " PrepareModuleInputOutput, PrepareModuleOutput, RowwiseParallel, SequenceParallel",
        "tenon.distributed.tensor.parallel.parallel_style: StyleError, as_placed, first_input",
    ),
    "tenon.distributed.tensor._utils": (
        "tenon.distributed.tensor.chunks: compute_local_shape_and_global_offset",
    ),
    "tenon.distributed.tensor.device_mesh": ("tenon.distributed.device_mesh: DeviceMesh, init_device_mesh",),
    "tenon.distributed.algorithms": (
        "tenon.distributed.join: Join",
        "tenon.distributed.joinable: Joinable, JoinHook",
    ),
    "tenon.distributed.algorithms._checkpoint": (),
    "tenon.distributed.algorithms._checkpoint.checkpoint_wrapper": (
        "tenon.distributed.fsdp.checkpoint_wrapper: CheckpointImpl, CheckpointWrapper,"
        " apply_activation_checkpointing, checkpoint_wrapper",
    ),
    "tenon.distributed.algorithms.ddp_comm_hooks": (
        "tenon.distributed.algorithms.ddp_comm_hooks: default_hooks, post_localSGD_hook, powerSGD_hook",
    ),
    "tenon.distributed.algorithms.ddp_comm_hooks.default_hooks": (
        "tenon.distributed.replicas.comm_hooks: allreduce_hook, bf16_compress_hook,"
        " bf16_compress_wrapper, fp16_compress_hook, fp16_compress_wrapper",
    ),
    "tenon.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook": (
        "tenon.distributed.local_sgd: PostLocalSGDState, post_localSGD_hook",
    ),
    "tenon.distributed.algorithms.ddp_comm_hooks.powerSGD_hook": (
        "tenon.distributed.powersgd: PowerSGDState, batched_powerSGD_hook, powerSGD_hook",
    ),
    "tenon.distributed.algorithms.join": (
        "tenon.distributed.join: Join",
        "tenon.distributed.joinable: Joinable, JoinHook",
    ),
    "tenon.distributed.algorithms.model_averaging": (
        "tenon.distributed.algorithms.model_averaging: averagers, hierarchical_model_averager, utils",
    ),
    "tenon.distributed.algorithms.model_averaging.averagers": (
        "tenon.distributed.local_sgd: ModelAverager, PeriodicModelAverager",
    ),
    "tenon.distributed.algorithms.model_averaging.hierarchical_model_averager": (
        "tenon.distributed.local_sgd: HierarchicalModelAverager",
    ),
    "tenon.distributed.algorithms.model_averaging.utils": (
        "tenon.distributed.local_sgd: average_parameters, average_parameters_or_parameter_groups,"
        " get_params_to_average",
    ),
    "tenon.distributed.optim": (
        "tenon.distributed.local_sgd: PostLocalSGDOptimizer",
        "tenon.distributed.zero: ZeroRedundancyOptimizer",
    ),
    "tenon.distributed.optim.post_localSGD_optimizer": (
        "tenon.distributed.local_sgd: PostLocalSGDOptimizer",
    ),
    "tenon.distributed.optim.zero_redundancy_optimizer": ("tenon.distributed.zero: ZeroRedundancyOptimizer",),
    "tenon.distributed.elastic.multiprocessing": ("tenon.distributed.elastic.multiprocessing: errors",),
    "tenon.fx.passes.utils.common": (
        "tenon.fx.passes.utils.matcher_utils: compare_graphs",
        "tenon.fx.passes.utils.submodule_lift: HolderModule, lift_subgraph_as_module",
    ),
    "tenon.functional": (
        "tenon.functions: atleast_1d, atleast_2d, atleast_3d, block_diag, broadcast_shapes, broadcast_tensors"
        ", cartesian_prod, cdist, chain_matmul, istft, lu, meshgrid, norm, pca_lowrank, split, stft"
        ", svd_lowrank, tensordot, unique, unique_consecutive, unravel_index",
        "tenon.functions.einsum: einsum",
    ),
    "tenon.mps": ("tenon.compat.absent_device: device_count, is_available",),
    "tenon.mtia": ("tenon.compat.absent_device: device_count, is_available",),
    "tenon.nn.modules.activation": (
        "tenon.nn.layers.activation: CELU, ELU, GELU, GLU, SELU, Hardshrink, Hardsigmoid, Hardswish,"
        " Hardtanh, LeakyReLU, LogSigmoid, Mish, PReLU, ReLU, ReLU6, Sigmoid, SiLU, Softplus, Softshrink,"
        " Softsign, Tanh, Tanhshrink, Threshold",
        "tenon.nn.layers.attention: MultiheadAttention",
        "tenon.nn.layers.randomized_relu: RReLU",
        "tenon.nn.layers.softmax: LogSoftmax, Softmax, Softmax2d, Softmin",
    ),
    "tenon.nn.modules.adaptive": ("tenon.nn.layers.adaptive_softmax: AdaptiveLogSoftmaxWithLoss",),
    "tenon.nn.modules.batchnorm": (
        "tenon.nn.layers.lazy: LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d",
        "tenon.nn.layers.norm: BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm, _NormBase",
        "tenon.nn.layers.sync_batch_norm: SyncBatchNorm",
    ),
    "tenon.nn.modules.channelshuffle": ("tenon.nn.layers.resizing: ChannelShuffle",),
    "tenon.nn.modules.container": (
        "tenon.nn.containers: Container, ModuleDict, ModuleList, Sequential",
        "tenon.nn.parameter_containers: ParameterDict, ParameterList",
    ),
    "tenon.nn.modules.conv": (
        "tenon.nn.layers.conv: Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,"
        " _ConvNd",
        "tenon.nn.layers.lazy: LazyConv1d, LazyConv2d, LazyConv3d, LazyConvTranspose1d,"
        " LazyConvTranspose2d, LazyConvTranspose3d",
    ),
    "tenon.nn.modules.distance": ("tenon.nn.layers.distance: CosineSimilarity, PairwiseDistance",),
    "tenon.nn.modules.dropout": (
        "tenon.nn.layers.dropout: AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d,"
        " FeatureAlphaDropout, _DropoutNd",
    ),
    "tenon.nn.modules.flatten": ("tenon.nn.layers.flatten: Flatten, Unflatten",),
    "tenon.nn.modules.fold": ("tenon.nn.layers.resizing: Fold, Unfold",),
    "tenon.nn.modules.instancenorm": (
        "tenon.nn.layers.instance_norm: InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, _InstanceNorm",
        "tenon.nn.layers.lazy: LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d",
    ),
    "tenon.nn.modules.lazy": ("tenon.nn.lazy: LazyModuleMixin",),
    "tenon.nn.modules.linear": (
        "tenon.nn.layers.attention: NonDynamicallyQuantizableLinear",
        "tenon.nn.layers.lazy: LazyLinear",
        "tenon.nn.layers.linear: Bilinear, Identity, Linear",
    ),
    "tenon.nn.modules.linear_cross_entropy_options": (
        "tenon.nn.functional.linear_cross_entropy: LinearCrossEntropyOptions",
    ),
    "tenon.nn.modules.loss": (
        "tenon.nn.layers.likelihood: CTCLoss, GaussianNLLLoss, LinearCrossEntropyLoss, PoissonNLLLoss",
        "tenon.nn.layers.loss: BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, KLDivLoss,"
        " L1Loss, MSELoss, NLLLoss, NLLLoss2d, SmoothL1Loss, _Loss, _WeightedLoss",
        "tenon.nn.layers.margin_loss: CosineEmbeddingLoss, HingeEmbeddingLoss, MarginRankingLoss,"
        " MultiLabelMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss, SoftMarginLoss,"
        " TripletMarginLoss, TripletMarginWithDistanceLoss",
    ),
    "tenon.nn.modules.normalization": (
        "tenon.nn.layers.norm: GroupNorm, LayerNorm, RMSNorm",
        "tenon.nn.layers.response_norm: CrossMapLRN2d, LocalResponseNorm",
    ),
    "tenon.nn.modules.padding": (
        "tenon.nn.layers.padding: CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d,"
        " ConstantPad2d, ConstantPad3d, ReflectionPad1d, ReflectionPad2d, ReflectionPad3d,"
        " ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, ZeroPad1d, ZeroPad2d, ZeroPad3d",
    ),
    "tenon.nn.modules.pixelshuffle": ("tenon.nn.layers.resizing: PixelShuffle, PixelUnshuffle",),
    "tenon.nn.modules.pooling": (
        "tenon.nn.layers.pool_variants: AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,"
        " FractionalMaxPool2d, FractionalMaxPool3d, LPPool1d, LPPool2d, LPPool3d, MaxUnpool1d,"
        " MaxUnpool2d, MaxUnpool3d",
        "tenon.nn.layers.pool: AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AvgPool1d,"
        " AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d",
    ),
    "tenon.nn.modules.rnn": (
        "tenon.nn.layers.recurrent: GRU, LSTM, RNN, RNNBase",
        "tenon.nn.layers.recurrent_cells: GRUCell, LSTMCell, RNNCell, RNNCellBase",
    ),
    "tenon.nn.modules.sparse": ("tenon.nn.layers.embedding: Embedding, EmbeddingBag",),
    "tenon.nn.modules.transformer": (
        "tenon.nn.layers.transformer: Transformer, TransformerDecoder, TransformerDecoderLayer,"
        " TransformerEncoder, TransformerEncoderLayer",
    ),
    "tenon.nn.modules.upsampling": (
        "tenon.nn.layers.resizing: Upsample, UpsamplingBilinear2d, UpsamplingNearest2d",
    ),
    "tenon.nn.parallel.distributed": ("tenon.distributed.replicas.data_parallel: DistributedDataParallel",),
    "tenon.ops.cylinder": (
        "tenon.ops: airy_ai, bessel_j0, bessel_j1, bessel_y0, bessel_y1, modified_bessel_k0"
        ", modified_bessel_k1, scaled_modified_bessel_k0, scaled_modified_bessel_k1",
    ),
    "tenon.signal": ("tenon.signal: windows",),
    "tenon.utils._mode_utils": ("tenon.compat.torch_dispatch: no_dispatch",),
    "tenon.utils.data": (
        "tenon.data: BatchSampler, ChainDataset, ConcatDataset, DataLoader, Dataset, IterableDataset"
        ", RandomSampler, Sampler, SequentialSampler, StackDataset, Subset, SubsetRandomSampler"
        ", TensorDataset, WeightedRandomSampler, default_collate, default_convert, get_worker_info"
        ", random_split",
        "tenon.distributed.sampler: DistributedSampler",
        "tenon.compat.utils.datapipes: IterDataPipe, MapDataPipe, functional_datapipe",
        "tenon.utils.data: _utils, dataloader, dataset, distributed, sampler",
    ),
    "tenon.utils.data._utils": (
        "tenon.data.pool: PATIENCE as MP_STATUS_CHECK_INTERVAL",
        "tenon.data.worker_errors: ExceptionWrapper",
        "tenon.utils.data._utils: collate, worker",
    ),
    "tenon.utils.data._utils.worker": (
        "tenon.data: get_worker_info",
        "tenon.data.serving: WorkerInfo, numpy_seed as _generate_state",
    ),
    "tenon.utils.data.dataloader": (
        "tenon.data: DataLoader, default_collate, default_convert, get_worker_info",
    ),
    "tenon.utils.data.dataset": (
        "tenon.data: ChainDataset, ConcatDataset, Dataset, IterableDataset, StackDataset, Subset,"
        " TensorDataset, random_split",
    ),
    "tenon.utils.data.distributed": ("tenon.distributed.sampler: DistributedSampler",),
    "tenon.utils.data.sampler": (
        "tenon.data: BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,"
        " WeightedRandomSampler",
    ),
    "tenon.utils.dlpack": ("tenon.functions.creation: from_dlpack, to_dlpack",),
    "tenon.utils.hooks": (
        "tenon.tensors.autograd.handles: RemovableHandle",
        "tenon.nn.backward_hooks: BackwardHook",
    ),
    "tenon.utils.model_zoo": ("tenon.compat.hub: load_state_dict_from_url as load_url, tqdm",),
    "tenon.utils.serialization": ("tenon.utils.serialization: config",),
    "tenon.utils.serialization.config": ("tenon.serialize.options: load, save",),
    "tenon.xpu": ("tenon.compat.absent_device: device_count, is_available",),
}

"""``DistributedDataParallel``: a model whose gradients are the mean over all ranks.

torch's interface, with three differences that users have requested: ``state_dict`` has no ``module.`` prefix
(both forms load), parameters that a batch leaves unused are handled without a flag, and no process group
has to be initialized first. Averaging is implemented in ``gradients.py``.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, SupportsFloat, TypeAlias

import numpy as np

from tenon.device import CPU, Device
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.joinable import Joinable, JoinHook, notify_join_context
from tenon.distributed.replicas import comm_hooks
from tenon.distributed.replicas.broadcast import broadcast_tensors
from tenon.distributed.replicas.bucket_destination import DESTINATION, BucketDestination
from tenon.distributed.replicas.data_parallel_join import DataParallelJoinHook
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.distributed.replicas.logical_shards import SHARDS, LogicalShards, Part
from tenon.distributed.replicas.options import is_own_device, refuse_unsupported, warn_without_effect
from tenon.distributed.replicas.state_prefix import add_prefix, without_prefix
from tenon.engine.running_pass import queue_callback
from tenon.engine.types import Forwarded, Nested
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, CommunicatorError, ModuleError, UnsupportedError
from tenon.nn.module import Module
from tenon.random import initial_seed
from tenon.tensors.autograd.grad_mode import is_grad_enabled
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenon.nn.state import IncompatibleKeys, StateDict

#: A device, or the index of a GPU.
DeviceId: TypeAlias = int | str | Device

IGNORED = "_ddp_params_and_buffers_to_ignore"


class DistributedDataParallel(Module, Joinable):
    """Run ``module`` on this rank's batch; after ``backward`` its gradients are the mean over all ranks.

    At construction the ranks compare their models, and rank 0 broadcasts its parameters and buffers. While
    training, rank 0's buffers are broadcast before each forward, unless ``forward_sync_buffers=False``.
    ``static_graph`` promises that every step uses the same parameters, which saves a message per step;
    ``find_unused_parameters`` declares that some may be unused, which silences the warning that names them.
    Every ``compare_weights`` steps, 100 by default, ranks compare a checksum of their weights; 0 is never.
    ``gradient_as_bucket_view`` has no effect: on the CPU gradients always are views of their buckets.
    ``device_ids``, ``output_device``, ``dim``, ``check_reduction``, ``skip_all_reduce_unused_params`` and
    ``batched_grad_copy`` have no effect either; a value that requests other behaviour raises a warning.
    Inputs must already be on the module's device.

    ``deterministic="world"`` makes weights independent of the number of ranks, bit for bit: each batch is
    split into ``shards``, and a rank computes its share of them one after another, with ``threads`` threads.
    Train with ``shards``, ``backward`` and ``finish``; the guide is ``docs/guide/deterministic.md``.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[DeviceId] | None = None,
        output_device: DeviceId | None = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Communicator | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: object = None,
        param_to_hook_all_reduce: object = None,
        mixed_precision: object = None,
        device_mesh: object = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: object = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
        *,
        deterministic: str | None = None,
        shards: int = SHARDS,
        threads: int = 1,
        compare_weights: int | None = None,
    ) -> None:
        Module.__init__(self)
        Joinable.__init__(self)
        refuse_unsupported(
            delay_all_reduce_named_params=delay_all_reduce_named_params,
            param_to_hook_all_reduce=param_to_hook_all_reduce,
            mixed_precision=mixed_precision,
            device_mesh=device_mesh,
            bucket_cap_mb_list=bucket_cap_mb_list,
        )
        warn_without_effect(
            device_ids=device_ids is not None
            and len(device_ids) > 0
            and not is_own_device(device_ids[0], module),
            output_device=output_device is not None and not is_own_device(output_device, module),
            dim=dim != 0,
            check_reduction=check_reduction,
            skip_all_reduce_unused_params=skip_all_reduce_unused_params,
            batched_grad_copy=batched_grad_copy,
        )
        self.parameters_to_ignore = set(getattr(module, IGNORED, ()))
        named = [(name, p) for name, p in module.named_parameters() if name not in self.parameters_to_ignore]
        if not any(parameter.requires_grad for _, parameter in named):
            raise ModuleError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that "
                "requires a gradient. Use the module itself."
            )
        self.module = module
        self.device_ids, self.output_device = device_ids, output_device
        self.dim = dim
        if broadcast_buffers is not None:
            warnings.warn(
                "`broadcast_buffers` is deprecated in PyTorch. Use `forward_sync_buffers`, which counts "
                "where both are given; if it is False, buffers still are those of rank 0 after construction.",
                FutureWarning,
                stacklevel=2,
            )
        sync = forward_sync_buffers if forward_sync_buffers is not None else broadcast_buffers
        self.forward_sync_buffers = sync is not False
        self.require_backward_grad_sync = True
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.synchronizer = GradientSynchronizer(
            named,
            process_group,
            bucket_cap_mb=bucket_cap_mb,
            broadcast=init_sync,
            static=static_graph,
            warn=not find_unused_parameters,
            in_use_order=deterministic is None,
            module=module,
            compare_weights=compare_weights,
        )
        self.process_group = self.synchronizer.communicator
        if init_sync and (self.forward_sync_buffers or forward_sync_buffers is not None):
            self.broadcast_buffers_now()
        self._forward_syncs = True
        self._taking_part: int | None = None
        self._divides_by_all = True
        self._logical: LogicalShards | None = None
        if deterministic is not None:
            if deterministic != "world":
                raise ArgumentError(f'deterministic={deterministic!r} must be None or "world".')
            self._logical = LogicalShards(module, self.synchronizer, shards, threads, initial_seed())
        else:
            for _, parameter in self.synchronizer.parameters:
                if self.process_group.overlaps or DESTINATION in parameter.__dict__:
                    parameter.register_post_accumulate_grad_hook(self._on_gradient)
                else:
                    bucket = BucketDestination(self.synchronizer, parameter, self._on_gradient)
                    parameter.__dict__[DESTINATION] = bucket
        self.register_load_state_dict_pre_hook(_add_prefix)

    def forward(self, *inputs: Nested, **kwargs: Nested) -> Nested:
        """The module's output; under ``no_sync`` the next backward stays local."""
        if self._logical is not None:
            if self.training and is_grad_enabled() and not self._logical.inside:
                raise CommunicatorError(
                    'deterministic="world": train in shards: `for x, y in model.shards(x, y, step=step)`.'
                )
            return self.module(*inputs, **kwargs)
        self._forward_syncs = self.require_backward_grad_sync
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.guard_value("no_sync()", lambda: self.require_backward_grad_sync)
        follows = self.training and self.forward_sync_buffers and self._forward_syncs and is_grad_enabled()
        root = self._begin_iteration(follows)
        if follows:
            self.broadcast_buffers_now(root)
        return self.module(*inputs, **kwargs)

    def broadcast_buffers_now(self, root: int = 0) -> None:
        """Broadcast the buffers of rank ``root``; collective."""
        buffers = list(self.module.buffers())
        if buffers and self.parameters_to_ignore:
            named = self.module.named_buffers()
            buffers = [buffer for name, buffer in named if name not in self.parameters_to_ignore]
        if buffers:
            broadcast_tensors(
                buffers, self.process_group, root=root, name=f"buffers of {self.synchronizer.model}"
            )

    @property
    def device(self) -> Device:
        """The device of the first parameter."""
        return next(self.module.parameters()).device

    @property
    def broadcast_buffers(self) -> bool:
        """``forward_sync_buffers`` under its older name."""
        return self.forward_sync_buffers

    def _set_static_graph(self) -> None:
        """Set ``static_graph=True`` after construction; torch's private method, which scripts call."""
        if self.synchronizer.began:
            raise CommunicatorError(
                "_set_static_graph() should be called before training loop starts and after "
                "DistributedDataParallel is constructed. Or pass static_graph=True."
            )
        self.static_graph = self.synchronizer.static = True

    def shards(self, *parts: Part, step: int) -> Iterator[Part]:
        """With ``deterministic="world"``: iterate over this rank's shards of a batch.

        ``parts`` are the whole batch, the same on all ranks: tensors, arrays or lists (such as the indices of
        its samples), or dicts of them. ``step`` is the number of the step: random numbers depend on it.
        """
        return self._deterministic("shards").split(*parts, step=step)

    def backward(self, loss: Tensor, count: SupportsFloat) -> None:
        """In the loop over ``shards``: add the gradients of ``loss``, a sum over ``count`` samples."""
        self._deterministic("backward").backward(loss, count)

    def finish(self) -> float | None:
        """After the loop over ``shards``: make the gradients those of the mean over all samples.

        Returns that mean; None, with gradients of None, if the count is zero on all ranks.
        """
        return self._deterministic("finish").finish()

    def _deterministic(self, name: str) -> LogicalShards:
        if self._logical is None:
            raise CommunicatorError(
                f'{name}() is for DistributedDataParallel(..., deterministic="world"). Call loss.backward().'
            )
        return self._logical

    def _refuse_deterministic(self, feature: str) -> None:
        """Raise ``UnsupportedError`` for ``feature`` with ``deterministic="world"``."""
        if self._logical is not None:
            raise UnsupportedError(
                f'deterministic="world": with {feature} the result would depend on the number of ranks. Leave'
                " it out."
            )

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients locally; the first backward outside averages the sums over the ranks."""
        self._refuse_deterministic("no_sync()")
        previous = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = previous

    def register_comm_hook(self, state: object, hook: comm_hooks.Hook | str) -> None:
        """Reduce gradients by ``hook(state, bucket)``, called once for each bucket in each backward pass.

        ``hook`` is a function as in torch, or the name of one: "bf16", "fp16", "powersgd",
        "batched_powersgd", or one that a plugin registers with ``tenon_comm_hooks``.
        """
        self._refuse_deterministic("a communication hook")
        if self.synchronizer.reduce is not None:
            raise CommunicatorError(
                "register_comm_hook or register_builtin_comm_hook can only be called once. Wrap the module"
                " anew for another hook."
            )
        self.synchronizer.reduce = comm_hooks.reduction(self.synchronizer, state, comm_hooks.find(hook))

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(
        module: Module, params_and_buffers_to_ignore: Iterable[str]
    ) -> None:
        """Exclude these, by full names, from all communication once ``module`` is wrapped, as in torch."""
        setattr(module, IGNORED, list(params_and_buffers_to_ignore))

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> contextlib.AbstractContextManager[object]:
        """A context in which ranks may have different numbers of batches: ``algorithms.Join``, a plugin's.

        Gradients are divided by the number of all ranks, or with ``divide_by_initial_world_size=False`` by
        that of the ranks that still have data. On exit the model of the last rank to finish is broadcast.
        """
        block = importlib.import_module("tenon.distributed.join").Join
        shares = {"divide_by_initial_world_size": divide_by_initial_world_size}
        return block([self], enable, throw_on_early_termination, **shares)

    def join_hook(self, **kwargs: object) -> JoinHook:
        """The hook that takes part in this model's collectives on a rank without data; see ``join``."""
        self._refuse_deterministic("join")
        return DataParallelJoinHook(self, bool(kwargs.get("divide_by_initial_world_size", True)))

    @property
    def join_device(self) -> Device:
        """The device of the first parameter."""
        return next((p.device for _, p in self.synchronizer.parameters), CPU)

    @property
    def join_process_group(self) -> Communicator:
        """The ranks that gradients are averaged over."""
        return self.process_group

    def _begin_iteration(self, follows: bool) -> int:
        """In a ``Join`` context, announce an iteration; return the rank whose buffers are broadcast."""
        if not self._join_config.enable:
            self._taking_part = None
            self.synchronizer.scale = 1.0
            return 0
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.unsupported("a data-parallel model in a join block")
        notify_join_context(self)
        return self._exchange(True, self._forward_syncs and is_grad_enabled(), follows)[0]

    def _exchange(self, active: bool, syncs: bool, follows: bool) -> tuple[int, bool, bool]:
        """Gather these facts about the iteration from all ranks.

        Whether this rank is ``active``, having data; whether its backward ``syncs`` gradients; whether it
        ``follows`` by copying buffers. Returns the first active rank, and whether any rank syncs or follows.
        """
        own = np.array([active, syncs, follows], np.int8)
        ranks = self.process_group.all_gather(own, name="iteration of a join block").wait().astype(bool)
        self._taking_part = int(ranks[:, 0].sum())
        size = self.process_group.size
        self.synchronizer.scale = 1.0 if self._divides_by_all else size / self._taking_part
        return int(ranks[:, 0].argmax()), bool(ranks[:, 1].any()), bool(ranks[:, 2].any())

    def _synchronize(self) -> None:
        self.synchronizer.synchronize(taking_part=self._taking_part)

    def state_dict(
        self, *args: Forwarded, destination: StateDict | None = None, prefix: str = "",
        keep_vars: bool = False,
    ) -> StateDict:  # fmt: skip
        """The module's own state: the keys are those of the unwrapped model."""
        return self.module.state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, object], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Load the state of an unwrapped model, or of a wrapped one saved elsewhere with ``module.`` keys."""
        if isinstance(state_dict, Mapping):
            state_dict = without_prefix(state_dict, self.module)
        return self.module.load_state_dict(state_dict, strict=strict, assign=assign)

    def __deepcopy__(self, memo: dict[int, object]) -> DistributedDataParallel:
        copied = DistributedDataParallel(
            copy.deepcopy(self.module, memo),
            self.device_ids,
            dim=self.dim,
            forward_sync_buffers=self.forward_sync_buffers,
            init_sync=False,
            process_group=self.process_group,
            bucket_cap_mb=self.synchronizer.bucket_cap_mb,
            find_unused_parameters=self.find_unused_parameters,
            gradient_as_bucket_view=self.gradient_as_bucket_view,
            static_graph=self.static_graph,
            deterministic=None if self._logical is None else "world",
            shards=SHARDS if self._logical is None else self._logical.shards,
            threads=1 if self._logical is None else self._logical.threads,
        )
        if copied._logical is not None and self._logical is not None:
            copied._logical.seed = self._logical.seed
        memo[id(self)] = copied
        copied.train(self.training)
        return copied

    def _on_gradient(self, parameter: Tensor) -> None:
        """Callback of backward after a gradient was accumulated into ``parameter``."""
        if not (self._forward_syncs and self.require_backward_grad_sync):
            return
        if queue_callback(self._synchronize):
            self.synchronizer.restart()
        self.synchronizer.fill(parameter)


def release_parameters(parameters: Iterable[Tensor]) -> None:
    """Detach ``parameters``, whose shapes no longer fit the buckets; the model needs a new wrapper."""
    for parameter in parameters:
        parameter.__dict__.pop(DESTINATION, None)
        hooks = parameter.__dict__.get("_post_accumulate_hooks", {})
        for key, hook in list(hooks.items()):
            if isinstance(getattr(hook, "__self__", None), DistributedDataParallel):
                del hooks[key]


def _add_prefix(
    wrapper: DistributedDataParallel, state_dict: dict[str, object], prefix: str, *_: object
) -> None:
    """Pre-hook of ``load_state_dict`` of an outer module."""
    add_prefix(state_dict, prefix, wrapper.module)

"""``DistributedDataParallel``: a model whose gradients are the mean over all ranks.

torch's face, with three differences that torch's users ask for: ``state_dict`` has no ``module.`` prefix
(both forms load), parameters that a batch leaves unused are handled without a flag, and no process group
has to be made first. The work is in ``gradients.py``.
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from tenon.core import watch
from tenon.core.backward_end import queue_callback
from tenon.core.grad_mode import is_grad_enabled
from tenon.core.tensor import Tensor
from tenon.distributed.communicator import Communicator
from tenon.distributed.gradients import GradientSynchronizer, broadcast_tensors
from tenon.errors import ModuleError, UnsupportedError
from tenon.nn.module import Module

PREFIX = "module."


class DistributedDataParallel(Module):
    """Run ``module`` on this rank's batch; after ``backward`` its gradients are the mean over all ranks.

    At construction the ranks compare their models, and take over the parameters and buffers of rank 0.
    While training, buffers follow rank 0 at each forward (``broadcast_buffers=False`` leaves them).
    ``device_ids``, ``find_unused_parameters``, ``static_graph``, ``gradient_as_bucket_view`` and
    ``check_reduction`` are accepted and change nothing: what they ask for needs no asking here.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Communicator | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Any = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        _refuse(
            delay_all_reduce_named_params=delay_all_reduce_named_params,
            param_to_hook_all_reduce=param_to_hook_all_reduce,
            mixed_precision=mixed_precision,
            device_mesh=device_mesh,
            bucket_cap_mb_list=bucket_cap_mb_list,
        )
        named = list(module.named_parameters())
        if not any(parameter.requires_grad for _, parameter in named):
            raise ModuleError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that "
                "require a gradient. Use the module itself."
            )
        self.module = module
        self.device_ids = device_ids
        self.dim = dim
        self.broadcast_buffers = broadcast_buffers is not False and forward_sync_buffers is not False
        self.require_backward_grad_sync = True
        self._synchronizer = GradientSynchronizer(
            named, process_group, bucket_cap_mb=bucket_cap_mb, broadcast=init_sync
        )
        self.process_group = self._synchronizer.communicator
        if init_sync:
            broadcast_tensors(list(module.buffers()), self.process_group, name="buffers")
        self._forward_syncs = True
        for _, parameter in self._synchronizer.parameters:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)
        self.register_load_state_dict_pre_hook(_add_prefix)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's output; under ``no_sync`` the next backward stays local."""
        self._forward_syncs = self.require_backward_grad_sync
        if watch.recorder is not None:
            watch.recorder.guard_value("no_sync()", lambda: self.require_backward_grad_sync)
        if self.training and self.broadcast_buffers and self._forward_syncs and is_grad_enabled():
            buffers = list(self.module.buffers())
            if buffers:
                broadcast_tensors(buffers, self.process_group, name="buffers")
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients add up on this rank only; the first backward outside averages the sums."""
        previous = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = previous

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """The module's own state: the keys are those of the unwrapped model."""
        return self.module.state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load the state of an unwrapped model, or of a wrapped one saved elsewhere with ``module.`` keys."""
        if isinstance(state_dict, Mapping) and _is_prefixed(state_dict, "", self.module):
            stripped: Any = OrderedDict(
                (key.removeprefix(PREFIX), value) for key, value in state_dict.items()
            )
            metadata = getattr(state_dict, "_metadata", None)
            if metadata is not None:
                stripped._metadata = {
                    key.removeprefix("module").removeprefix("."): metadata[key] for key in metadata
                }
            state_dict = stripped
        return self.module.load_state_dict(state_dict, strict=strict, assign=assign)

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        made = DistributedDataParallel(
            copy.deepcopy(self.module, memo),
            self.device_ids,
            dim=self.dim,
            broadcast_buffers=self.broadcast_buffers,
            init_sync=False,
            process_group=self.process_group,
            bucket_cap_mb=self._synchronizer.bucket_cap_mb,
        )
        memo[id(self)] = made
        made.train(self.training)
        return made

    def _on_gradient(self, parameter: Tensor) -> None:
        """Runs in backward, whenever a gradient was added to ``parameter``."""
        if not (self._forward_syncs and self.require_backward_grad_sync):
            return
        if queue_callback(self._synchronizer.synchronize):
            self._synchronizer.restart()
        self._synchronizer.fill(parameter)


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise UnsupportedError(f"DistributedDataParallel: {name} is not supported. Leave it out.")


def _is_prefixed(state_dict: Mapping[str, Any], prefix: str, module: Module) -> bool:
    """Whether the keys below ``prefix`` carry ``module.``: more of them fit the model without it."""
    own = set(module.state_dict())
    keys = [key[len(prefix) :] for key in state_dict if key.startswith(prefix)]
    stripped = sum(key.startswith(PREFIX) and key.removeprefix(PREFIX) in own for key in keys)
    return stripped > sum(key in own for key in keys)


def _add_prefix(wrapper: DistributedDataParallel, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Below another module, keys without ``module.`` load too: give them the prefix that is looked for."""
    if _is_prefixed(state_dict, prefix, wrapper.module):
        return
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[prefix + PREFIX + key[len(prefix) :]] = state_dict.pop(key)

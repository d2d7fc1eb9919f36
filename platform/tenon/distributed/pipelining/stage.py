"""``PipelineStage``: one stage of a pipeline, the part of a model that one rank computes.

It runs its module on one microbatch after another, keeps inputs and outputs until the backward pass of the
microbatch, and computes the gradients that the previous stage needs. Schedules (``schedules.py``) decide the
order; ``execution.py`` moves the tensors between the stages.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from tenon.device import Device
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.messages.process_group import Group, member
from tenon.distributed.pipelining.replicas import Replicas
from tenon.distributed.tensor import DTensor
from tenon.dtypes import dtype
from tenon.engine.split_backward import SplitBackward
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, GradError, ModuleError, OptionError, ShapeError
from tenon.nn.module import Module
from tenon.tensors.autograd.passes import backward
from tenon.tensors.pytree import tree_iter, tree_map
from tenon.tensors.tensor import Tensor

#: Example tensors of a stage: one, several, or None where they are not given.
Examples: TypeAlias = "Tensor | Sequence[Tensor] | None"
#: The shape and the dtype of a tensor.
Meta: TypeAlias = tuple[tuple[int, ...], dtype]


class PipelineStage:
    """Stage ``stage_index`` of ``num_stages``, which computes ``submodule`` on this rank of ``group``.

    The module of the first stage gets the arguments of ``schedule.step``; the others get the outputs of the
    previous stage as positional arguments, and the keyword arguments that their own rank passes to ``step``.
    A stage returns a tensor, or a tuple or list of tensors; the last one may return any containers.

    Shapes and dtypes travel with the tensors, so example arguments are not needed; if ``input_args`` or
    ``output_args`` are given, each microbatch is compared with them. ``output_grads``, ``input_grads`` and
    ``get_mesh`` have no effect: gradients have the shapes of their tensors, and stages exchange plain
    tensors. After each backward pass of a microbatch ``dw_builder()`` is called, and then what it returns:
    for modules whose custom functions leave gradients of weights for later. The module is moved to
    ``device``, unless it is on the meta device.

    Raises ``ArgumentError`` for an index outside of the pipeline and for a group of more ranks than stages.

    Source: torch.distributed.pipelining.PipelineStage.

    >>> from tenon import nn
    >>> stage = PipelineStage(nn.Linear(3, 2), 0, 1, "cpu")
    >>> stage.is_first, stage.is_last
    (True, True)
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Device | str,
        input_args: Examples = None,
        output_args: Examples = None,
        output_grads: object = None,
        input_grads: object = None,
        group: Group = None,
        dw_builder: Callable[[], Callable[[], object]] | None = None,
        get_mesh: object = None,
    ) -> None:
        if not 0 <= stage_index < num_stages:
            raise ArgumentError(f"Stage index {stage_index} is out of range of {num_stages}")
        if not isinstance(submodule, Module):
            raise ArgumentError(f"PipelineStage: submodule is a {type(submodule).__name__}, not a Module.")
        self.group: Communicator = member(group)
        self.group_rank, self.group_size = self.group.rank, self.group.size
        if self.group_size > num_stages:
            raise ArgumentError(
                f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}."
                " Split the model into more stages, or pass a group of fewer ranks."
            )
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device = Device(device)
        if not any(p.device.type == "meta" for p in (*submodule.parameters(), *submodule.buffers())):
            submodule.to(self.device)
        self._inputs, self._outputs = _metas(input_args), _metas(output_args)
        self.dw_builder = dw_builder
        self.has_backward = False
        """Whether the step that runs has backward passes."""
        self.fwd_cache: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        """The inputs and outputs of the microbatches whose backward pass is to come."""
        self._late: dict[int, Callable[[], object]] = {}
        """What computes the gradients of weights of microbatches, where it has been put off."""
        self.peak = 0
        """The largest number of microbatches whose activations were held in the last step."""
        self.outputs: dict[int, Nested] = {}
        """The outputs of the last stage, by microbatch."""
        self.replicas = Replicas(submodule)

    @property
    def is_first(self) -> bool:
        """Whether this is the first stage, which gets the inputs of the model."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether this is the last stage, whose outputs are the model's."""
        return self.stage_index == self.num_stages - 1

    def __repr__(self) -> str:
        return f"PipelineStage({self.stage_index} of {self.num_stages}, {type(self.submod).__name__})"

    def clear_runtime_states(self) -> None:
        """Forget the microbatches of the last step."""
        self.fwd_cache.clear()
        self._late.clear()
        self.outputs.clear()
        self.peak = 0
        self.replicas = Replicas(self.submod)

    # --- computing ---

    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: Sequence[Nested],
        kwargs: dict[str, Nested] | None = None,
        save_forward_output: bool = True,
    ) -> Nested:
        """The module's outputs for microbatch ``fwd_chunk_id``; kept for backward if there will be one."""
        self._compare(self._inputs, args, "input", fwd_chunk_id)
        try:
            with self.replicas.without_synchronization():
                output = self.submod(*args, **(kwargs or {}))
        except Exception as error:
            error.add_note(
                f"in the forward pass of stage {self.stage_index} of {self.num_stages},"
                f" {type(self.submod).__name__}, for microbatch {fwd_chunk_id}, with arguments"
                f" {_shown((args, kwargs or {}))}"
            )
            raise
        if self.is_last:
            if save_forward_output:
                self.outputs[fwd_chunk_id] = tree_map(_detached, output) if self.has_backward else output
        else:
            output = self._checked(output)
            self._compare(self._outputs, output, "output", fwd_chunk_id)
        if self.has_backward:
            received = [] if self.is_first else [t for t in args if isinstance(t, Tensor)]
            self.fwd_cache[fwd_chunk_id] = received, [] if self.is_last else list(output)
            self.peak = max(self.peak, len(self.fwd_cache) + len(self._late))
        return output

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: Tensor | None = None,
        grads: Sequence[Tensor | None] = (),
        scale: float = 1.0,
        full_backward: bool = True,
    ) -> list[Tensor | None]:
        """Compute the gradients of microbatch ``bwd_chunk_id``; return those of the stage's inputs.

        The last stage starts from ``scale`` times its ``loss``, the others from ``grads``, the gradients of
        their outputs. An input that does not require grad, or is not used, has None. Without
        ``full_backward``, gradients of weights are left to ``backward_weight_one_chunk``.
        """
        inputs, ends, starts = self._take(bwd_chunk_id, loss, grads, scale)
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        splits = not full_backward and self.dw_builder is None
        with self._in_backward(bwd_chunk_id):
            if not splits and ends:
                backward(ends, starts)
                found = [tensor.grad for tensor in wanted]
            elif wanted and ends:
                split = SplitBackward(ends, starts, wanted)
                found = [None if g is None else Tensor._of(g.raw, g._backend) for g in split.input_gradients]
                self._late[bwd_chunk_id] = split.finish
            else:
                found = [None] * len(wanted)
                self._late[bwd_chunk_id] = functools.partial(_backward_if_any, ends, starts)
            if self.dw_builder is not None:
                self._late[bwd_chunk_id] = self.dw_builder()
            if full_backward:
                self._late.pop(bwd_chunk_id, _nothing)()
        gradient_of = dict(zip(map(id, wanted), found, strict=True))
        return [gradient_of.get(id(tensor)) for tensor in inputs]

    def backward_weight_one_chunk(self, bwd_chunk_id: int) -> None:
        """Compute the gradients that ``backward_one_chunk`` has left.

        Raises ``OptionError`` if it has not been called with ``full_backward=False``.
        """
        if bwd_chunk_id not in self._late:
            raise OptionError(
                f"stage {self.stage_index}: Attempted to run backward_weight_one_chunk for chunk"
                f" {bwd_chunk_id} without first calling `backward_one_chunk(full_backward=False)`"
            )
        with self._in_backward(bwd_chunk_id):
            self._late.pop(bwd_chunk_id)()

    @contextlib.contextmanager
    def _in_backward(self, number: int) -> Iterator[None]:
        """Without reductions over replicas; errors name the stage."""
        try:
            with self.replicas.without_synchronization():
                yield
        except Exception as error:
            error.add_note(
                f"in the backward pass of stage {self.stage_index} of {self.num_stages},"
                f" {type(self.submod).__name__}, for microbatch {number}"
            )
            raise

    def _take(
        self, number: int, loss: Tensor | None, grads: Sequence[Tensor | None], scale: float
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor | None]]:
        """The inputs of microbatch ``number``, and the tensors and gradients from which backward starts."""
        inputs, outputs = self.fwd_cache.pop(number)
        if self.is_last:
            assert loss is not None  # schedules have a loss function if they have a backward pass
            if not loss.requires_grad:
                raise GradError(
                    f"the loss of microbatch {number} does not require grad: neither the inputs of stage"
                    f" {self.stage_index} nor its parameters do, or loss_fn detaches its result. Call"
                    " schedule.eval() to compute without gradients."
                )
            return inputs, [loss], [loss.detach().new_full(loss.shape, scale)]
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad and g is not None]
        return inputs, [o for o, _ in pairs], [g for _, g in pairs]

    # --- what crosses stages ---

    def _checked(self, output: Nested) -> list[Tensor]:
        """The outputs as a list of tensors; ModuleError if the next stage cannot be given them."""
        outputs = list(output) if isinstance(output, tuple | list) else [output]
        for index, each in enumerate(outputs):
            if isinstance(each, DTensor) or not isinstance(each, Tensor):
                hint = (
                    "Return each.to_local(), and make a DTensor of it in the next stage"
                    if isinstance(each, DTensor)
                    else "Return tensors, and leave others to the next stage"
                )
                raise ModuleError(
                    f"output {index} of stage {self.stage_index}, {type(self.submod).__name__}, is a"
                    f" {type(each).__name__}: a stage passes plain tensors on to the next, one, or a tuple"
                    f" of them. {hint}."
                )
        return outputs

    def _compare(self, known: list[Meta] | None, values: Nested, what: str, number: int) -> None:
        if known is None:
            return
        found = [_meta(t) for t in tree_iter(list(values)) if isinstance(t, Tensor)]
        if found != known:
            raise ShapeError(
                f"{what}s of stage {self.stage_index} for microbatch {number} are {_listed(found)}, but the"
                f" stage was built with {what}_args of {_listed(known)}. Split the batch into microbatches of"
                f" that shape, or leave {what}_args out."
            )


def _nothing() -> None:
    """Nothing is left to do."""


def _backward_if_any(ends: list[Tensor], starts: list[Tensor | None]) -> None:
    if ends:
        backward(ends, starts)


def _detached(leaf: Nested) -> Nested:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf


def _metas(examples: Examples) -> list[Meta] | None:
    if examples is None:
        return None
    tensors = [examples] if isinstance(examples, Tensor) else list(examples)
    return [_meta(t) for t in tensors]


def _meta(tensor: Tensor) -> Meta:
    return tuple(tensor.shape), tensor.dtype


def _listed(metas: list[Meta]) -> str:
    return ", ".join(f"{kind} {list(shape)}" for shape, kind in metas) or "none"


def _shown(tree: Nested) -> str:
    leaves = [
        f"{leaf.dtype} {list(leaf.shape)}" if isinstance(leaf, Tensor) else repr(leaf)[:40]
        for leaf in tree_iter(tree)
    ]
    return ", ".join(leaves) or "none"

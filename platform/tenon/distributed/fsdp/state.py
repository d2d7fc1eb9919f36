"""What a ``fully_shard`` module does around its forward and backward, and what the modules of a model share.

Forward gathers the module's parameters and releases them. A hook on its outputs gathers them again when the
backward pass arrives there; a function on its inputs, the last of the module in backward, reduces gradients.
What has not been reduced by then, as the first module's inputs need no gradient, is at the end of the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tenon.autograd.function import Function
from tenon.distributed.fsdp.contents import cast, tensors_in
from tenon.distributed.fsdp.parameter_group import ParameterGroup, Phase
from tenon.distributed.fsdp.policies import MixedPrecisionPolicy
from tenon.engine.running_pass import PASS, queue_callback
from tenon.engine.tape import next_number
from tenon.engine.types import Nested
from tenon.engine.watchers import WATCHERS
from tenon.errors import ModuleError, NoDataError
from tenon.nn.module import Module
from tenon.tensors.autograd.grad_mode import is_grad_enabled
from tenon.tensors.pytree import tree_iter, tree_map
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.autograd.function_context import FunctionCtx
    from tenon.distributed.fsdp.sharded_steps import ShardedSteps

#: Key of a module's ``ModuleState`` in its ``__dict__``.
STATE = "_fsdp_state"


class ModelState:
    """What the ``fully_shard`` modules of one model share; ``root`` is the outermost."""

    def __init__(self, root: ModuleState) -> None:
        self.root = root
        self.states = [s for m in root.modules for s in states_of(m)]
        self.states = list(dict.fromkeys([root, *self.states]))
        self._check_states()
        self.running = 0
        """How many calls of the root are running."""
        self.order: list[ParameterGroup] = []
        """The groups in the order of their forward passes in this step, where gathers overlap."""
        self.sequence: list[ParameterGroup] = []
        """The groups in the order in which the last forward pass of the root gathered them."""
        self.gathering: list[ParameterGroup] = []
        """The same of the present one."""
        self.reducing: ParameterGroup | None = None
        self.began_backward = False
        for state in self.states:
            state.model = self
        self._prepare()

    def _check_states(self) -> None:
        for module in self.root.modules:
            for path, submodule in module.named_modules():
                state = submodule.__dict__.get(STATE)
                if state is not None and state.model is not None:
                    raise ModuleError(
                        f"FSDP state has already been lazily initialized for {path}\nFSDP requires running"
                        f" forward through the root module first: {type(submodule).__name__} {path!r} was"
                        f" called before this {type(module).__name__}, and became a model of its own, whose"
                        " parameters stay gathered after forward. Call the whole model first."
                    )

    def _prepare(self) -> None:
        """Name groups and parameters by the root, and set defaults that depend on which one is the root."""
        names: dict[int, str] = {}
        for module in self.root.modules:
            names.update({id(parameter): name for name, parameter in module.named_parameters()})
            for path, submodule in module.named_modules():
                state = submodule.__dict__.get(STATE)
                if state is not None and state.modules[0] is submodule:
                    state.group.name = path or f"the model {type(submodule).__name__}"
        for parameter in [p for s in self.states for p in s.group.parameters]:
            parameter.adopt()
            name = names.get(id(parameter.sharded)) or names.get(id(parameter.whole))
            parameter.name = name or parameter.name
        group = self.root.group
        if self.root.reshard_after_forward is None:
            group.reshard_after_forward = False
        for state in self.states:
            lacking = [p.name for p in state.group.parameters if p.sharded.device.type == "meta"]
            if lacking:
                raise NoDataError(
                    "FSDP parameters should be materialized from meta device before training, but the"
                    f" following were still on meta device: {lacking}, and perhaps others of other groups."
                    " Call module.to_empty(device=...) on the root module and then initialize the parameters."
                )

    def begin_forward(self) -> None:
        """Before a forward pass of the root."""
        if self.began_backward and not PASS.inside:  # the last backward pass raised
            self.reset()
        self.sequence, self.gathering = self.gathering, []
        if not is_grad_enabled():
            self.order.clear()

    def follow(self, group: ParameterGroup) -> ParameterGroup | None:
        """Note that ``group`` has been gathered for forward; return the one that followed in the last
        pass."""
        position = len(self.gathering)
        self.gathering.append(group)
        expected = self.sequence[position : position + 2]
        return expected[1] if len(expected) == 2 and expected[0] is group else None

    def begin_backward(self) -> None:
        """Before, or during, a backward pass: have its end call ``finish_backward``."""
        self.began_backward = True
        queue_callback(self.finish_backward)

    def finish_backward(self) -> None:
        """At the end of a backward pass: reduce the gradients that have not been, and release everything."""
        for state in reversed(self.states):
            group = state.group
            lacks = group.reduces_unused and not group.reduced
            if group.phase is Phase.BACKWARD or group.has_gradients or lacks:
                self.reduce(group)
            elif group.is_gathering and self.root.is_last_backward:
                group.reshard()  # gathered ahead for a backward pass that was over
            elif group.is_gathered and group.reshards_after_backward:
                group.reshard()
            group.phase, group.reduced = Phase.IDLE, False
            state.calls.clear()
        self.complete_reduction()
        self.began_backward = False
        if self.root.is_last_backward:
            self.order.clear()
            for state in self.states:
                state.group.positions.clear()

    def reduce(self, group: ParameterGroup) -> None:
        """Start to reduce the gradients of ``group``; one reduction is in progress at a time."""
        group.start_reduction()
        self.complete_reduction()
        self.reducing = group
        if not group.communicator.overlaps:
            self.complete_reduction()

    def complete_reduction(self) -> None:
        """Wait for the reduction in progress."""
        group, self.reducing = self.reducing, None
        if group is not None:
            group.finish_reduction()

    def complete_forward(self, result: Nested) -> None:
        """At the end of a forward pass of the root: complete groups of which it has not called all modules,
        and release what was gathered ahead for modules that were not called."""
        for state in reversed(self.states):
            if state.waiting:
                state.waiting.clear()
                state.leave(result)
            if state.group.is_gathering:
                state.group.reshard()

    def abandon_forward(self) -> None:
        """After an error in the root's forward."""
        for state in self.states:
            state.abandon()

    def reset(self) -> None:
        """Return to the state between steps, after an error."""
        self.reducing = None
        self.began_backward = False
        self.order.clear()
        for state in self.states:
            state.group.forget()
            state.group.positions.clear()
            state.waiting.clear()


class ModuleState:
    """The state of the ``modules`` of one ``fully_shard`` call."""

    def __init__(
        self,
        modules: Sequence[Module],
        group: ParameterGroup,
        precision: MixedPrecisionPolicy,
        reshard_after_forward: bool | int | None,
    ) -> None:
        self.modules, self.group, self.precision = tuple(modules), group, precision
        self.reshard_after_forward = reshard_after_forward
        self.model: ModelState | None = None
        self.waiting: set[int] = set()
        """The modules, by id, whose forward has not run yet in this pass, if the group has several."""
        self.is_last_backward = True
        """Of the root: whether the next backward pass is the last of the step."""
        self.forward_prefetch: list[ModuleState] = []
        self.backward_prefetch: list[ModuleState] = []
        self.steps: ShardedSteps | None = None
        """Of the outermost module, with ``deterministic="world"``."""
        self.calls: set[object] = set()
        """The calls, by tokens, of which the backward pass has not begun."""
        self._since = 0
        group.gradients.on_arrival = self._on_arrival

    @property
    def context(self) -> ModelState:
        """What the model's modules share; a module that is called first is the root."""
        if self.model is None:
            self.model = ModelState(self)
        return self.model

    def call(
        self,
        module: Module,
        forward: Callable[..., Nested],
        args: tuple[Nested, ...],
        kwargs: dict[str, Nested],
    ) -> Nested:
        """Run ``forward`` of ``module`` with gathered parameters."""
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.unsupported("a fully_shard module, whose parameters are gathered in each call")
        if self.steps is not None:
            self.steps.check_call(module)
        model = self.context
        is_root = model.root is self
        first, last = self._enter(module)
        args, kwargs = self._before(args, kwargs, first)
        model.running += is_root
        try:
            result = forward(*args, **kwargs)
        except BaseException:
            model.abandon_forward() if is_root else self.abandon()
            raise
        finally:
            model.running -= is_root
        if last:
            self.leave(result)
        if is_root:
            model.complete_forward(result)
        return self._cast_outputs(result)

    def _enter(self, module: Module) -> tuple[bool, bool]:
        """Whether ``module`` is the first of the group to be called, and whether it is the last.

        A call from outside of the root's forward, as of a model's head on one part of the outputs after
        another, is a pass of its own; so is each call of a root of several modules.
        """
        if len(self.modules) == 1:
            return True, True
        if self.group.phase is Phase.BACKWARD and PASS.inside:  # a recomputation
            return False, False
        if not self.context.running:
            return True, True
        first = not self.waiting
        if first:
            self.waiting = {id(m) for m in self.modules}
        self.waiting.discard(id(module))
        return first, not self.waiting

    def _before(
        self, args: tuple[Nested, ...], kwargs: dict[str, Nested], first: bool
    ) -> tuple[tuple[Nested, ...], dict[str, Nested]]:
        """Gather the parameters, cast the inputs, and put the function that ends backward on them."""
        model, group = self.context, self.group
        if model.root is self and first:
            model.begin_forward()
        if self.precision.cast_forward_inputs and self.precision.param_dtype is not None:
            args, kwargs = cast(args, self.precision.param_dtype), cast(kwargs, self.precision.param_dtype)
        if first:
            self._since = next_number()
        if group.phase is not Phase.BACKWARD:
            group.phase = Phase.FORWARD
            group.refresh()
            self._prefetch_forward()
        else:
            group.unshard()
        if first and is_grad_enabled() and group.parameters:
            return _end_of_backward(self, args, kwargs)
        return args, kwargs

    def _prefetch_forward(self) -> None:
        for state in self.forward_prefetch:
            state.group.start_unshard()
        following = self.context.follow(self.group) if self.group.parameters else None
        if following is not None and not self.forward_prefetch and self.group.communicator.overlaps:
            following.start_unshard()

    def leave(self, result: Nested) -> None:
        """After forward: note the order, release the parameters, and set up backward."""
        model, group = self.context, self.group
        outputs = [t for t in tensors_in(result) if t.requires_grad]
        if group.phase is Phase.BACKWARD:  # a recomputation
            return
        group.phase = Phase.IDLE
        if outputs and is_grad_enabled() and group.parameters and group.communicator.overlaps:
            group.positions.append(len(model.order))
            model.order.append(group)
        group.after_forward(outputs, self._since)
        if model.root is self and self.reshard_after_forward is None and not is_grad_enabled():
            group.reshard()  # an optimizer that is created next has to see the shards
        call = object()
        if outputs and group.sums is not None:
            self.calls.add(call)
        for output in outputs:
            output.register_hook(partial(self._on_gradient, call))

    def abandon(self) -> None:
        """After an error in forward."""
        self.waiting.clear()
        if self.group.phase is Phase.FORWARD:
            self.group.phase = Phase.IDLE
            self.group.reshard()

    def _cast_outputs(self, result: Nested) -> Nested:
        kind = self.precision.output_dtype
        return result if kind is None else cast(result, kind)

    def _on_gradient(self, call: object, gradient: Tensor) -> None:
        """Before the backward pass of a ``call`` of the modules: gather the parameters again."""
        model, group = self.context, self.group
        self.calls.discard(call)
        model.begin_backward()
        if group.phase is Phase.BACKWARD:
            return
        group.phase = Phase.BACKWARD
        if group.unshards_in_backward:
            group.unshard()
        if self.backward_prefetch:
            for state in self.backward_prefetch:
                state.group.start_unshard()
        elif group.positions:
            position = group.positions.pop()
            if position:
                model.order[position - 1].start_unshard()

    def _on_arrival(self) -> None:
        """A gradient has arrived, perhaps of outputs that were not found in what ``forward`` returned."""
        if self.model is not None and not self.model.began_backward:
            self.model.begin_backward()

    def on_inputs(self) -> None:
        """After the backward pass of the modules."""
        if self.calls:  # gradients of several calls are added up before they are reduced
            self.group.start_reduction(postpone=True)
        elif self.group.phase is Phase.BACKWARD or self.group.has_gradients:
            self.context.reduce(self.group)


class _EndOfBackward(Function):
    """The identity on the inputs of a module, whose backward is the last of the module."""

    @staticmethod
    def forward(ctx: FunctionCtx, state: ModuleState, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.state = state  # type: ignore[attr-defined]
        ctx.set_materialize_grads(False)
        return inputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # the context above
        ctx.state.on_inputs()
        return (None, *grads)


def _end_of_backward(
    state: ModuleState, args: tuple[Nested, ...], kwargs: dict[str, Nested]
) -> tuple[tuple[Nested, ...], dict[str, Nested]]:
    """``args`` and ``kwargs`` with ``_EndOfBackward`` on the tensors that require grad."""
    inputs = [t for t in tree_iter((args, kwargs)) if isinstance(t, Tensor) and t.requires_grad]
    inputs = list({id(t): t for t in inputs}.values())
    if not inputs:
        return args, kwargs
    replaced = dict(zip(map(id, inputs), _EndOfBackward.apply(state, *inputs), strict=True))
    # ``tree_map`` keeps the structure, a pair.
    return tree_map(lambda leaf: replaced.get(id(leaf), leaf), (args, kwargs))


def states_of(module: Module) -> Iterable[ModuleState]:
    """The states of ``module`` and the modules in it, each once, outer ones first."""
    return dict.fromkeys(s for m in module.modules() if (s := m.__dict__.get(STATE)) is not None)

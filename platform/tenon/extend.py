"""Everything a plugin author imports, in one place; names that are not here are not public API.

A plugin module needs only ``hookimpl`` and imports nothing else; the base classes below are imported at their
first use, so ``from tenon.extend import hookimpl`` stays light::

    from tenon.extend import hookimpl

    @hookimpl
    def tenon_optimizers():
        return {"Tiger": "tenon_tiger.tiger:Tiger"}

Guide: ``docs/guide/plugins.md``. Hooks: ``docs/guide/hooks.md``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tenon.plugins.declarations import CommandTarget as CommandTarget
from tenon.plugins.hookspecs import hookimpl as hookimpl

if TYPE_CHECKING:
    from tenon import errors as errors
    from tenon.compat.node_names import titled as titled
    from tenon.config import Config as Config
    from tenon.config import environment as environment
    from tenon.config import process_environment as process_environment
    from tenon.device import Device as Device
    from tenon.distributed import engine as engine
    from tenon.distributed import parts as distributed_parts  # noqa: F401 - offered under another name
    from tenon.distributed.communication.communicator import Communicator as Communicator
    from tenon.distributed.replicas.data_parallel import release_parameters as release_parameters
    from tenon.engine import sharding_rule as sharding_rule
    from tenon.engine.aval import Aval as Aval
    from tenon.engine.interceptor import SLOT
    from tenon.engine.op import Composite as Composite
    from tenon.engine.op import Kind as Kind
    from tenon.engine.op import Op as Op
    from tenon.engine.op import Primitive as Primitive
    from tenon.engine.types import Array as Array
    from tenon.engine.types import ArrayNamespace as ArrayNamespace
    from tenon.engine.types import Attr as Attr
    from tenon.engine.types import Attrs as Attrs
    from tenon.engine.types import Nested as Nested
    from tenon.engine.types import Operand as Operand
    from tenon.engine.types import OpNamespace as OpNamespace
    from tenon.export.capture import capture as capture
    from tenon.export.captured import CapturedGraph as CapturedGraph
    from tenon.export.captured import Guard as Guard
    from tenon.export.compiled_runner import CompiledRunner as CompiledRunner
    from tenon.export.exported_program import ExportedProgram as ExportedProgram
    from tenon.export.exported_program import unflatten as unflatten
    from tenon.export.known import compute_known as compute_known
    from tenon.export.lowering import lower as lower
    from tenon.export.recorder import captured_values as captured_values
    from tenon.export.runner import Runner as Runner
    from tenon.export.signature import ScalarInput as ScalarInput
    from tenon.export.signature import Signature as Signature
    from tenon.export.sizes import Expression as Expression
    from tenon.export.sizes import fit as fit_sizes  # noqa: F401 - offered under another name
    from tenon.export.spelled_numbers import spell_numbers as spell_numbers
    from tenon.export.symbolic.size_guards import SizeGuard as SizeGuard
    from tenon.export.target import Target as Target
    from tenon.export.tracing import Trace as Trace
    from tenon.export.tracing import trace as trace
    from tenon.export.vectors import Vectors as Vectors
    from tenon.functions.derived import write_into as write_out  # noqa: F401 - offered under another name
    from tenon.graph import cluster as cluster
    from tenon.graph import shape_requests as shape_requests
    from tenon.graph.graph import Graph as Graph
    from tenon.graph.graph import Node as Node
    from tenon.graph.graph import Ref as Ref
    from tenon.graph.graph import Source as Source
    from tenon.graph.graph import sources_of as sources_of
    from tenon.graph.recording import record as record
    from tenon.graph.shape_requests import ShapeRequest as ShapeRequest
    from tenon.kernels import expressions as expressions
    from tenon.kernels.backend import Availability as Availability
    from tenon.kernels.backend import Backend as Backend
    from tenon.kernels.backend import Kernel as Kernel
    from tenon.kernels.backend import MemoryStats as MemoryStats
    from tenon.kernels.backend import backend_for as backend_for
    from tenon.kernels.compiler import Compiler as Compiler
    from tenon.kernels.compiler import FusedKernel as FusedKernel
    from tenon.kernels.compiler import LayoutRules as LayoutRules
    from tenon.kernels.compiler import MultiTensorKernel as MultiTensorKernel
    from tenon.kernels.compiler import Thunk as Thunk
    from tenon.kernels.kernel_table import Condition as Condition
    from tenon.kernels.kernel_table import KernelRow as KernelRow
    from tenon.kernels.kernel_table import KernelTable as KernelTable
    from tenon.kernels.kernel_table import dtype_is as dtype_is
    from tenon.kernels.kernel_table import itself as itself
    from tenon.kernels.kernel_table import requires as requires
    from tenon.kernels.kernel_table import size_at_least as size_at_least
    from tenon.kernels.short_kernels import ShortKernel as ShortKernel
    from tenon.nn.criterion import Criterion as Criterion
    from tenon.nn.masks import BasePruningMethod as BasePruningMethod
    from tenon.nn.module import Module as Module
    from tenon.nn.parameter import Parameter as Parameter
    from tenon.nn.utils.parametrize import register_parametrization as register_parametrization
    from tenon.optim.optimizer import Optimizer as Optimizer
    from tenon.optim.scheduler import LRScheduler as LRScheduler
    from tenon.plugins import settings as settings
    from tenon.plugins import user_key as user_key
    from tenon.plugins.diagnose import doctor_section as doctor_section
    from tenon.plugins.manager import register as register
    from tenon.plugins.registry import resolve as resolve
    from tenon.profiler import observe as observe
    from tenon.profiler.observe.observer import Observer as Observer
    from tenon.random import continuous as random_arrays  # noqa: F401 - offered under another name
    from tenon.random import loops as random_loops  # noqa: F401 - offered under another name
    from tenon.serialize.atomic import replacing as replacing
    from tenon.tensors import pytree as pytree
    from tenon.tensors.argument_checks import verifying as verifying
    from tenon.tensors.autograd.grad_mode import enable_grad as enable_grad
    from tenon.tensors.autograd.grad_mode import no_grad as no_grad
    from tenon.tensors.creation.create import wrap as wrap
    from tenon.tensors.creation.random_filling import draw_from as draw_from
    from tenon.tensors.tensor import Tensor as Tensor
    from tenon.training import parts as run_parts  # noqa: F401 - offered under another name
    from tenon.training import runs as runs
    from tenon.training.recipe import Recipe as Recipe
    from tenon.training.sections import Section as Section
    from tenon.training.session import Session as Session

    op_interceptors = SLOT
    quantization: Any  # a module of a plugin

_TARGETS = {
    "Array": "tenon.engine.types:Array",
    "ArrayNamespace": "tenon.engine.types:ArrayNamespace",
    "Attr": "tenon.engine.types:Attr",
    "Attrs": "tenon.engine.types:Attrs",
    "Availability": "tenon.kernels.backend:Availability",
    "Aval": "tenon.engine.aval:Aval",
    "Backend": "tenon.kernels.backend:Backend",
    "BasePruningMethod": "tenon.nn.masks:BasePruningMethod",
    "CapturedGraph": "tenon.export.captured:CapturedGraph",
    "Communicator": "tenon.distributed.communication.communicator:Communicator",
    "CompiledRunner": "tenon.export.compiled_runner:CompiledRunner",
    "Compiler": "tenon.kernels.compiler:Compiler",
    "Composite": "tenon.engine.op:Composite",
    "Condition": "tenon.kernels.kernel_table:Condition",
    "Config": "tenon.config:Config",
    "Criterion": "tenon.nn.criterion:Criterion",
    "Device": "tenon.device:Device",
    "ExportedProgram": "tenon.export.exported_program:ExportedProgram",
    "FusedKernel": "tenon.kernels.compiler:FusedKernel",
    "Graph": "tenon.graph.graph:Graph",
    "Guard": "tenon.export.captured:Guard",
    "Kernel": "tenon.kernels.backend:Kernel",
    "KernelRow": "tenon.kernels.kernel_table:KernelRow",
    "KernelTable": "tenon.kernels.kernel_table:KernelTable",
    "Kind": "tenon.engine.op:Kind",
    "LRScheduler": "tenon.optim.scheduler:LRScheduler",
    "LayoutRules": "tenon.kernels.compiler:LayoutRules",
    "MemoryStats": "tenon.kernels.backend:MemoryStats",
    "Module": "tenon.nn.module:Module",
    "MultiTensorKernel": "tenon.kernels.compiler:MultiTensorKernel",
    "Nested": "tenon.engine.types:Nested",
    "Node": "tenon.graph.graph:Node",
    "Observer": "tenon.profiler.observe.observer:Observer",
    "Op": "tenon.engine.op:Op",
    "OpNamespace": "tenon.engine.types:OpNamespace",
    "Operand": "tenon.engine.types:Operand",
    "Optimizer": "tenon.optim.optimizer:Optimizer",
    "Parameter": "tenon.nn.parameter:Parameter",
    "Primitive": "tenon.engine.op:Primitive",
    "Recipe": "tenon.training.recipe:Recipe",
    "Ref": "tenon.graph.graph:Ref",
    "Runner": "tenon.export.runner:Runner",
    "ScalarInput": "tenon.export.signature:ScalarInput",
    "Section": "tenon.training.sections:Section",
    "Session": "tenon.training.session:Session",
    "ShapeRequest": "tenon.graph.shape_requests:ShapeRequest",
    "ShortKernel": "tenon.kernels.short_kernels:ShortKernel",
    "Signature": "tenon.export.signature:Signature",
    "Source": "tenon.graph.graph:Source",
    "Target": "tenon.export.target:Target",
    "Tensor": "tenon.tensors.tensor:Tensor",
    "Thunk": "tenon.kernels.compiler:Thunk",
    "Trace": "tenon.export.tracing:Trace",
    "Vectors": "tenon.export.vectors:Vectors",
    "backend_for": "tenon.kernels.backend:backend_for",
    "capture": "tenon.export.capture:capture",
    "captured_values": "tenon.export.recorder:captured_values",
    "cluster": "tenon.graph.cluster:",
    "compute_known": "tenon.export.known:compute_known",
    "distributed_parts": "tenon.distributed.parts:",
    "doctor_section": "tenon.plugins.diagnose:doctor_section",
    "dtype_is": "tenon.kernels.kernel_table:dtype_is",
    "enable_grad": "tenon.tensors.autograd.grad_mode:enable_grad",
    "draw_from": "tenon.tensors.creation.random_filling:draw_from",
    "engine": "tenon.distributed.engine:",
    "environment": "tenon.config:environment",
    "errors": "tenon.errors:",
    "expressions": "tenon.kernels.expressions:",
    "settings": "tenon.plugins.settings:",
    "Expression": "tenon.export.sizes:Expression",
    "SizeGuard": "tenon.export.symbolic.size_guards:SizeGuard",
    "fit_sizes": "tenon.export.sizes:fit",
    "itself": "tenon.kernels.kernel_table:itself",
    "lower": "tenon.export.lowering:lower",
    "no_grad": "tenon.tensors.autograd.grad_mode:no_grad",
    "observe": "tenon.profiler.observe:",
    "op_interceptors": "tenon.engine.interceptor:SLOT",
    "process_environment": "tenon.config:process_environment",
    "pytree": "tenon.tensors.pytree:",
    "quantization": "tenon.quantization:",
    "random_arrays": "tenon.random.continuous:",
    "random_loops": "tenon.random.loops:",
    "record": "tenon.graph.recording:record",
    "register": "tenon.plugins.manager:register",
    "register_parametrization": "tenon.nn.utils.parametrize:register_parametrization",
    "release_parameters": "tenon.distributed.replicas.data_parallel:release_parameters",
    "replacing": "tenon.serialize.atomic:replacing",
    "requires": "tenon.kernels.kernel_table:requires",
    "resolve": "tenon.plugins.registry:resolve",
    "run_parts": "tenon.training.parts:",
    "runs": "tenon.training.runs:",
    "shape_requests": "tenon.graph.shape_requests:",
    "sharding_rule": "tenon.engine.sharding_rule:",
    "size_at_least": "tenon.kernels.kernel_table:size_at_least",
    "sources_of": "tenon.graph.graph:sources_of",
    "spell_numbers": "tenon.export.spelled_numbers:spell_numbers",
    "titled": "tenon.compat.node_names:titled",
    "trace": "tenon.export.tracing:trace",
    "unflatten": "tenon.export.exported_program:unflatten",
    "user_key": "tenon.plugins.user_key:",
    "verifying": "tenon.tensors.argument_checks:verifying",
    "wrap": "tenon.tensors.creation.create:wrap",
    "write_out": "tenon.functions.derived:write_into",
}

#: Former names, which resolve at run time only.
_FORMER = {"asks": "requires"}

__all__ = ["hookimpl", *_TARGETS]


def __getattr__(name: str) -> Any:  # each name has its own type
    target = _TARGETS.get(_FORMER.get(name, name))
    if target is None:
        raise AttributeError(f"tenon.extend has no {name!r}; it offers {', '.join(sorted(__all__))}.")
    module, _, attribute = target.partition(":")
    value: object = importlib.import_module(module)
    if attribute:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_TARGETS})

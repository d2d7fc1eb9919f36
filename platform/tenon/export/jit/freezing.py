"""``freeze`` and ``optimize_for_inference``: traces whose parameters are constants."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from tenon.errors import ArgumentError
from tenon.export.jit.program import STORE, Program, store
from tenon.export.jit.script_module import RecursiveScriptModule, ScriptModule, with_programs
from tenon.nn.module import Module


def freeze(
    mod: Module, preserved_attrs: Sequence[str] | None = None, optimize_numerics: bool = True
) -> ScriptModule:
    """Return a trace in eval mode with its parameters and buffers as constants: ``state_dict()`` is empty.

    The methods ``preserved_attrs`` stay beside ``forward``. ``optimize_numerics`` has no effect.
    """
    if not isinstance(mod, ScriptModule) or not mod._complete()._programs:
        raise ArgumentError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to "
            "script your 'nn.Module'. (tenon.jit.trace(module.eval(), example_inputs); script stays Python.)"
        )
    if mod.training:
        raise ArgumentError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your "
            "module before freezing."
        )
    kept = {"forward", *(preserved_attrs or ())}
    missing = kept - set(mod._programs) - set(mod._parameters) - set(mod._buffers) - {"forward"}
    if missing:
        raise ArgumentError(f"{mod.original_name} has no traced method {min(missing)!r} to preserve.")
    stored = SimpleNamespace()
    programs: dict[str, Program] = {}
    for name, program in mod._programs.items():
        if name not in kept:
            continue
        if program.graph.writes:
            raise ArgumentError(
                f"{mod.original_name} was traced while it was training: it changes "
                f"{program.graph.writes[0].target.label}. Trace it in eval mode, then freeze it."
            )
        paths = {}
        for label, path in program.paths.items():
            value = mod._at(path)
            paths[label] = store(
                stored, "c", value.detach().clone() if path.partition(".")[0] != STORE else value
            )
        programs[name] = Program(
            program.graph, name, program.owner, paths, program.arguments, program.any_shape, program.reasons
        )
    frozen = RecursiveScriptModule()
    frozen.__dict__["_original_name"] = mod.original_name
    frozen.training = False
    return with_programs(RecursiveScriptModule, frozen, programs, stored)


def optimize_for_inference(mod: ScriptModule, other_methods: Sequence[str] | None = None) -> ScriptModule:
    """Return ``mod`` frozen, if it is not yet. ``tenon.compile`` of the result fuses its ops."""
    if isinstance(mod, ScriptModule) and mod._complete()._programs and not mod.state_dict():
        return mod
    return freeze(mod, other_methods)

"""``compact``: take out of a model what its masks have made zero.

The model runs once on an example and its ops are recorded (``tenon.extend.trace``). Channels that have to go
together are found in the recording (``dependencies.py``, ``op_rules.py``), those go that add nothing
(``removal.py``), and the smaller model is run and compared with the masked one before anything is changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from tenon import Tensor, no_grad
from tenon.errors import CaptureError, ModuleTypeError, PruningError, TenonError
from tenon.extend import Node, Trace, pytree, release_parameters, trace
from tenon.nn.layers.attention import MultiheadAttention
from tenon.nn.module import Module
from tenon.nn.parallel import DistributedDataParallel
from tenon.nn.parameter import is_lazy
from tenon.nn.weights import Pipeline, pipeline_of
from tenon_compress.prune import in_place_rules, op_rules, product_rules, recurrent_rules
from tenon_compress.prune.dependencies import KINDS, RULES, DependencyAnalysis
from tenon_compress.prune.parameter_slicing import slice_parameters, tensors_of
from tenon_compress.prune.removal import Removal, removable, removal, stays
from tenon_compress.prune.size_inference import sizes_in_code
from tenon_compress.prune.slice_inference import slice_rules, slices_left
from tenon_compress.prune.structure import apply_structure, note_structure, sizes_of, structure_of
from tenon_compress.quantize import structure as quantized
from tenon_compress.quantize.scheme import Decoded
from tenon_compress.quantize.training import InputObserver
from tenon_compress.receipt import Data, Example, Receipt, call_of, difference, evaluating, receipt_of
from tenon_compress.structure_buffer import Structure

#: The modules that register the rules of the analysis.
_RULES = (op_rules, product_rules, recurrent_rules, in_place_rules)
#: How far the outputs may move, by the largest of them: float32 sums in another order do.
_TOLERANCE = 1e-4
#: The same where a product may be divided by how many numbers it sums: then another number is little.
_NARROW = 2e-6
#: What code raises that has not the sizes which it expects.
_OF_CODE = (
    TenonError, ValueError, TypeError, RuntimeError, AssertionError, ArithmeticError, LookupError,
    AttributeError,
)  # fmt: skip
#: Attributes of ops that are sizes of what has channels.
_SIZES = {"key", "shape", "sizes", "start"}


def compact(
    model: Module,
    example: Example,
    *,
    batch_sizes: Sequence[int] = (),
    data: Data | None = None,
    seconds: float = 0.2,
) -> Receipt:
    """Remove the channels, heads and units of ``model`` that masks have made zero; prints and returns the
    receipt.

    ``example`` is what the model is called with: one argument, a tuple or list of them, or a mapping of
    keyword arguments. What depends on what is read off a run with it, through sums, norms, groups,
    concatenation, attention and recurrent layers. Outputs in evaluation mode stay those of the masked model;
    constants that zero channels leave go into the bias that follows. Masks become part of the weights.
    Parameters stay the same objects with new data: make a new optimizer. The structure becomes a part of
    ``state_dict()``, and ``tenon.prune.load`` reads it back into a model as its class makes it.

    ``batch_sizes``, ``data`` and ``seconds`` are those of ``tenon.compress.receipt_of``.

    PruningError if there is nothing to remove, a weight is not finite, zero channels reach an op for which it
    is not known what depends on them, or the model cannot run with fewer of them. Any error leaves the model
    as it was.
    """
    check_model(model, "compact")
    args, kwargs = call_of(example)
    masked = copy.deepcopy(model)
    bake_masks(masked)
    smaller, structure, notes = _removed(masked, args, kwargs)
    _note(smaller, structure)
    receipt = receipt_of(
        masked, smaller, example, batch_sizes=batch_sizes, data=data, notes=notes, seconds=seconds
    )
    bake_masks(model)
    apply_structure(model, structure)
    _note(model, structure)
    for own, new in zip(tensors_of(model), tensors_of(smaller), strict=True):
        own.data = new.data
        own.grad = None
    release_parameters(model.parameters())
    receipt.show()
    return receipt


def _note(model: Module, structure: Structure) -> None:
    """Let the state dict say what was removed, and what sizes layers of few bits have now."""
    note_structure(model, structure)
    if quantized.KEY in model._buffers:
        quantized.note_structure(model)


def _removed(
    masked: Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Module, Structure, list[str]]:
    """A copy of ``masked`` without its zero channels, its structure, and notes on what stays."""
    smaller = copy.deepcopy(masked)
    with evaluating(smaller), evaluating(masked), no_grad():
        analysis, names = analyse(smaller, args, kwargs)
        try:
            return _without(masked, smaller, analysis, names, args, kwargs)
        except PruningError as error:
            if not (analysis.multiplies_computed or analysis.writes_channels):
                raise
            first = error
        smaller = copy.deepcopy(masked)
        with evaluating(smaller):
            analysis, names = analyse(smaller, args, kwargs, keep_scales=True)
            try:
                return _without(masked, smaller, analysis, names, args, kwargs)
            except PruningError:  # nothing else is to be removed, or sizes are in the way here too
                raise first from None


def _without(
    masked: Module,
    smaller: Module,
    analysis: DependencyAnalysis,
    names: dict[Node, str],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> tuple[Module, Structure, list[str]]:
    """The same by ``analysis``, which is of the copy ``smaller``."""
    gone = removable(analysis)
    found = removal(analysis, gone)
    notes = stays(analysis, gone, names)
    if not found.count:
        raise PruningError(
            "compact: no channel can be removed. Mask whole outputs or inputs of weights first, as"
            f" nn.utils.prune.ln_structured does.{''.join(f' {note}.' for note in notes)}"
        )
    slice_parameters(smaller, analysis, found)
    return *_resized(masked, smaller, analysis, found, args, kwargs), notes


def check_model(model: Module, what: str) -> None:
    """Errors that name ``what`` unless ``model`` is a module of finite numbers."""
    if not isinstance(model, Module):
        raise ModuleTypeError(f"{what} takes a module, got {type(model).__name__}.")
    if isinstance(model, DistributedDataParallel):
        raise ModuleTypeError(
            f"{what} takes the model itself, got DistributedDataParallel. Give it model.module, and wrap that"
            " anew."
        )
    limits = {id(t) for m in model.modules() if isinstance(m, InputObserver) for t in m.buffers()}
    for name, held in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(held):
            raise PruningError(f"{what}: '{name}' has no shape yet. Call the model once before.")
        if id(held) in limits:
            continue  # infinite until something has passed
        if held.dtype.is_floating_point and not bool(held.isfinite().all()):
            raise PruningError(
                f"{what}: '{name}' has numbers that are not finite, so zero times it is not zero. Find out"
                " where they come from, or load an older checkpoint."
            )
    shared = shared_names(model)
    paths = {id(module): path for path, module in model.named_modules()}
    for module, pipeline in _pipelines(model):
        if any(isinstance(step, Decoded) for step in pipeline.steps):
            raise PruningError(
                f"{what}: '{paths[id(module)]}' has weights of few bits, which masks would turn back into"
                " floats. Prune first, then quantize."
            )
        for held in pipeline.originals(module):
            if id(held) in shared and any(step.is_mask for step in pipeline.steps):
                raise PruningError(
                    f"{what}: {' and '.join(shared[id(held)])} are one parameter, of which one module has a"
                    " mask and another has none. Remove the mask and write the zeros into the parameter, or"
                    " untie it."
                )


def shared_names(model: Module) -> dict[int, list[str]]:
    """The names of every parameter that several modules have, by its id."""
    names: dict[int, list[str]] = {}
    for path, module in model.named_modules():
        for name, held in module.named_parameters(path, recurse=False):
            names.setdefault(id(held), []).append(name)
    return {key: several for key, several in names.items() if len(several) > 1}


def analyse(
    model: Module, args: Sequence[object], kwargs: Mapping[str, object], *, keep_scales: bool = False
) -> tuple[DependencyAnalysis, dict[Node, str]]:
    """What depends on what in a run of ``model``, and the names of its tensors."""
    if any(isinstance(m, InputObserver) and bool(m.low > m.high) for m in model.modules()):
        model(*args, **kwargs)  # sets limits, which look at all channels
    analysis = DependencyAnalysis(_traced(model, args, kwargs), keep_scales=keep_scales)
    names = {id(t): name for name, t in (*model.named_parameters(), *model.named_buffers())}
    found = {node: names[id(held)] for node, held in analysis.trace.stored.items()}
    saved = model.state_dict()
    single = [m for m in model.modules() if isinstance(m, MultiheadAttention) and m.num_heads == 1]
    rows = {id(held) for m in single for held in m._parameters.values()}
    for node, axes in analysis.stored.items():
        if id(analysis.trace.stored[node]) in rows:
            analysis.channels.keep(axes[0], "they are of the only head")
        if found[node] not in saved:
            for channels in axes:
                analysis.channels.keep(channels, f"the buffer {found[node]} is not saved")
    return analysis, found


def _traced(model: Module, args: Sequence[object], kwargs: Mapping[str, object]) -> Trace:
    try:
        return trace(model, args, kwargs, {*RULES, *KINDS})
    except CaptureError as error:
        raise PruningError(
            f"the model cannot be recorded, so nothing is known of what depends on what: {error}"
        ) from error


def _pipelines(model: Module) -> list[tuple[Module, Pipeline]]:
    found = [(m, pipeline_of(m, name)) for m in model.modules() for name in vars(m).get("_weights", ())]
    return [(module, pipeline) for module, pipeline in found if pipeline is not None]


def bake_masks(model: Module) -> None:
    """Make masks permanent, and what is computed before them."""
    for module, pipeline in _pipelines(model):
        masks = [i for i, step in enumerate(pipeline.steps) if step.is_mask]
        if masks:
            pipeline.bake(module, masks[-1] + 1)


def bake_all(model: Module) -> None:
    """Make every computed weight a plain one."""
    for module, pipeline in _pipelines(model):
        pipeline.bake(module, len(pipeline.steps))


def _resized(
    masked: Module,
    smaller: Module,
    analysis: DependencyAnalysis,
    found: Removal,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> tuple[Module, Structure]:
    """The smaller model that says what the masked one does, and its structure: as it is if its code takes all
    sizes from tensors, else with attributes that say them, else by rules for what the code asks for."""
    modules = dict(smaller.named_modules())
    ways = [_numbers_in_code(modules, found), _rules_in_code(modules, analysis, found)]
    ways = [way for way in ways if way]
    way: Structure = {}
    tolerance = _NARROW if analysis.multiplies_computed and not analysis.keep_scales else _TOLERANCE
    while True:
        made, structure = copy.deepcopy(smaller), structure_of(smaller)
        for path, numbers in way.items():
            structure[path] = {**structure.get(path, {}), **numbers}
        apply_structure(made, structure)
        _say_slices(made, structure, analysis, found, args, kwargs)
        try:
            _compare(masked, made, args, kwargs, found, tolerance)
        except PruningError:
            if not ways:
                raise
            way = ways.pop(0)
        else:
            return made, structure


def _say_slices(
    made: Module,
    structure: Structure,
    analysis: DependencyAnalysis,
    found: Removal,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> None:
    """Give ``made`` and ``structure`` rules for the slices that its code asks for, if all can be told."""
    try:
        answers = slices_left(analysis.trace, analysis.abstract_values, found.gone)
        rules = slice_rules(lambda: made(*args, **kwargs), answers) if answers else {}
    except _OF_CODE:  # the comparison says what is wrong
        return
    for path, module in made.named_modules():
        if id(module) in rules and (rules[id(module)] or "slices" in structure.get(path, {})):
            structure.setdefault(path, {})["slices"] = rules[id(module)]
    apply_structure(made, structure)


def _numbers_in_code(modules: dict[str, Module], found: Removal) -> Structure:
    """Numbers of modules of unknown classes by which they shape what has shrunk, such as their heads."""
    numbers: Structure = {}
    for (node, _), sizes in found.shapes.items():
        path = node.module if node.module in modules else ""
        written = "shape" in node.attrs or node.kind == "constant"
        if not written or sizes_of(modules[path]) is not None:
            continue
        for before, after in zip(node.avals[0].shape, sizes, strict=True):
            named = [n for n, v in vars(modules[path]).items() if type(v) is int and v == before]
            if before != after and len(named) == 1:
                numbers.setdefault(path, {})[named[0]] = after
    return numbers


def _rules_in_code(modules: dict[str, Module], analysis: DependencyAnalysis, found: Removal) -> Structure:
    """Rules for the sizes that modules of unknown classes ask for."""
    rules = sizes_in_code(analysis.trace, analysis.abstract_values, found.shapes)
    return {p: rules[id(m)] for p, m in modules.items() if id(m) in rules and sizes_of(m) is None}


def _compare(
    masked: Module,
    smaller: Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    found: Removal,
    tolerance: float,
) -> None:
    """PruningError unless the smaller model runs and says the same."""
    wanted = masked(*args, **kwargs)
    if any(not bool(t.isfinite().all()) for t in pytree.tree_leaves(wanted) if isinstance(t, Tensor)):
        raise PruningError(
            "compact: for this example the masked model gives outputs that are not finite, with which none"
            " can be compared. Give another example."
        )
    paths = ", ".join(
        dict.fromkeys(
            f"'{n.module}'" for n, _ in found.shapes if n.kind == "constant" or _SIZES & n.attrs.keys()
        )
    )
    advice = (
        f" Sizes are written into {paths or 'its code'}: take them from the tensors or from the layers there,"
        " or remove the masks before it."
    )
    try:
        made = smaller(*args, **kwargs)
    except _OF_CODE as error:
        raise PruningError(
            f"compact: the model does not run without its zero channels: {error}.{advice}"
        ) from error
    largest = [
        float(t.abs().max()) for t in pytree.tree_leaves(wanted) if isinstance(t, Tensor) and t.numel()
    ]
    scale = max([1.0, *largest])
    off = difference(wanted, made)
    if off > tolerance * scale:
        raise PruningError(
            f"compact: without its zero channels the model gives outputs that differ by {off:.3g}.{advice}"
        )

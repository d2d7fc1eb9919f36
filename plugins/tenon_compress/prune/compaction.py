"""``compact``: remove from a model the channels that its masks have made zero.

The model runs once on an example and its ops are captured (``tenon.export.capture``). The graph shows which
channels can only be removed together (``dependencies.py``, ``op_rules.py``); those that contribute nothing
are removed (``removal.py``), and the smaller model is run and compared with the masked one before the model
is changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from tenon import Tensor, no_grad
from tenon.errors import CaptureError, ModuleTypeError, PruningError, TenonError
from tenon.extend import CapturedGraph, ExportedProgram, Node, capture, pytree, release_parameters
from tenon.nn.layers.attention import MultiheadAttention
from tenon.nn.module import Module
from tenon.nn.parallel import DistributedDataParallel
from tenon.nn.parameter import is_lazy
from tenon.nn.weights import Pipeline, pipeline_of
from tenon_compress.prune import in_place_rules, op_rules, product_rules, recurrent_rules
from tenon_compress.prune.dependencies import KINDS, RULES, DependencyAnalysis
from tenon_compress.prune.parameter_slicing import slice_parameters, tensors_of
from tenon_compress.prune.removal import Removal, kept_zero_rows, removable, removal
from tenon_compress.prune.size_inference import sizes_in_code
from tenon_compress.prune.slice_inference import slice_rules, slices_left
from tenon_compress.prune.structure import apply_structure, note_structure, sizes_of, structure_of
from tenon_compress.quantize import structure as quantized
from tenon_compress.quantize.scheme import Decoded
from tenon_compress.quantize.training import InputObserver
from tenon_compress.receipt import Data, Example, Receipt, call_of, difference, evaluating, receipt_of
from tenon_compress.structure_buffer import Structure

_GRAPHS = (CapturedGraph, ExportedProgram)
#: The modules that register the rules of the analysis.
_RULES = (op_rules, product_rules, recurrent_rules, in_place_rules)
#: The largest change of outputs, relative to the largest output: that of float32 sums in another order.
_TOLERANCE = 1e-4
#: The same where code may divide by the number of channels of a product: then a wrong divisor changes little.
_NARROW = 2e-6
#: Errors that code raises if sizes are not those that it expects.
_CODE_ERRORS = (
    TenonError, ValueError, TypeError, RuntimeError, AssertionError, ArithmeticError, LookupError,
    AttributeError,
)  # fmt: skip
#: Attributes of ops that are sizes or positions along axes with channels.
_SIZES = {"key", "shape", "sizes", "start"}


def compact(
    model: Module,
    example: Example,
    *,
    batch_sizes: Sequence[int] = (),
    data: Data | None = None,
    seconds: float = 0.2,
) -> Receipt:
    """Remove channels, heads and units of ``model`` that masks made zero; return the receipt, printed.

    ``example`` is what the model is called with: one argument, a tuple or list of them, or a mapping of
    keyword arguments. A run with it shows the dependencies, through sums, norms, groups, concatenation,
    attention and recurrent layers. Outputs in evaluation mode remain those of the masked model; constants
    that zero channels leave are folded into the bias that follows. Masks become part of the weights.
    Parameters are the same objects with new data: create a new optimizer. The structure becomes part of
    ``state_dict()``, and ``tenon.prune.load`` loads it into a new model of the class.

    ``batch_sizes``, ``data`` and ``seconds`` are those of ``tenon.compress.receipt_of``.

    PruningError if there is nothing to remove, a weight is not finite, zero channels reach an op without a
    rule, or the model cannot run with fewer of them. On any error the model is unchanged.
    """
    check_model(model, "compact")
    args, kwargs = call_of(example)
    masked = copy.deepcopy(model)
    bake_masks(masked)
    smaller, structure, notes = _smaller_copy(masked, args, kwargs)
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
    """Record in the state dict what was removed, and the new sizes of quantized layers."""
    note_structure(model, structure)
    if quantized.KEY in model._buffers:
        quantized.note_structure(model)


def _smaller_copy(
    masked: Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Module, Structure, list[str]]:
    """Return a copy of ``masked`` without its zero channels, its structure, and notes on what was kept."""
    smaller = copy.deepcopy(masked)
    with evaluating(smaller), evaluating(masked), no_grad():
        analysis, names = analyse(smaller, args, kwargs)
        try:
            return _remove_channels(masked, smaller, analysis, names, args, kwargs)
        except PruningError as error:
            if not (analysis.multiplies_computed or analysis.writes_channels):
                raise
            first_error = error
        smaller = copy.deepcopy(masked)
        with evaluating(smaller):
            analysis, names = analyse(smaller, args, kwargs, keep_scales=True)
            try:
                return _remove_channels(masked, smaller, analysis, names, args, kwargs)
            except PruningError:  # nothing else can be removed, or it fails for its sizes too
                raise first_error from None


def _remove_channels(
    masked: Module,
    smaller: Module,
    analysis: DependencyAnalysis,
    names: dict[Node, str],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> tuple[Module, Structure, list[str]]:
    """Remove channels from ``smaller``, a copy of ``masked``, by its ``analysis``; see ``_smaller_copy``."""
    is_removed = removable(analysis)
    removed = removal(analysis, is_removed)
    notes = kept_zero_rows(analysis, is_removed, names)
    if not removed.count:
        raise PruningError(
            "compact: no channel can be removed. Mask whole outputs or inputs of weights first, as"
            f" nn.utils.prune.ln_structured does.{''.join(f' {note}.' for note in notes)}"
        )
    slice_parameters(smaller, analysis, removed)
    return *_find_structure(masked, smaller, analysis, removed, args, kwargs), notes


def check_model(model: Module, caller: str) -> None:
    """Raise an error that names ``caller`` unless ``model`` can be pruned and is finite."""
    if not isinstance(model, Module):
        advice = " Give it tenon.export.unflatten(...) of it." if isinstance(model, _GRAPHS) else ""
        raise ModuleTypeError(f"{caller} takes a module, got {type(model).__name__}.{advice}")
    if isinstance(model, DistributedDataParallel):
        raise ModuleTypeError(
            f"{caller} takes the model itself, got DistributedDataParallel. Give it model.module, and"
            " wrap that anew."
        )
    observed_limits = {id(t) for m in model.modules() if isinstance(m, InputObserver) for t in m.buffers()}
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(parameter):
            raise PruningError(f"{caller}: '{name}' has no shape yet. Call the model once before.")
        if id(parameter) in observed_limits:
            continue  # infinite until the observer has seen a value
        if parameter.dtype.is_floating_point and not bool(parameter.isfinite().all()):
            raise PruningError(
                f"{caller}: '{name}' has numbers that are not finite, so zero times it is not zero. Find out"
                " where they come from, or load an older checkpoint."
            )
    shared = shared_names(model)
    paths = {id(module): path for path, module in model.named_modules()}
    for module, pipeline in _pipelines(model):
        if any(isinstance(step, Decoded) for step in pipeline.steps):
            raise PruningError(
                f"{caller}: '{paths[id(module)]}' has weights of few bits, which masks would turn back into"
                " floats. Prune first, then quantize."
            )
        for parameter in pipeline.originals(module):
            if id(parameter) in shared and any(step.is_mask for step in pipeline.steps):
                raise PruningError(
                    f"{caller}: {' and '.join(shared[id(parameter)])} are one parameter, of which one module"
                    " has a mask and another has none. Remove the mask and write the zeros into the"
                    " parameter, or untie it."
                )


def shared_names(model: Module) -> dict[int, list[str]]:
    """Return the names of each parameter that several modules share, by its id."""
    names: dict[int, list[str]] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(path, recurse=False):
            names.setdefault(id(parameter), []).append(name)
    return {key: several for key, several in names.items() if len(several) > 1}


def analyse(
    model: Module, args: Sequence[object], kwargs: Mapping[str, object], *, keep_scales: bool = False
) -> tuple[DependencyAnalysis, dict[Node, str]]:
    """Return the dependency analysis of a run of ``model``, and the names of its parameters and buffers."""
    if any(isinstance(m, InputObserver) and bool(m.low > m.high) for m in model.modules()):
        model(*args, **kwargs)  # sets the observers' limits, which depend on all channels
    graph = _captured(model, args, kwargs)
    own = {id(t.raw): (name, t) for name, t in (*model.named_parameters(), *model.named_buffers())}
    named_tensors = {node: own[id(node.value.raw)] for node in graph.states if id(node.value.raw) in own}
    names_of = {node: name for node, (name, _) in named_tensors.items()}
    tensors = {node: tensor for node, (_, tensor) in named_tensors.items()}
    analysis = DependencyAnalysis(graph, tensors, keep_scales=keep_scales)
    saved = model.state_dict()
    single_head = [m for m in model.modules() if isinstance(m, MultiheadAttention) and m.num_heads == 1]
    rows = {id(parameter) for m in single_head for parameter in m._parameters.values()}
    for node, axes in analysis.stored.items():
        if id(tensors[node]) in rows:
            analysis.channels.keep(axes[0], "they are of the only head")
        if names_of[node] not in saved:
            for channels in axes:
                analysis.channels.keep(channels, f"the buffer {names_of[node]} is not saved")
    return analysis, names_of


def _captured(model: Module, args: Sequence[object], kwargs: Mapping[str, object]) -> CapturedGraph:
    try:
        return capture(model, *args, kwargs=kwargs, whole={*RULES, *KINDS}, as_run=True)
    except CaptureError as error:
        raise PruningError(
            f"the model cannot be recorded, so the dependencies between its channels are unknown: {error}"
        ) from error


def _pipelines(model: Module) -> list[tuple[Module, Pipeline]]:
    pipelines = [(m, pipeline_of(m, name)) for m in model.modules() for name in vars(m).get("_weights", ())]
    return [(module, pipeline) for module, pipeline in pipelines if pipeline is not None]


def bake_masks(model: Module) -> None:
    """Bake masks, and the steps before them, into the weights."""
    for module, pipeline in _pipelines(model):
        masks = [i for i, step in enumerate(pipeline.steps) if step.is_mask]
        if masks:
            pipeline.bake(module, masks[-1] + 1)


def bake_all(model: Module) -> None:
    """Bake all steps of computed weights into plain parameters."""
    for module, pipeline in _pipelines(model):
        pipeline.bake(module, len(pipeline.steps))


def _find_structure(
    masked: Module,
    smaller: Module,
    analysis: DependencyAnalysis,
    removed: Removal,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> tuple[Module, Structure]:
    """Return a model that computes what the masked one does, and its structure.

    The first of these that works: ``smaller`` as it is, if its code takes all sizes from tensors; with new
    values of attributes from which the code takes sizes; with rules for the sizes that the code requests.
    """
    modules = dict(smaller.named_modules())
    corrections = [_attributes_in_code(modules, removed), _rules_in_code(modules, analysis, removed)]
    corrections = [correction for correction in corrections if correction]
    correction: Structure = {}
    tolerance = _NARROW if analysis.multiplies_computed and not analysis.keep_scales else _TOLERANCE
    while True:
        candidate, structure = copy.deepcopy(smaller), structure_of(smaller)
        for path, numbers in correction.items():
            structure[path] = {**structure.get(path, {}), **numbers}
        apply_structure(candidate, structure)
        _set_slice_rules(candidate, structure, analysis, removed, args, kwargs)
        try:
            _check_outputs(masked, candidate, args, kwargs, removed, tolerance)
        except PruningError:
            if not corrections:
                raise
            correction = corrections.pop(0)
        else:
            return candidate, structure


def _set_slice_rules(
    model: Module,
    structure: Structure,
    analysis: DependencyAnalysis,
    removed: Removal,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> None:
    """Add rules to ``model`` and ``structure`` for the slices that code requests, if all can be inferred."""
    try:
        answers = slices_left(analysis.graph, analysis.abstract_values, removed.is_removed)
        rules = slice_rules(lambda: model(*args, **kwargs), answers) if answers else {}
    except _CODE_ERRORS:  # the comparison of outputs reports what is wrong
        return
    for path, module in model.named_modules():
        if id(module) in rules and (rules[id(module)] or "slices" in structure.get(path, {})):
            structure.setdefault(path, {})["slices"] = rules[id(module)]
    apply_structure(model, structure)


def _attributes_in_code(modules: dict[str, Module], removed: Removal) -> Structure:
    """Return new values of the attributes by which unknown modules shape values, such as heads."""
    numbers: Structure = {}
    for (node, _), sizes in removed.shapes.items():
        path = node.module if node.module in modules else ""
        written = "shape" in node.attrs or node.kind == "constant"
        if not written or sizes_of(modules[path]) is not None:
            continue
        for before, after in zip(node.avals[0].shape, sizes, strict=True):
            named = [n for n, v in vars(modules[path]).items() if type(v) is int and v == before]
            if before != after and len(named) == 1:
                numbers.setdefault(path, {})[named[0]] = after
    return numbers


def _rules_in_code(modules: dict[str, Module], analysis: DependencyAnalysis, removed: Removal) -> Structure:
    """Return rules for the sizes that modules of unknown classes request."""
    rules = sizes_in_code(analysis.graph, analysis.abstract_values, removed.shapes)
    return {p: rules[id(m)] for p, m in modules.items() if id(m) in rules and sizes_of(m) is None}


def _check_outputs(
    masked: Module,
    smaller: Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    removed: Removal,
    tolerance: float,
) -> None:
    """Raise PruningError unless the smaller model runs and its outputs are those of the masked one."""
    expected = masked(*args, **kwargs)
    if any(not bool(t.isfinite().all()) for t in pytree.tree_leaves(expected) if isinstance(t, Tensor)):
        raise PruningError(
            "compact: for this example the masked model returns outputs that are not finite, with which none"
            " can be compared. Give another example."
        )
    paths = ", ".join(
        dict.fromkeys(
            f"'{n.module}'" for n, _ in removed.shapes if n.kind == "constant" or _SIZES & n.attrs.keys()
        )
    )
    advice = (
        f" Sizes are written into {paths or 'its code'}: take them from the tensors or from the layers there,"
        " or remove the masks before it."
    )
    try:
        result = smaller(*args, **kwargs)
    except _CODE_ERRORS as error:
        raise PruningError(
            f"compact: the model does not run without its zero channels: {error}.{advice}"
        ) from error
    largest = [
        float(t.abs().max()) for t in pytree.tree_leaves(expected) if isinstance(t, Tensor) and t.numel()
    ]
    scale = max([1.0, *largest])
    off = difference(expected, result)
    if off > tolerance * scale:
        raise PruningError(
            f"compact: without its zero channels the model returns outputs that differ by {off:.3g}.{advice}"
        )

"""``load``: make a module of a file that ``content.py`` wrote, whose content is treated as untrusted."""

from __future__ import annotations

import keyword
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from tenon.device import DeviceLike
from tenon.errors import ArgumentError, BundleError, TenonError, UnsupportedError
from tenon.export import archive, schema
from tenon.export.jit.content import METHODS, MODULE, PARTS, SCHEMA, VERSION
from tenon.export.jit.free_sizes import Sizes
from tenon.export.jit.program import REASON, Program, program_of
from tenon.export.jit.script_module import RecursiveScriptModule, ScriptModule, with_programs
from tenon.export.json_types import Json, as_flag, as_object, as_string
from tenon.nn.parameter import Parameter
from tenon.tensors.tensor import Tensor

#: The deepest tree of modules that is read.
_MAX_DEPTH = 256


class TraceFileError(BundleError, RuntimeError):
    """A file is damaged, or was not written by ``tenon.jit.save``; a RuntimeError as in PyTorch."""


def refuse_foreign(names: Collection[str], source: str) -> None:
    """Raise UnsupportedError for archives of other formats, by the names of the files in them."""
    if any("/code/" in f"/{name}" for name in names) or any(n.endswith("constants.pkl") for n in names):
        raise UnsupportedError(
            f"{source} is a TorchScript archive that PyTorch wrote: a program in PyTorch's own format, which "
            "tenon does not run. Save its weights with PyTorch, torch.save(torch.jit.load(path)."
            "state_dict(), 'weights.pt'), load these into the model's class, model.load_state_dict("
            "tenon.load('weights.pt')), and trace that: tenon.jit.trace(model, example_inputs).save(path)."
        )
    if any(name.endswith("data.pkl") for name in names):
        raise UnsupportedError(
            f"{source} is a checkpoint that torch.save wrote, not a trace: read it by tenon.load."
        )
    if "graph.json" in names:
        raise UnsupportedError(f"{source} is an exported program: read it by tenon.export.load.")


def load(
    f: str | os.PathLike[str] | BinaryIO,
    map_location: DeviceLike = None,
    _extra_files: dict[str, Any] | None = None,  # values of any type are replaced
    _restore_shapes: bool = False,
) -> ScriptModule:
    """Read a module that ``ScriptModule.save`` wrote; it runs without the class that was traced.

    ``map_location`` is the device to which it is moved. The values of ``_extra_files`` are replaced by the
    bytes of the files of these names. Nothing in the file is executed; TraceFileError if it is damaged,
    UnsupportedError if it is of another format. ``_restore_shapes`` has no effect.
    """
    source = "the file"
    if isinstance(f, str | os.PathLike):
        source = os.fspath(f)
        if not Path(f).exists():
            raise ArgumentError(f"The provided filename {source} does not exist")
        if Path(f).is_dir():
            raise ArgumentError(
                f"The provided filename {source} is a directory. tenon.export.load reads the folder of a "
                "bundle."
            )
    try:
        with archive.reading(f, source, "tenon.jit.save") as opened:
            present = set(opened.namelist())
            refuse_foreign(present, source)
            document = archive.document(opened, MODULE, source)
            schema.check_schema(document, SCHEMA, VERSION, source)
            folders = (f"{METHODS}/", f"{PARTS}/")
            names = sorted(name for name in present if name.startswith(folders))
            graphs = {name: archive.document(opened, name, source) for name in names}
            arrays = archive.tensors(opened, source)
            extras = {
                name: archive.member(opened, f"extra/{name}") if f"extra/{name}" in present else b""
                for name in _extra_files or ()
            }
    except UnsupportedError:
        raise
    except BundleError as error:
        raise TraceFileError(str(error)) from error
    except OSError as error:
        raise TraceFileError(f"cannot read {source}: {error}.") from error
    result = restored(document, graphs, arrays, source, map_location)
    if _extra_files is not None:
        _extra_files.update(extras)
    return result


def restored(
    document: Mapping[str, Json],
    graphs: Mapping[str, dict[str, Json]],
    arrays: Mapping[str, Tensor],
    source: str,
    device: DeviceLike,
) -> ScriptModule:
    """Return the module that ``document`` describes; BundleError if its parts contradict each other."""
    try:
        result = _Reader(document, graphs, arrays, source).module()
    except BundleError as error:
        raise TraceFileError(f"{source}: {error!s:.700}") from error
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TenonError,
        TypeError,
        ValueError,
    ) as error:
        raise TraceFileError(f"{source} is malformed: {error!r:.400}.") from error
    return result if device is None else result.to(device)


class _Reader:
    def __init__(
        self,
        document: Mapping[str, Json],
        graphs: Mapping[str, dict[str, Json]],
        arrays: Mapping[str, Tensor],
        source: str,
    ) -> None:
        self.document, self.graphs, self.arrays, self.source = document, graphs, arrays, source
        #: Tensors by the name under which they are stored: a parameter takes the place of its array.
        self.tensors: dict[str, Tensor] = dict(arrays)
        #: The modules of the tree, and their entries.
        self.modules: list[ScriptModule] = []
        self.entries: list[Mapping[str, Json]] = []

    def module(self) -> ScriptModule:
        unknown = set(self.document) - {"schema", "version", "root", "methods"}
        if unknown:
            raise BundleError(f"unknown entries {sorted(unknown)!s:.300}.")
        root = self._tree(self.document["root"], 0)
        methods = as_object(self.document["methods"])
        if not methods:
            raise BundleError("there are no methods.")
        self._add_methods(root, methods, METHODS)
        for number, (part, entry) in enumerate(zip(self.modules, self.entries, strict=True)):
            own = entry.get("methods")
            if own and part is not root:
                self._add_methods(part, as_object(own), f"{PARTS}/{number}")
            elif entry.get("not alone") is not None:
                part.__dict__[REASON] = as_string(entry["not alone"])
        return root

    def _add_methods(self, module: ScriptModule, methods: Mapping[str, Json], folder: str) -> None:
        stored = SimpleNamespace()
        programs = {
            _name(name): self._method(name, entry, module, stored, folder) for name, entry in methods.items()
        }
        with_programs(RecursiveScriptModule, module, programs, stored)

    def _tree(self, entry: Json, depth: int) -> ScriptModule:
        if depth > _MAX_DEPTH:
            raise BundleError(f"modules are nested deeper than {_MAX_DEPTH}.")
        entry = as_object(entry)
        if "same" in entry:
            return self.modules[_number(entry["same"], len(self.modules))]
        module = RecursiveScriptModule()
        self.modules.append(module)
        self.entries.append(entry)
        module.__dict__["_original_name"] = as_string(entry["name"])
        module.training = as_flag(entry["training"])
        for name, stored in as_object(entry["parameters"]).items():
            module.register_parameter(as_string(name), None if stored is None else self._parameter(stored))
        for name, stored in as_object(entry["buffers"]).items():
            if stored is None:
                module.register_buffer(as_string(name), None)
            else:
                module.register_buffer(name, self._stored(stored["tensor"]), as_flag(stored["persistent"]))
        for name, child in as_object(entry["children"]).items():
            part: Any = None if child is None else self._tree(child, depth + 1)  # None reserves the name
            module.add_module(as_string(name), part)
        return module

    def _stored(self, name: Json) -> Tensor:
        tensor = self.tensors.get(as_string(name))
        if tensor is None:
            raise BundleError(f"no tensor {name!r:.200} is stored.")
        return tensor

    def _parameter(self, entry: Json) -> Parameter:
        name, tensor = entry["tensor"], self._stored(entry["tensor"])
        if not isinstance(tensor, Parameter):
            tensor = self.tensors[name] = Parameter(tensor, requires_grad=as_flag(entry["grad"]))
        return tensor

    def _method(
        self, name: str, entry: Json, root: ScriptModule, stored: SimpleNamespace, folder: str
    ) -> Program:
        own = {label: self._stored(key) for label, key in as_object(entry["tensors"]).items()}
        file = f"{folder}/{name}.json"
        if file not in self.graphs:
            raise BundleError(f"{file} is missing.")
        graph = schema.from_document(self.graphs[file], own, file)
        if graph.guards or graph.scalars:
            raise BundleError(f"the method {name!r} has guards or numbers that change.")
        paths: dict[int, str] = {}
        for label, path in as_object(entry["paths"]).items():
            *parts, last = as_string(path).split(".")
            holder: Any = root  # a module
            for part in parts:
                holder = holder._modules[part]
            if _member(holder, last) is not own[label]:
                raise BundleError(f"the method {name!r} has another tensor at {path!r:.200} than the module.")
            paths[id(own[label].raw)] = path
        arguments = [_name(each) for each in entry["arguments"]]
        given, named = graph.signature.in_spec.children_specs
        if len(arguments) != len(given.children_specs) + len(named.children_specs):
            raise BundleError(f"the method {name!r} has another number of arguments than its graph.")
        reasons = {
            (as_string(label), _number(axis, 64)): as_string(why) for label, axis, why in entry["fixed"]
        }
        sizes = Sizes(graph, as_flag(entry["any_shape"]), reasons)
        return program_of(
            sizes, name=name, owner=as_string(entry["owner"]), arguments=arguments, paths=paths, stored=stored
        )


def _member(module: ScriptModule, name: str) -> Tensor:
    for registry in (module._parameters, module._buffers):
        member = registry.get(name)
        if member is not None:
            return member
    raise BundleError(f"the module has no tensor {name!r:.200}.")


def _number(value: Json, end: int) -> int:
    if type(value) is not int or not 0 <= value < end:
        raise BundleError(f"expected a number below {end}, got {value!r:.80}.")
    return value


def _name(value: Json) -> str:
    """Return ``value`` if it can be the name of an argument or method: it becomes part of generated code."""
    name = as_string(value)
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__") or name == "self":
        raise BundleError(f"{name!r:.80} is not a valid name of an argument or method.")
    return name

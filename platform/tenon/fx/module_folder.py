"""Write a GraphModule as a Python package: its source, and files with its state."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tenon.errors import UnsavableError
from tenon.fx.names import is_name
from tenon.nn.module import Module
from tenon.tensors.public_functions import public

if TYPE_CHECKING:
    from tenon.fx.graph_module import GraphModule

_HEAD = '''"""Written by GraphModule.to_folder."""

from pathlib import Path

import tenon
from tenon.fx import _pytree as fx_pytree
from tenon.nn import *
from tenon.utils import _pytree as pytree
from tenon import device
from math import inf, nan

NoneType = type(None)
_HERE = Path(__file__).parent
'''
_KNOWN = frozenset(["NoneType", "device", "fx_pytree", "inf", "nan", "pytree", "tenon", "torch"])


def write_folder(module: GraphModule, folder: Path, name: str) -> None:
    """Write ``module`` into ``folder`` as the class ``name``."""
    folder.mkdir(parents=True, exist_ok=True)
    code = module.graph.python_code(root_module="self")
    public("save")(module.state_dict(), folder / "state_dict.pt")
    imports = [_import_of(key, value) for key, value in code.globals.items() if key not in _KNOWN]
    lines = [_assignment(child, _constructor(child, m, folder)) for child, m in module.named_children()]
    for key, buffer in module._buffers.items():
        if buffer is not None:
            empty = f"tenon.empty({list(buffer.shape)}, dtype={_dtype(buffer.dtype)})"
            lines.append(f"self.register_buffer({key!r}, {empty})")
    for key, parameter in module._parameters.items():
        if parameter is not None:
            kind = f"tenon.empty({list(parameter.shape)}, dtype={_dtype(parameter.dtype)})"
            made = f"tenon.nn.Parameter({kind}, requires_grad={parameter.requires_grad})"
            lines.append(_assignment(key, made))
    lines.append('self.load_state_dict(tenon.load(_HERE / "state_dict.pt"))')
    source = "\n".join(
        [
            _HEAD,
            *imports,
            "",
            f"class {name}(tenon.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {line}" for line in lines),
            textwrap.indent(code.src.rstrip(), "    "),
            "",
        ]
    )
    (folder / "module.py").write_text(source, encoding="utf-8")
    (folder / "__init__.py").write_text("from .module import *\n", encoding="utf-8")


def _assignment(name: str, value: str) -> str:
    return f"self.{name} = {value}" if is_name(name) else f"setattr(self, {name!r}, {value})"


def _dtype(kind: object) -> str:
    return repr(kind).replace("torch.", "tenon.")


def _import_of(name: str, value: object) -> str:
    """Return the statement that imports a global of the generated code."""
    module, own = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if module is None or own is None:
        raise UnsavableError(
            f"to_folder: the code refers to {value!r} as {name}, which no import statement can name."
            " Move it into a module, or give the node another target."
        )
    return f"from {module} import {own} as {name}"


def _constructor(name: str, module: Module, folder: Path) -> str:
    """Return an expression for a submodule: a constructor for a plain layer, else a file with the module."""
    text = repr(module)
    plain = type(module).__module__.startswith("tenon.nn.layers") and re.fullmatch(r"\w+\([^\n]*\)", text)
    if plain and all("=" in part or re.fullmatch(r"[-\d. ()]+", part) for part in _parts(text)):
        return text
    file = f"{name}.pt"
    public("save")(module, folder / file)
    return f'tenon.load(_HERE / "{file}", weights_only=False)'


def _parts(text: str) -> list[str]:
    inner = text.partition("(")[2][:-1]
    return [part for part in re.split(r",\s*(?![^(]*\))", inner) if part]

"""Allowed imports: lower layers never import higher ones, plugins import the public interface only."""

import ast
import functools
from collections import namedtuple
from pathlib import Path

from tenon.compat.finder import is_second_name

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = ROOT / "platform"
Mention = namedtuple("Mention", "source target kind")
FIRST_PARTY = sorted(
    p.name for top in ("plugins", "backends") for p in (ROOT / top).iterdir() if (p / "__init__.py").exists()
)

#: The layers of tenon, lowest first: a module may import modules of its own layer and of those below. A name
#: stands for the module or package and what is in it that is not named in another row.
LAYERS = [
    "errors config dtypes device random plugins engine.types compat.finder compat.reexports compat.paths compat.version",
    "engine compat.utils.packages tensors.size",
    "kernels",
    "tensors compat.legacy_storages compat.node_names compat.overriding compat.qscheme compat.rerouting compat.saved_attributes"
    " compat.saved_readers compat.typed_storage",
    "nn.parameter distributed.communication distributed.processes",
    "ops compat.torch_dispatch",
    "functions amp cuda graph",
    "autograd",
    "nn",
    "optim data",
    "distributed",
    "serialize func fx data.readers data.streaming",
    "export distributed.checkpoint distributed.pipelining",
    "profiler utils",
    "training testing",
    "compat cli extend",
]
LEVEL = {f"tenon.{name}": level for level, names in enumerate(LAYERS) for name in names.split()}
#: Imports inside of functions, and strings that name a module above or one that leads back here. Only shorten it.
ALLOWED = Path(__file__).parent / "late_imports.txt"
#: The largest number of files that may reach each other by imports, wherever they stand.
LARGEST_CIRCLE = 5
#: What plugins and backends may import of tenon: the authors' door, ops, the test kit, torch's public names.
PUBLIC = {
    "tenon.extend",
    "tenon.ops",
    "tenon.testing",
    "tenon",
    "tenon.nn",
    "tenon.data",
    "tenon.optim",
    "tenon.errors",
    "tenon.autograd",
    "tenon.special",
}
#: Third-party packages and the only places that may import them.
CONFINED = {
    "cupy": ("backends/tenon_cuda", "plugins/tenon_nccl"),
    "mpi4py": ("plugins/tenon_mpi",),
    "fsspec": ("platform/tenon/data/streaming",),
    "pyarrow": ("platform/tenon/data/streaming",),
    "tensorboardX": ("plugins/tenon_tensorboard",),
    "numba": ("backends/tenon_cpu", "plugins/tenon_mpi"),
    "safetensors": (),  # tests compare with it; ADR 0007
}


@functools.cache
def imports(path):
    """(module, line, is inside a function or TYPE_CHECKING) of every import in a file."""
    return list(_imports(ast.parse(path.read_text()), False))


def imports_naming(path, packages):
    """The modules that a file imports, where its text has the name of one of ``packages``: most need no parsing."""
    text = path.read_text()
    return [module for module, _, _ in imports(path)] if any(name in text for name in packages) else []


def _imports(node, late):
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, node.lineno, late
    elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        if node.module == "tenon":
            for alias in node.names:
                yield f"tenon.{alias.name}", node.lineno, late
        else:
            yield node.module, node.lineno, late
    late = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    late = late or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    for statements in ("body", "orelse", "handlers", "finalbody", "cases"):  # no import lies in an expression
        for inner in getattr(node, statements, ()):
            yield from _imports(inner, late)


TENON = sorted((PLATFORM / "tenon").rglob("*.py"))
EXTENSIONS = sorted(p for top in ("plugins", "backends") for p in (ROOT / top).rglob("*.py"))


def found_in(paths, wrong):
    """``{file: problem}``; one test for all files, as a test of each takes longer than its work."""
    return {str(path.relative_to(ROOT)): found for path in paths if (found := wrong(path))}


def level_of(module):
    """The number of the layer of ``module``; None if no row names it or a package that it is in."""
    if module == "tenon":
        return len(LAYERS) - 1
    while module not in LEVEL and "." in module:
        module = module.rpartition(".")[0]
    return LEVEL.get(module)


def test_every_module_has_a_layer(import_graph):
    assert [name for name in import_graph.files if level_of(name) is None] == []
    assert [
        name for name in LEVEL if not any(f"{m}.".startswith(f"{name}.") for m in import_graph.files)
    ] == []


def test_lower_layers_do_not_import_higher_ones(import_graph):
    upward = [
        f"{each.source}:{each.line} imports {each.target}"
        for each in import_graph.imports
        if each.kind == "import" and level_of(each.target) > level_of(each.source)
    ]

    assert upward == []


def test_late_imports_are_on_a_list_that_only_gets_shorter(import_graph):
    circles = import_graph.circles()

    def matters(each):
        if each.kind != "string":
            return each.kind == "late"
        return level_of(each.target) > level_of(each.source) or any(
            {each.source, each.target} <= circle for circle in circles
        )

    found = {f"{i.kind} {i.source} -> {i.target}" for i in import_graph.imports if matters(i)}
    allowed = ALLOWED.read_text().splitlines()

    assert sorted(found - set(allowed)) == [], "import at the top of the file, or pass in what is needed"
    assert sorted(set(allowed) - found) == [], f"no longer there: take them off {ALLOWED.name}"
    assert allowed == sorted(allowed)


def test_circles_of_files_are_small(import_graph):
    large = [sorted(circle) for circle in import_graph.circles() if len(circle) > LARGEST_CIRCLE]

    assert large == [], "late imports and strings count: move what both sides need below them"


def test_circles_are_found(import_graph):
    """``a`` imports ``b``, which imports ``c`` late, which names ``a`` in a string; ``d`` is only imported."""
    graph = type(import_graph).__new__(type(import_graph))
    graph.files = dict.fromkeys("abcd")
    kinds = [("a", "b", "import"), ("b", "c", "late"), ("c", "a", "string"), ("c", "d", "import")]
    graph.imports = [Mention(source, target, kind) for source, target, kind in kinds]

    assert graph.circles() == [{"a", "b", "c"}]
    graph.imports[1] = Mention("b", "c", "typing")
    assert graph.circles() == []


def test_the_platform_names_no_plugin_package():
    def wrong(path):
        return [m for m in imports_naming(path, FIRST_PARTY) if m.split(".")[0] in FIRST_PARTY]

    assert found_in(TENON, wrong) == {}


def test_plugins_use_the_public_door_only():
    def wrong(path):
        own = path.relative_to(ROOT).parts[1]
        return [
            f"line {line}: {module}"
            for module, line, _ in imports(path)
            if module.split(".")[0] in {"tenon", *FIRST_PARTY}
            and module.split(".")[0] != own
            and not any(
                module == door or (door != "tenon" and module.startswith(door + ".")) for door in PUBLIC
            )
            and not (
                module.startswith("tenon.")
                and module.count(".") == 1
                and not is_second_name(module)
                and not (PLATFORM / "tenon" / module[6:]).exists()
                and not (PLATFORM / "tenon" / f"{module[6:]}.py").exists()
            )
        ]

    assert found_in(EXTENSIONS, wrong) == {}


def test_heavy_libraries_stay_where_they_belong():
    def wrong(path):
        place = str(path.relative_to(ROOT))
        return [
            module
            for module in imports_naming(path, CONFINED)
            if (homes := CONFINED.get(module.split(".")[0])) is not None and not place.startswith(homes)
        ]

    assert found_in(TENON + EXTENSIONS, wrong) == {}


def test_one_file_alone_reads_the_environment():
    def wrong(path):
        text = path.read_text()
        return [
            node.lineno
            for node in (ast.walk(ast.parse(text)) if "environ" in text or "getenv" in text else ())
            if isinstance(node, ast.Attribute)
            and node.attr in ("environ", "getenv")
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
        ]

    assert found_in(TENON + EXTENSIONS, wrong).keys() == {"platform/tenon/config.py"}


def test_gradient_rules_read_only_f_and_attrs():
    def wrong(path):
        text, found = path.read_text(), []
        for node in ast.walk(ast.parse(text)) if "def vjp_" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("vjp_"):
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                attributes = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                told = f"{node.name} line {node.lineno}: "
                found += [told + n for n in names & {"np", "xp", "numpy", "isinstance"}]
                found += [f"{told}.{a}" for a in attributes & {"raw", "data"}]
        return found

    assert found_in(sorted((PLATFORM / "tenon" / "ops").rglob("*.py")), wrong) == {}
